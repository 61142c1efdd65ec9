"""Record, replay and auto: calls, misses and their reports."""

from __future__ import annotations

import pytest

from agentlab.core.errors import ConfigError
from agentlab.core.events import Notice
from agentlab.models.scripted import Scripted
from support.replays import FLOWS, ForbiddenModel, lab, play, replay, replay_invariants
from support.rules_set import cooperative_model


def test_record_keeps_recorded_calls_and_resume_continues(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["rag_only"])
    with pytest.raises(ConfigError, match="--resume"):
        play(dataset, "record", tmp_path / "b", flows=["rag_only"])
    model = Scripted([cooperative_model], loop=True)
    with lab(dataset, "record", model, flows=["rag_only"]) as laboratory:
        laboratory.run_sync(out=tmp_path / "c", resume=True)
    assert model.requests == []


def test_auto_calls_only_for_new_requests_and_reports_the_first(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=FLOWS)
    model = Scripted([cooperative_model], loop=True)
    prompts = {"tools": {"system_with_tools": "Search with {tool} before you answer.\n{documents}"}}
    run = play(dataset, "auto", tmp_path / "b", model=model, flows=FLOWS, prompts=prompts)
    text = run.summary["recordings"]
    assert (text["new"], text["reused"]) == (len(model.requests), 6 + 12) == (12, 18)
    assert text["causes"] == {"system prompt": 12}
    assert {(d["flow"], d["conversation"], d["turn"]) for d in text["diverged"]} == {
        ("tools", f"c{i}", 0) for i in range(3)
    }
    assert "system prompt changed at character 0" in text["diverged"][0]["why"]
    assert run.summary["flows"]["rag_only"]["billed"]["llm_calls"] == 0
    assert run.summary["flows"]["tools"]["billed"]["llm_calls"] == 12

    again = play(dataset, "auto", tmp_path / "c", model=ForbiddenModel(), flows=FLOWS, prompts=prompts)
    assert again.summary["recordings"]["new"] == 0
    assert replay_invariants(again) == replay_invariants(run)


def test_replay_with_misses_counts_causes_and_is_incomplete(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=FLOWS)
    run = replay(dataset, tmp_path / "b", flows=FLOWS, generation={"seed": 8})
    assert run.summary["status"] == "partial"
    text = run.summary["recordings"]
    assert text["missing"] == sum(text["causes"].values()) > 0
    assert set(text["causes"]) <= {"seed", "history"} and text["causes"]["seed"] >= 9
    assert all(flow["errors"] == flow["turns"] for flow in run.summary["flows"].values())
    (first,) = [n for n in run.trace("rag_only", "c0").at(0) if isinstance(n, Notice) and n.name == "not_recorded"]
    assert "seed is 8, was 7" in first.text and "run.jsonl:" in first.text


def test_a_miss_inside_a_tool_is_no_answer_for_the_model(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["tools"])
    file = tmp_path / "recordings" / "run.jsonl"
    stored = [line for line in file.read_text().splitlines(True) if '"kind": "embedding"' not in line]
    file.write_text("".join(stored))
    run = replay(dataset, tmp_path / "b", flows=["tools"])
    assert run.summary["recordings"]["causes"]["query embedding"] >= 3
    assert "never embedded" in run.turns["error"][0]


def test_new_conversation_is_the_cause_of_its_calls(dataset, tmp_path):
    play(dataset, "record", tmp_path / "a", flows=["rag_only"], limit=1)
    run = play(dataset, "auto", tmp_path / "b", flows=["rag_only"], limit=2)
    assert run.summary["recordings"]["causes"] == {"new conversation": 2}
