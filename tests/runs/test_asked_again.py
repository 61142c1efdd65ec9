"""A chat always calls the model, and a refused call is repeated wherever that is possible."""

from __future__ import annotations

import pytest

import agentlab as al
from agentlab.core.errors import BadRequest
from agentlab.models.scripted import Scripted
from support.replays import play, replay, replay_invariants

FAILURE = {"error": "BadRequest"}


def replayed(folder: str) -> list[str]:
    """The replies of a saved chat, from its recordings alone."""
    with al.Lab(f"{folder}/spec.yaml", model=Scripted([])) as lab:
        run = lab.run_sync(out=f"{folder}-again")
    assert run.result.recordings.missing == 0
    return [*run.turns["reply"]]


def test_equal_messages_in_three_chats_have_three_replies_that_replay(typed):
    warm = ("--set", "generation.temperature=.9")
    for number, reply in enumerate(["Ping.", "Pong.", "Bong."]):
        screen = typed("rag_only", ["/reset", "Say a word.", f"/save s{number}"], [reply], *warm)
        assert reply in screen
    assert [replayed(f"s{number}") for number in range(3)] == [["Ping."], ["Pong."], ["Bong."]]


def test_conversation_over_several_chats_replays_with_its_own_replies(typed):
    for reply in ("Ping.", "Pong."):
        typed("rag_only", ["Say a word."], [reply])
    screen = typed("rag_only", ["Say a word.", "/save all"], ["Bong."])
    assert "Bong." in screen
    assert replayed("all") == ["Ping.", "Pong.", "Bong."]


def test_two_flows_of_one_chat_that_ask_the_same_replay_each_its_own(typed):
    lines = ["Say a word.", "/save one", "/flow tools_rag_fallback", "Say a word.", "/save two", "/flow rag_only"]
    typed("rag_only", [*lines, "/save three"], ["Ping.", "Pong."], loop=False)
    assert [replayed(name) for name in ("one", "two", "three")] == [["Ping."], ["Pong."], ["Ping."]]


def test_refused_call_is_retried_in_the_chat_and_saved_as_answered(typed):
    screen = typed("rag_only", ["Hello", "Hello", "Hello", "/save mended"], [FAILURE, "Hi.", "Hi again."], loop=False)
    assert [line for line in screen.splitlines() if line.startswith("Hi")] == ["Hi.", "Hi again."]
    assert replayed("mended") == ["Hi.", "Hi again."]


def test_refused_call_is_retried_in_the_next_process(typed):
    typed("rag_only", ["Hello"], [FAILURE])
    assert "Hi." in typed("rag_only", ["Hello", "/save mended"], ["Hi."]).splitlines()
    assert replayed("mended") == ["Hi."]


@pytest.mark.parametrize("flow", ["rag_only", "tools"])
def test_auto_asks_again_what_was_refused_and_keeps_the_answer(dataset, tmp_path, flow):
    refusing = Scripted([BadRequest("model not found", "scripted")], loop=True)
    refused = play(dataset, "record", tmp_path / "a", model=refusing, flows=[flow])
    assert replay_invariants(replay(dataset, tmp_path / "b", flows=[flow])) == replay_invariants(refused)
    mended = play(dataset, "auto", tmp_path / "c", model=Scripted(["Yes."], loop=True), flows=[flow])
    assert mended.summary["flows"][flow]["errors"] == 0
    again = play(dataset, "auto", tmp_path / "d", model=Scripted([]), flows=[flow])
    assert replay_invariants(again) == replay_invariants(mended), "an answer is not asked again"
    assert replay_invariants(replay(dataset, tmp_path / "e", flows=[flow])) == replay_invariants(mended)


def test_second_refusal_replaces_the_recorded_one(dataset, tmp_path):
    for words in ("too long", "no such model"):
        model = Scripted([BadRequest(words, "scripted")], loop=True)
        run = play(dataset, "auto", tmp_path / words, model=model, flows=["rag_only"])
    replayed = replay(dataset, tmp_path / "b", flows=["rag_only"])
    assert replay_invariants(replayed) == replay_invariants(run)
    assert "no such model" in replayed.turns["error"][0]
