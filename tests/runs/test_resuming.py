"""Runs that are killed, resumed, refused, ended by a budget or tampered with."""

from __future__ import annotations

import threading
import time

import pytest

import agentlab as al
from agentlab.core.errors import ConfigError, RunError
from agentlab.core.messages import Completion, Message, Usage
from agentlab.evals.play import runner
from agentlab.evals.play.budget import estimate
from agentlab.lab.run import open_run
from agentlab.models.scripted import Scripted
from support.rules_set import cooperative_model, lab
from support.small_runs import Answering, opened, write_set
from support.unsealing import unseal


@pytest.mark.parametrize("concurrency", [1, 8])
def test_a_killed_run_is_continued_without_asking_again(dataset, tmp_path, concurrency):
    class Killed(BaseException):
        pass

    out = tmp_path / "run"
    model = Scripted([cooperative_model], loop=True)
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"]}

    def die_after_three(progress):
        if progress.done == 3:
            raise Killed

    with al.Lab(model=model, **spec) as laboratory, pytest.raises(BaseException):  # noqa: B017
        laboratory.run_sync(out=out, on_progress=die_after_three)
    with (out / "turns.jsonl").open("a") as torn:
        torn.write('{"flow": "rag_on')
    before = len(model.requests)
    with pytest.raises(RunError, match="has not ended"):
        _ = open_run(out).summary
    with al.Lab(model=model, concurrency=concurrency, **spec) as laboratory:
        run = laboratory.run_sync(out=out, resume=True)
    assert (run.summary["status"], run.summary["turns"], run.summary["flows"]["rag_only"]["llm_calls"]) == (
        "complete",
        6,
        6,
    )
    assert len(model.requests) - before == 4, "the finished conversation stays; the interrupted one starts again"
    assert al.score(out).summary["flows"] == run.summary["flows"], "such a run can be graded again, too"


def test_resuming_another_spec_is_refused_and_a_run_is_not_overwritten(dataset, tmp_path):
    out = tmp_path / "run"
    with lab(dataset, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=out)
        with pytest.raises(RunError, match="--resume"):
            laboratory.run_sync(out=out)
    with (
        lab(dataset, flows=["tools"]) as laboratory,
        pytest.raises(RunError, match="spec: flows differs in that run"),
    ):
        laboratory.run_sync(out=out, resume=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "thesis.txt").write_text("precious")
    with lab(dataset, flows=["rag_only"]) as laboratory, pytest.raises(RunError, match="not empty"):
        laboratory.run_sync(out=tmp_path / "other")


def test_budget_ends_the_run_early_with_a_note(dataset, tmp_path):
    with lab(dataset, flows=["rag_only"], budget={"calls": 3}) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert (run.summary["status"], run.summary["flows"]["rag_only"]["llm_calls"]) == ("partial", 4)
    with (
        lab(dataset, flows=["rag_only"], budget={"usd": 1}) as laboratory,
        pytest.raises(ConfigError, match="no price"),
    ):
        laboratory.run_sync(out=tmp_path / "priced")
    assert not (tmp_path / "priced").exists()


def test_own_price_table(dataset, tmp_path):
    table = tmp_path / "prices.yaml"
    table.write_text('dated: "2026"\nmodels:\n  scripted: {input: 2, cached_input: 0.5, output: 10}\n')
    usage = Usage(input_tokens=1000, cached_tokens=400, output_tokens=100)
    reply = Completion(message=Message(role="agent", text="yes"), usage=usage)
    with lab(dataset, [reply], flows=["rag_only"], prices=str(table), budget={"usd": 1}) as laboratory:
        guessed = estimate(laboratory.bench, laboratory.bench.datasets())
        flow = laboratory.run_sync(out=tmp_path / "run").summary["flows"]["rag_only"]
    assert flow["cost_usd"] == pytest.approx(6 * (600 * 2 + 400 * 0.5 + 100 * 10) / 1e6)
    assert "6 turns, about 6 model calls" in guessed and guessed.endswith("about $0.01")


def test_a_conversation_that_does_not_add_up_is_played_again(dataset, tmp_path):
    with lab(dataset, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=tmp_path / "run")
        unseal(tmp_path / "run")
        calls = tmp_path / "run" / "calls.jsonl"
        lines = calls.read_text().splitlines(keepends=True)
        calls.write_text("".join(line for line in lines if '"model_call"' not in line or '"c1"' not in line))
        again = laboratory.run_sync(out=tmp_path / "run", resume=True)
    assert again.result.status == "complete" and again.trace("rag_only", "c1").attempt == 1


@pytest.mark.parametrize("scorers", [[], ["answer"]])
def test_run_of_turns_without_waits_can_be_cancelled(tmp_path, scorers):
    """Turns that never wait must still yield to the event loop."""
    data, started_event = write_set(tmp_path / "many", conversations=1500), threading.Event()
    with opened(data, Answering(calls=lambda turn: 0), scorers=scorers) as lab:

        def report(progress):
            if progress.done == 10:
                started_event.set()
                time.sleep(0.2)  # on a busy machine all turns are played before the other thread wakes

        playing = lab.loop.submit(runner.run(lab.bench, out=tmp_path / "run", on_progress=report))
        assert started_event.wait(30)
        lab.loop.cancel_and_wait(playing)
    played = (tmp_path / "run" / "turns.jsonl").read_bytes().count(b"\n")
    assert 10 <= played < 3000
