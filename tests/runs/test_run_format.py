"""Runs of older and newer formats: read, not continued, refused."""

from __future__ import annotations

import shutil

import pytest

from agentlab.cli.parser import main
from agentlab.core.errors import RunError
from agentlab.core.trace import Totals
from agentlab.lab.run import open_run
from support.places import TESTS
from support.rules_set import lab


@pytest.mark.parametrize(("form", "calls"), [(1, 8), (2, 12)])
def test_a_run_of_an_older_format_can_still_be_read(form, calls):
    run = open_run(TESTS / "data" / f"run_format_{form}")
    assert run.folder.header["format"] == form
    flow = run.summary["flows"]["tools"]
    totals = Totals.sum(trace.totals() for trace in run.traces.values() if trace.flow == "tools")
    assert (
        (totals.llm_calls, totals.input_tokens)
        == (flow["llm_calls"], flow["input_tokens"])
        == (calls, flow["input_tokens"])
    )
    assert run.turns["latency_s"].mean() > 0
    for trace in run.traces.values():
        trace.check()
    assert "call_tool lookup_documents" in run.trace("tools", "c0").steps()


@pytest.mark.parametrize("form", [1, 2])
def test_a_run_of_an_older_format_is_not_continued(dataset, tmp_path, form):
    shutil.copytree(TESTS / "data" / f"run_format_{form}", tmp_path / "run")
    with lab(dataset) as laboratory, pytest.raises(RunError, match="it can only be read"):
        laboratory.run_sync(out=tmp_path / "run", resume=True)


def test_a_run_of_format_2_is_compared_and_written_anew(tmp_path, capsys):
    old = TESTS / "data" / "run_format_2"
    assert main(["compare", str(old)]) == 0
    assert "tools against rag_only" in capsys.readouterr().out
    assert main(["convert", str(old), "--out", str(tmp_path / "new")]) == 0
    new = open_run(tmp_path / "new")
    assert new.folder.header["format"] == 3 and not (tmp_path / "new" / "scores.jsonl").exists()
    before = open_run(old)
    assert new.result.flows == before.result.flows
    assert [*new.folder.scores()] == [*before.folder.scores()]
    assert {play: t.steps() for play, t in new.traces.items()} == {play: t.steps() for play, t in before.traces.items()}


def test_a_run_of_a_newer_format_is_refused(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 99, "spec": {}, "datasets": {}, "models": {}}')
    with pytest.raises(RunError, match="run format 99, agentlab reads formats 1, 2 and 3"):
        open_run(tmp_path)
