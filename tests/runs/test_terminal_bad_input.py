"""`agentlab chat` of every flow, with a model and a memory that misbehave: a line, and the next turn is answered."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentlab.core import plugins
from support.fake_openai import in_a_thread, text

FLOWS = sorted(plugins.names("flows"))
CALLING = ["chatbox", "coordinator", "discord", "tools", "tools_rag_fallback"]


@pytest.mark.parametrize("flow", FLOWS)
def test_a_model_that_answers_nonsense_and_messages_of_all_sizes(typed, flow):
    nonsense = ["}{ ]] <|x|>", "", "null", '{"tool": 7, "chat": [], "steps": "x"}', "half a \\ud83d pair"]
    screen = typed(flow, ["Hello", "", "x" * 1_000_000, "How are you?", "/trace"], nonsense)
    assert screen.count(" model call") + screen.count("is longer than") >= 2
    assert max(map(len, screen.splitlines())) < 1_000


@pytest.mark.parametrize("flow", CALLING)
def test_endless_tool_calls_end(typed, flow):
    always = {"tool_calls": [{"name": "get_current_time", "arguments": {}}]}
    screen = typed(flow, ["Hello", "Again"], [always])
    assert screen.count(" model calls") == 2


@pytest.mark.parametrize("flow", FLOWS)
def test_broken_stream_is_one_line_and_the_next_turn_is_answered(typed, flow, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "k")

    def answer(body):
        broken = any("Break off" in str(message) for message in body["messages"][-2:])
        return {"deltas": [{"content": "The goal"}], "drop": True} if broken else text("All is well.")

    with in_a_thread(answer) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        screen = typed(flow, ["Break off, please", "/reset", "Hello"], [], "--model", "openai/some")
    assert "All is well." in screen
    assert "openai/some: the connection broke: Response payload is not completed" in screen.splitlines()


@pytest.mark.parametrize("flow", ["chatbox", "coordinator", "ego"])
def test_a_damaged_memory_is_a_line_and_the_chat_can_be_had_elsewhere(typed, flow):
    folder = Path("kept")
    typed(flow, ["I live in Bern with my dog."], ["Fine."])
    for file in [file for file in folder.iterdir() if file.is_file() and file.suffix != ".log"]:
        file.write_bytes(b"\x00\xff damaged" * 100)
    screen = typed(flow, ["Where do I live?", "And now?"], ["Fine."])
    assert "Fine." in screen or "memory" in screen
    assert "Fine." in typed(flow, ["Hello"], ["Fine."], "--memory", "elsewhere")
