"""Forks of a recorded run: the first turns stay and cost nothing, the other turns use the changed settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import AgentlabError
from agentlab.core.events import ModelCall
from agentlab.core.prices import load_prices
from agentlab.evals.compare.pairs import compare
from agentlab.evals.cost import Repricing
from agentlab.lab.forks import fork
from agentlab.lab.run import Run, open_run

TURNS = [{"user": f"question {n}", "reference_answers": [f"reply {n}"]} for n in range(4)]


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Path) -> Run:
    """Two conversations of four turns, recorded on a script; `other.yaml` is another model."""
    monkeypatch.chdir(tmp_path)
    Path("set").mkdir()
    rows = [{"id": name, "turns": [{**turn, "user": f"{name} {turn['user']}"} for turn in TURNS]} for name in "ab"]
    Path("set/conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("set/corpus.jsonl").write_text(json.dumps({"doc_id": "d", "title": "D", "text": "A question is a question."}))
    Path("model.yaml").write_text(json.dumps({"replies": [f"said {n}" for n in range(99)]}))
    Path("other.yaml").write_text(json.dumps({"replies": ["other words"], "loop": True}))
    spec = {"flows": ["rag_only", "tools"], "mode": "record", "recordings": "rec", "embedder": "hashing/hashing-64"}
    with al.Lab(datasets=["set"], model="scripted/model.yaml", **spec) as lab:
        return lab.run_sync(out="first")


def replies(run: Run) -> dict[tuple[str, str, int], str]:
    return {(row.flow, row.conversation, row.turn): row.reply.text for row in run.turn_rows()}


def test_an_unchanged_fork_asks_nothing_and_is_the_same_to_the_bit(run):
    same = fork(run, 3, mode="replay", out="same")
    assert replies(same) == replies(run)
    assert [row.totals for row in same.turn_rows()] == [row.totals for row in run.turn_rows()]
    assert (same.result.recordings.new, same.result.recordings.missing) == (0, 0)
    changed = [d for pair in compare(run, same).pairs for d in pair.differences if d.changed]
    assert not changed and compare(run, same).pairs[0]["answer_f1"].n == 4, "turns 3 and 4 of two conversations"


def test_new_model_answers_later_turns_and_reads_the_history(run):
    forked = fork(run, 4, model="scripted/other.yaml", out="other")
    before, after = replies(run), replies(forked)
    assert {key for key in before if before[key] != after[key]} == {key for key in before if key[2] == 3}
    assert {text for key, text in after.items() if key[2] == 3} == {"other words"}
    assert forked.result.recordings.new == 4, "one a flow and conversation"
    trace = forked.trace("rag_only", "a")
    request = next(event for event in trace.at(3) if isinstance(event, ModelCall))
    assert request.model == "scripted/other.yaml"
    assert [m.text for m in request.request.messages if m.role == "agent"] == [
        before["rag_only", "a", n] for n in range(3)
    ]


def test_fork_replaces_a_flow(run, capsys):
    flow = "{flow: rag_only, label: brief, prompts: {system: Be brief.}}"
    assert main(["fork", "first", "--turn", "3", "--replace-flow", "tools", "--flow", flow, "--out", "brief"]) == 0
    output = " ".join(capsys.readouterr().out.split())
    assert "from turn 3 on" in output and "A: tools (first) B: brief (brief)" in output
    forked = open_run("brief")
    assert forked.folder.header["fork"] == {"of": "first", "turn": 2, "flows": {"brief": "tools"}}
    old, new = replies(run), replies(forked)
    assert all(new["brief", name, n] == old["tools", name, n] for name in "ab" for n in (0, 1))
    call = next(e for e in forked.trace("brief", "b").at(2) if isinstance(e, ModelCall))
    assert call.request.messages[0].text == "Be brief." and old["tools", "b", 1] in str(call.request.messages)


def test_fork_copies_facts_to_another_memory_or_drops_them(tmp_path, monkeypatch, own_home):
    monkeypatch.chdir(tmp_path)
    Path("set").mkdir()
    Path("set/conversations.jsonl").write_text(
        json.dumps({"id": "a", "turns": [{"user": "I live in Bern."}, {"user": "Where do I live, tell me?"}]})
    )
    Path("model.yaml").write_text(json.dumps({"replies": ["Nice."], "loop": True}))
    coordinator = {"flow": "coordinator", "gate": "all", "tools": []}
    spec = {"flows": [coordinator], "mode": "record", "recordings": "rec", "embedder": "hashing/hashing-64"}
    with al.Lab(datasets=["set"], model="scripted/model.yaml", memory="sqlite", **spec) as lab:
        lab.run_sync(out="first")

    def recalled(run: Run) -> int:
        events = run.trace("coordinator", "a").at(1)
        return sum(len(event.facts) for event in events if event.kind == "memory" and event.op == "recall")

    assert recalled(open_run("first")) == 1
    assert recalled(fork("first", 2, memory="textfile", out="text")) == 1
    assert recalled(fork("first", 2, memory="none", out="none")) == 0


def test_impossible_fork_is_one_line(run, capsys):
    for arguments, text in [
        (["--turn", "5"], "the longest conversation of first has 4 turns; name 1 to 4"),
        (["--turn", "0"], "turn 0: turns are counted from 1"),
        (["--turn", "1", "--set", "limit=1"], "limit: a fork cannot change it"),
        (["--turn", "1", "--flow", "tools"], "--replace-flow rag_only or --replace-flow tools"),
        (["--turn", "1", "--replace-flow", "tool"], "unknown flow of this run 'tool'"),
        (["--turn", "1", "--flow", "{a"], "a name, or an entry"),
    ]:
        assert main(["fork", "first", *arguments]) == 1
        assert text in capsys.readouterr().err
    with al.Lab(
        datasets=["set"], model="scripted/model.yaml", flows=["rag_only"], embedder="hashing/hashing-64"
    ) as lab:
        lab.run_sync(out="live")
    with pytest.raises(AgentlabError, match="has no recordings"):
        fork("live", 1)


def test_run_is_repriced_and_retimed_without_a_call(run, capsys):
    Path("prices.yaml").write_text(
        "dated: 2026-01-01\nmodels:\n  dear/*: {input: 1000, cached_input: 100, output: 2000}\n"
    )
    calls = [e for trace in run.traces.values() for e in trace.events if isinstance(e, ModelCall)]
    mine = [e for e in calls if e.completion is not None]
    arguments = [
        "--prices",
        "prices.yaml",
        "--model",
        "dear/one",
        "--cached-share",
        "0.5",
        "--decode",
        "10",
        "--per-call",
        "1",
    ]
    there = Repricing(prices=load_prices("prices.yaml"), model="dear/one", cached_share=0.5, decode=10, per_call=1)
    table = there.table(run)
    usages = [
        e.completion.usage for key, t in run.traces.items() if key[0] == "rag_only" for e in t.events if e in mine
    ]
    expected = sum(
        ((u.input_tokens - round(u.input_tokens / 2)) * 1000 + round(u.input_tokens / 2) * 100 + u.output_tokens * 2000)
        / 1e6
        for u in usages
    )
    assert table.loc["rag_only", "USD / turn repriced"] == pytest.approx(expected / 8)
    tokens = sum(u.output_tokens for u in usages)
    assert table.loc["rag_only", "latency s repriced"] == pytest.approx(1 + tokens / 10 / 8, abs=0.05)
    assert main(["cost", "first", *arguments]) == 0
    output = capsys.readouterr().out
    assert "USD / turn repriced" in output and "no model calls" in output
    assert main(["cost", "first", "--cached-share", "2"]) == 1
    assert main(["cost", "first", "--decode", "0"]) == 1
