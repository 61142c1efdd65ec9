"""Whole runs on the scripted model: the comparison, the summary, failing turns, the user's own flows, concurrency."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest

import agentlab as al
from agentlab.core.errors import ConfigError, RunError
from agentlab.core.messages import Message, Reply
from agentlab.lab.run import open_run
from agentlab.models.scripted import Scripted
from support.rules_set import CONVERSATIONS, DOCUMENTS, lab, write_set


def test_the_comparison_of_the_three_flows_comes_out_exactly(dataset, tmp_path):
    with lab(dataset) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    flows = run.summary["flows"]
    per_turn = {
        label: (f["llm_calls_per_turn"], f["embedding_calls_per_turn"], f["tool_calls_per_turn"], f["fallback_rate"])
        for label, f in flows.items()
    }
    assert per_turn == {"rag_only": (1, 1, 0, 0), "tools": (2, 1, 1, 0), "tools_rag_fallback": (2, 1, 1, 0)}

    never = lambda request: "The documents do not say."  # noqa: E731
    with lab(dataset, [never], flows=["tools", "tools_rag_fallback"]) as laboratory:
        flows = laboratory.run_sync(out=tmp_path / "never").summary["flows"]
    assert (flows["tools"]["llm_calls_per_turn"], flows["tools"]["fallback_rate"]) == (1, 0)
    fallback = flows["tools_rag_fallback"]
    assert (fallback["llm_calls_per_turn"], fallback["embedding_calls_per_turn"]) == (2, 1)
    assert (fallback["tool_calls_per_turn"], fallback["fallback_rate"]) == (0, 1)


def test_the_summary_is_the_interface_and_a_fold_over_the_rows(dataset, tmp_path, capsys):
    with lab(dataset, flows=["rag_only"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    seal = summary.pop("seal")
    assert set(seal) == {"run.json", "conversations.json", "turns.jsonl", "calls.jsonl", "summary.json"}
    keys = {"run_id", "status", "datasets", "conversations", "turns", "model", "mode", "recordings", "flows"}
    assert set(summary) == keys
    assert (summary["status"], summary["conversations"], summary["turns"]) == ("complete", 3, 6)
    flow = summary["flows"]["rag_only"]
    assert flow["scores"]["answer_f1"]["mean"] == 1.0
    least = pytest.approx(0.025 ** (1 / 3))
    assert flow["scores"]["refusal_accuracy"] == {"mean": 1.0, "ci95": [least, 1.0], "n": 3}, "three are few"
    assert flow["cost_usd"] is None, "a model without a price costs null"
    assert flow["phases"]["answer"]["calls"] == flow["llm_calls"] == 6
    rows = [json.loads(line) for line in (tmp_path / "run" / "calls.jsonl").read_text().splitlines()]
    spent = sum(r["completion"]["usage"]["input_tokens"] for r in rows if r["kind"] == "model_call")
    assert spent == flow["input_tokens"] == run.turns["input_tokens"].sum()
    assert run.calls["cost_usd"].isna().all()
    assert set(run.scores["metric"]) >= {"answer_f1", "retrieval_recall", "citation_precision", "lookup_accuracy"}
    assert open_run(tmp_path / "run").summary == summary
    run._ipython_display_()
    assert "rag_only" in capsys.readouterr().out


def test_a_failing_turn_is_counted_scores_nothing_and_keeps_its_cost(dataset, tmp_path):
    async def fragile(turn, session):
        await session.complete((Message(role="user", text=turn.text),))
        if "(1)" in turn.text:
            raise ZeroDivisionError("by chance")
        return Reply(text="Between 410 and 450 grams.")

    with lab(dataset, ["hm"], flows=[fragile]) as laboratory:
        flow = laboratory.run_sync(out=tmp_path / "run").summary["flows"]["fragile"]
    assert (flow["turns"], flow["errors"], flow["llm_calls"]) == (6, 1, 6)
    mean, (low, high) = flow["scores"]["answer_f1"]["mean"], flow["scores"]["answer_f1"]["ci95"]
    assert mean == pytest.approx(2 / 3) and 0 < low < 0.1 and 0.9 < high <= 1
    assert "ZeroDivisionError" in (tmp_path / "run" / "run.log").read_text()


def test_a_flow_is_one_object_from_python_and_sees_no_expectation(dataset, tmp_path):
    seen = []

    class Echo:
        name = "echo"

        async def respond(self, turn, session):
            seen.append(turn)
            return Reply(text=turn.text)

    with lab(dataset, flows=["rag_only", Echo()]) as laboratory:
        summary = laboratory.run_sync(out=tmp_path / "run").summary
    assert summary["flows"]["echo"]["llm_calls"] is None, "it did not use the session"
    assert not any("410" in str(turn) for turn in seen)


def test_own_flow_is_one_file(dataset, tmp_path, monkeypatch):
    (tmp_path / "my_flows").mkdir()
    (tmp_path / "my_flows" / "shouting.py").write_text(
        '"""Answers in capitals."""\n'
        "from agentlab import Message, Reply\n\n"
        "async def respond(turn, session):\n"
        "    completion = await session.complete((Message(role='user', text=turn.text),))\n"
        "    return Reply(text=completion.message.text.upper())\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with lab(dataset, ["quiet"], flows=["my_flows.shouting"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert set(run.turns["reply"]) == {"QUIET"}


def test_concurrency_changes_no_number(dataset, tmp_path):
    totals = []
    for concurrency in (1, 6):
        with lab(dataset, concurrency=concurrency) as laboratory:
            run = laboratory.run_sync(out=tmp_path / str(concurrency))
        frame = run.turns.set_index(["flow", "conversation", "turn"]).sort_index()
        assert list(run.summary["flows"]) == ["rag_only", "tools", "tools_rag_fallback"]
        totals.append(frame[["llm_calls", "input_tokens", "output_tokens", "tool_calls", "reply"]])
    assert totals[0].equals(totals[1])


def test_epochs_get_a_seed_each_and_identical_ones_are_refused(dataset, tmp_path):
    with pytest.raises(ConfigError, match="epochs"):
        lab(dataset, epochs=2)
    model = Scripted(["x"], loop=True)
    spec = {"datasets": [str(dataset)], "embedder": "hashing/hashing-64", "flows": ["rag_only"], "limit": 1}
    with al.Lab(model=model, epochs=3, generation={"temperature": 0.7, "seed": 5}, **spec) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert {request.seed for request in model.requests} == {5, 6, 7}
    assert run.summary["turns"] == 6


def test_indexing_of_a_large_corpus_shows_progress(tmp_path, own_home):
    many = DOCUMENTS + [{"doc_id": f"d{n}", "title": "", "text": f"Document {n}."} for n in range(598)]
    dataset = write_set(tmp_path / "many", CONVERSATIONS[:1], many)
    texts = []
    with lab(dataset, ["yes"] * 9, flows=["rag_only"]) as opened:
        opened.run_sync(
            out=tmp_path / "run", on_progress=lambda progress: texts.append((progress.done, progress.label))
        )
    assert texts[:3] == [(0, "indexing: 256 of 600 passages"), (0, "indexing: 512 of 600 passages"), (0, "")]


def test_turns_that_took_no_time_do_not_make_the_rest_look_short(tmp_path, own_home, monkeypatch):
    """A continued run plays its recorded calls first and at once."""
    clock, texts = [0.0], []
    monkeypatch.setattr("agentlab.evals.store.progress.time", SimpleNamespace(perf_counter=lambda: clock[0]))

    def report(progress):
        texts.append(progress.seconds_left)
        clock[0] += 0 if progress.done < 40 else 60

    conversations = [{"id": f"c{n}", "turns": [{"user": f"{n}?"}]} for n in range(80)]
    dataset = write_set(tmp_path / "long", conversations, DOCUMENTS)
    with lab(dataset, ["yes"] * 80, flows=["rag_only"], concurrency=1) as opened:
        opened.run_sync(out=tmp_path / "run", on_progress=report)
    assert texts[0] is None and texts[1:41] == [0.0] * 40
    assert texts[76] == 4 * 60


def test_a_scorer_that_fails_is_named_and_the_replies_are_kept(dataset, tmp_path, monkeypatch):
    def broken(turn, outcome):
        raise KeyError("weight")

    monkeypatch.setattr("agentlab.evals.scorers.answer.score", broken)
    with lab(dataset, flows=["rag_only"]) as laboratory:
        with pytest.raises(RunError, match=r"grading turn 1 of c0 by rag_only for answer_f1.* KeyError: 'weight'"):
            laboratory.run_sync(out=tmp_path / "run")
        monkeypatch.undo()
        monkeypatch.setenv("AGENTLAB_HOME", str(tmp_path / "home"))
        again = laboratory.run_sync(out=tmp_path / "run", resume=True)
        assert again.summary["flows"]["rag_only"]["billed"]["llm_calls"] == 6
