"""Bad input in a conversation ends in one line or a counted failure, and the chat continues, in every flow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core import plugins
from agentlab.core.errors import ConfigError, ModelError, ServerFault
from agentlab.core.messages import Completion, Message, Reply, Usage
from agentlab.models.scripted import Scripted, call

FLOWS = sorted(plugins.names("flows"))
CALLING = ["chatbox", "coordinator", "discord", "tools", "tools_rag_fallback"]
"""Flows that a model could make call tools without end."""


def lab(model: Any, *flows: Any, **spec: Any) -> al.Lab:
    spec = {"embedder": "hashing/hashing-64", "memory": "sqlite", **spec}
    return al.Lab(model=model, flows=list(flows), **spec)


def chat_of(opened: al.Lab, folder: Path) -> Any:
    return opened.chat(documents=(), memory=folder)


class Stopping:
    """Says a few words, and cancels in mid-stream until it is repaired."""

    name = "stopping"
    parallel = None

    def __init__(self) -> None:
        self.broken = True

    async def complete(self, request: Any, emit: Any) -> Completion:
        emit("The goal is ")
        if self.broken:
            raise ServerFault("the connection broke in mid-stream", self.name)
        emit("wide.")
        message = Message(role="agent", text="The goal is wide.")
        return Completion(message=message, usage=Usage(input_tokens=1, output_tokens=1), model=self.name)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("flow", CALLING)
def test_endless_tool_calls_end(tmp_path, own_home, flow):
    always = call("get_current_time")
    with lab(Scripted([always], loop=True), flow) as opened:
        chat = chat_of(opened, tmp_path)
        for text in ("Hello", "Again"):
            assert isinstance(chat.say_sync(text), Reply)
        calls = sum(event.kind == "model_call" for event in chat.trace.events)
        assert calls < 40


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("nonsense", ["}{ ]] <|x|>", "", "null", "[1, 2", '{"tool": 7, "chat": [], "steps": "x"}'])
def test_a_model_that_answers_nonsense_is_answered_or_counted(tmp_path, own_home, flow, nonsense):
    with lab(Scripted([nonsense], loop=True), flow) as opened:
        chat = chat_of(opened, tmp_path)
        for text in ("Hello", "Again"):
            try:
                assert isinstance(chat.say_sync(text), Reply)
            except al.AgentlabError as error:
                assert "\n" not in str(error)
        assert len(chat.trace.turns()) == 2


@pytest.mark.parametrize("flow", [name for name in FLOWS if name != "ego"])
def test_broken_stream_fails_the_turn_and_the_next_one_is_answered(tmp_path, own_home, flow, monkeypatch):
    monkeypatch.setattr("agentlab.wire.retries.BACKOFF_SECONDS", 0.0)
    model = Stopping()
    with lab(model, flow) as opened:
        chat = chat_of(opened, tmp_path)
        with pytest.raises(ModelError, match="broke in mid-stream"):
            chat.say_sync("How wide?")
        model.broken = False
        assert "wide" in chat.say_sync("And now?").text


@pytest.mark.parametrize("flow", FLOWS)
@pytest.mark.parametrize("text", ["", " \n", "x" * 1_000_000], ids=["empty", "blank", "a megabyte"])
def test_chat_continues_after_an_odd_message(tmp_path, own_home, flow, text):
    with lab(Scripted(["fine"], loop=True), flow) as opened:
        chat = chat_of(opened, tmp_path)
        for message in (text, "Hello"):
            try:
                assert isinstance(chat.say_sync(message), Reply)
            except al.AgentlabError as error:
                assert len(str(error)) < 1000 and message == text
        assert len(chat.trace.turns()) == 2


@pytest.mark.parametrize("backend", ["sqlite", "textfile", "chroma"])
def test_a_memory_folder_of_another_embedder_is_one_line(tmp_path, own_home, backend):
    with lab(Scripted(["fine"], loop=True), "coordinator", memory=backend) as opened:
        chat_of(opened, tmp_path).say_sync("I live in Bern.")
    other = lab(Scripted(["fine"], loop=True), "coordinator", memory=backend, embedder="hashing/hashing-128")
    with other, pytest.raises(ConfigError, match="use the same embedder or another folder"):
        chat_of(other, tmp_path).say_sync("Where do I live?")


@pytest.mark.parametrize(("first", "then"), [("sqlite", "textfile"), ("textfile", "chroma"), ("chroma", "sqlite")])
def test_another_backend_starts_its_own_memory_in_the_same_folder(tmp_path, own_home, first, then):
    for backend, stored in ((first, 1), (then, 1), (first, 2)):
        with lab(Scripted(["fine"], loop=True), "coordinator", memory=backend) as opened:
            chat = chat_of(opened, tmp_path)
            chat.say_sync("I live in Bern with my dog.")
            assert len(chat.facts_sync()) == stored


def test_two_chats_on_one_folder_both_remember(tmp_path, own_home):
    with (
        lab(Scripted(["fine"], loop=True), "coordinator") as one,
        lab(Scripted(["ok"], loop=True), "coordinator") as two,
    ):
        chats = [chat_of(opened, tmp_path) for opened in (one, two)]
        for number, chat in enumerate(chats):
            chat.say_sync(f"My sister number {number} lives in Bern.")
        # The last speaker comes first: the session waits for running memory writes.
        assert [len(chat.facts_sync()) for chat in reversed(chats)] == [2, 2]
