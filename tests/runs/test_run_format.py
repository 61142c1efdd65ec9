"""Runs of older and newer formats: read, not continued, refused."""

from __future__ import annotations

import shutil

import pytest

from agentlab.core.errors import RunError
from agentlab.core.trace import Totals
from agentlab.evals.results.run import open_run
from support.places import TESTS
from support.rules_set import lab


def test_a_run_of_format_1_can_still_be_read(tmp_path):
    run = open_run(TESTS / "data" / "run_format_1")
    assert run.folder.header["format"] == 1
    flow = run.summary["flows"]["tools"]
    totals = Totals.sum(trace.totals() for trace in run.traces.values() if trace.flow == "tools")
    assert (
        (totals.llm_calls, totals.input_tokens)
        == (flow["llm_calls"], flow["input_tokens"])
        == (8, flow["input_tokens"])
    )
    assert run.turns["latency_s"].mean() > 0
    for trace in run.traces.values():
        trace.check()
    assert "call_tool lookup_documents" in run.trace("tools", "c0").steps()


def test_a_run_of_format_1_is_not_continued(dataset, tmp_path):
    shutil.copytree(TESTS / "data" / "run_format_1", tmp_path / "run")
    with lab(dataset) as laboratory, pytest.raises(RunError, match="it can only be read"):
        laboratory.run_sync(out=tmp_path / "run", resume=True)


def test_a_run_of_a_newer_format_is_refused(tmp_path):
    (tmp_path / "run.json").write_text('{"format": 99, "spec": {}, "datasets": {}, "models": {}}')
    with pytest.raises(RunError, match="run format 99, agentlab reads formats 1, 2 and 3"):
        open_run(tmp_path)
