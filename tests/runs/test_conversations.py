"""Runs of unusual conversations: unscored turns, sessions, tools, several sets, ten megabytes."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.core.errors import BadRequest, ConfigError
from agentlab.models.scripted import Scripted, call
from support.rules_set import CONVERSATIONS, DOCUMENTS, cooperative_model, write_set


def test_unscored_turns_enter_the_history_and_sessions_clear_it(tmp_path, own_home):
    conversation = {
        "id": "c",
        "turns": [
            {"user": "Hello", "reference_answers": ["Good day"], "scored": False, "session": "a"},
            {"user": "First", "session": "a"},
            {"user": "Second", "session": "b"},
        ],
    }
    folder = write_set(tmp_path / "set", [conversation], DOCUMENTS)
    model = Scripted(["one", "two"])
    with al.Lab(model=model, datasets=[str(folder)], embedder="hashing/hashing-64", flows=["rag_only"]) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert [m.text for m in model.requests[0].messages[1:-1]] == ["Hello", "Good day"]
    assert len(model.requests[1].messages) == 2
    assert list(run.turns["turn"]) == [2, 3]


def test_tools_a_conversation_brings_are_served_from_its_recorded_results(tmp_path, own_home):
    conversation = {
        "id": "c",
        "tools": [{"name": "weather.get", "description": "", "parameters": {"type": "object", "properties": {}}}],
        "turns": [
            {"user": "Weather?", "tool_results": [{"name": "weather.get", "results": [{"sky": "grey"}], "total": 1}]}
        ],
    }
    folder = write_set(tmp_path / "set", [conversation])
    model = Scripted([call("weather.get"), call("weather.get"), "Grey."])
    spec = {"datasets": [str(folder)], "embedder": "hashing/hashing-64"}
    with al.Lab(model=model, flows=["tools"], **spec) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert [tool.name for tool in model.requests[0].tools] == ["weather.get"]
    results = [m.text for m in model.requests[-1].messages if m.role == "tool"]
    assert results == ['{"results": [{"sky": "grey"}], "total": 1}', '{"status": "success"}']
    assert run.summary["flows"]["tools"]["tool_calls"] == 2
    with (
        al.Lab(model=model, flows=["rag_only"], **spec) as laboratory,
        pytest.raises(ConfigError, match="needs documents"),
    ):
        laboratory.run_sync(out=tmp_path / "never")


def test_two_data_sets_keep_their_conversations_apart(dataset, tmp_path):
    other = write_set(tmp_path / "other", CONVERSATIONS, DOCUMENTS)
    spec = {"embedder": "hashing/hashing-64", "flows": ["rag_only"]}
    with al.Lab(
        model=Scripted([cooperative_model], loop=True), datasets=[str(dataset), str(other)], **spec
    ) as laboratory:
        run = laboratory.run_sync(out=tmp_path / "run")
    assert run.summary["datasets"] == ["rules", "other"]
    assert set(run.turns["conversation"]) >= {"rules/c0", "other/c0"}


@pytest.mark.slow
def test_a_turn_of_ten_megabytes_is_a_turn_like_any_other(tmp_path, own_home):
    folder = write_set(tmp_path / "set", [{"id": "c", "turns": [{"user": "word " * 2_000_000}]}], DOCUMENTS)
    model = Scripted([BadRequest("too long")])
    with al.Lab(model=model, datasets=[str(folder)], embedder="hashing/hashing-64", flows=["rag_only"]) as laboratory:
        flow = laboratory.run_sync(out=tmp_path / "run").summary["flows"]["rag_only"]
    assert (flow["turns"], flow["errors"]) == (1, 1)
