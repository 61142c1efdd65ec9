"""Forks continue a conversation from an earlier turn with any flow, and logs contain the decisions."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import ConfigError
from agentlab.evals.store.folder import run_log
from agentlab.models.scripted import Scripted


def opened(model: Scripted, *flows: str) -> al.Lab:
    return al.Lab(model=model, embedder="hashing/hashing-64", flows=list(flows))


def texts_of(model: Scripted) -> list[str]:
    return [message.text for message in model.requests[-1].messages if message.role in ("user", "agent")]


def test_fork_knows_only_the_kept_turns():
    model = Scripted(["one", "two", "three", "other"])
    with opened(model, "rag_only", "tools") as lab:
        chat = lab.chat("rag_only", documents=())
        for text in ("first", "second", "third"):
            chat.say_sync(text)
        fork = lab.chat("tools", documents=(), begins_with=chat.turns_until(2))
        fork.say_sync("another third")
        assert texts_of(model) == ["first", "one", "second", "two", "another third"]
        # The first conversation is untouched.
        assert [turn.user for turn in chat.turn_rows] == ["first", "second", "third"]


@pytest.mark.parametrize("turn", [0, 4])
def test_unknown_turn_is_refused(turn):
    with opened(Scripted(["a"], loop=True), "rag_only") as lab:
        chat = lab.chat(documents=())
        for text in ("first", "second", "third"):
            chat.say_sync(text)
        with pytest.raises(ConfigError, match=f"turn {turn}: this conversation has 3 turns so far"):
            chat.turns_until(turn)


def test_a_flow_that_stores_nothing_can_be_forked_and_made_a_case_of(own_home, tmp_path):
    async def forgetful(turn, session):
        return al.Reply(text=f"no idea about {turn.text}")

    with al.Lab(flows=[forgetful, "rag_only"], model=Scripted(["a"], loop=True), embedder="hashing/hashing-64") as lab:
        chat = lab.chat("forgetful", documents=())
        for text in ("one", "two"):
            chat.say_sync(text)
        assert [turn.reference_answers for turn in chat.turns_until(2)] == [
            ["no idea about one"],
            ["no idea about two"],
        ]
        chat.save_case(2, "", tmp_path / "cases")
        other = lab.chat("rag_only", documents=(), begins_with=chat.turns_until(1))
        other.say_sync("three")
        assert len(other.turns_until(2)) == 2
    case = al.load_dataset(tmp_path / "cases").conversations[0]
    assert case.turns[0].reference_answers == ["no idea about one"] and case.turns[1].unanswerable


@pytest.fixture
def typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_home: Any, capsys: pytest.CaptureFixture[str]):
    monkeypatch.chdir(tmp_path)

    def talk(*lines: str, flow: str = "rag_only") -> str:
        Path("replies.yaml").write_text(json.dumps({"replies": [f"reply {n}" for n in range(9)]}))
        left = iter(lines)
        monkeypatch.setattr("builtins.input", lambda prompt="": next(left))
        given = ["--model", "scripted/replies.yaml", "--memory", "kept", "--set", "embedder=hashing/hashing-64"]
        assert main(["chat", flow, *given, "--documents", "corpus.jsonl"]) == 0
        return capsys.readouterr().out

    Path("corpus.jsonl").write_text(json.dumps({"doc_id": "goal", "title": "Goal", "text": "A goal is 7.32 m wide."}))
    return talk


def test_a_fork_in_the_terminal_is_saved_and_replays(typed, capsys):
    screen = typed("How wide?", "How high?", "/fork 2", "How deep?", "/save forked", "/quit")
    assert "rag_only continues from turn 2" in screen
    rows = json.loads(Path("forked/conversations.jsonl").read_text())["turns"]
    assert [(row["user"], row.get("scored", True)) for row in rows] == [("How wide?", False), ("How deep?", True)]
    assert main(["run", "forked/spec.yaml"]) == 0
    assert "0 new" in capsys.readouterr().out


def test_fork_continues_with_another_flow_and_does_so_again_later(typed):
    assert "tools continues from turn 2" in typed("How wide?", "/fork 2 tools", "How deep?", "/quit")
    assert "Continuing your chat with tools (" in typed("/quit", flow="tools")


@pytest.mark.parametrize(
    ("line", "text"),
    [
        ("/fork", "1  How wide?"),
        ("/fork 0", "turn 0: turns are counted from 1"),
        ("/fork x", "name the first"),
        ("/fork 7", "1"),
    ],
)
def test_fork_without_a_turn_is_one_line_and_the_chat_continues(typed, line, text):
    screen = typed("How wide?", line, "How high?", "/quit")
    assert text in screen and "reply 1" in screen


def test_chat_log_has_decisions_and_searches(typed):
    typed("How wide is the goal?", "Thanks!", "/quit")
    log = Path("kept/chat.log").read_text()
    assert "rag_only/chat turn 1: " in log and "search" in log.lower() and "goal" in log
    assert "turn 2: " in log and "Thanks" not in log.partition("turn 2")[0]


def test_chat_log_has_model_calls_writes_to_memory_citations_and_a_failed_turn(tmp_path, own_home):
    model = Scripted(["7.32 m [1]", "Noted.", '{"facts": ["Ann lives in Ulm"]}', RuntimeError("the server fell over")])
    flows = [{"flow": "coordinator", "consolidate_every": 1}, "rag_only"]
    with al.Lab(model=model, embedder="hashing/hashing-64", memory="sqlite", flows=flows) as lab:
        document = al.Document(doc_id="goal", title="The goal", text="A goal is 7.32 m wide.")
        with run_log("chat.log", logging.INFO) as write_to:
            write_to(tmp_path)
            lab.chat("rag_only", documents=[document]).say_sync("How wide is a goal?")
            chat = lab.chat("coordinator", documents=())
            chat.say_sync("I live in Ulm.")
            chat.receipts_sync(wait_s=30)
            with pytest.raises(RuntimeError):
                chat.say_sync("And now?")
    log = (tmp_path / "chat.log").read_text()
    assert "rag_only/chat turn 1: cites The goal" in log
    assert "coordinator/chat turn 1: cites" not in log and '"Noted."' in log
    assert "remember" in log and "Ann lives in Ulm" in log and "consolidate" in log
    assert "coordinator/chat turn 2: RuntimeError: the server fell over" in log


def test_run_log_has_decisions(tmp_path):
    folder = tmp_path / "set"
    folder.mkdir()
    (folder / "conversations.jsonl").write_text(json.dumps({"id": "c1", "turns": [{"user": "Thanks!"}]}))
    (folder / "corpus.jsonl").write_text(json.dumps({"doc_id": "goal", "title": "Goal", "text": "7.32 m"}))
    flow = {"model": Scripted(["a"], loop=True), "embedder": "hashing/hashing-64", "flows": ["rag_only"]}
    with al.Lab(**flow, datasets=[str(folder)]) as lab:
        lab.run_sync(out=tmp_path / "run")
    assert "rag_only/c1 turn 1: " in (tmp_path / "run" / "run.log").read_text()
