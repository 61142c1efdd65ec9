"""The stream of a turn: only the reply is reply text, steps begin before they end, and each item knows its turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import agentlab as al
from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import Message, Reply, UserTurn
from agentlab.core.stream import (
    Done,
    NoticeItem,
    ReplyRetracted,
    ReplyText,
    StepEnded,
    StepStarted,
    StreamItem,
    ToolProgress,
    TurnStarted,
)
from agentlab.data.documents import Document
from agentlab.models.scripted import Scripted, call
from support.layered_agent import USUAL, purpose
from support.widgets import until

DOCUMENTS = [Document(doc_id="goal", title="Goal", text="The goal is 7.32 m wide.")]


class Reader:
    """Reader of a stream; `seen` holds every text that the reply area ever showed."""

    def __init__(self) -> None:
        self.items: list[StreamItem] = []
        self.texts: dict[int, str] = {}
        self.seen: list[str] = []

    def __call__(self, item: StreamItem) -> None:
        self.items.append(item)
        match item:
            case ReplyText():
                self.texts[item.turn] = self.texts.get(item.turn, "") + item.text
            case ReplyRetracted():
                self.texts[item.turn] = ""
            case Done(reply=Reply()):
                self.texts[item.turn] = item.reply.text
        self.seen.append(self.texts.get(item.turn, ""))

    def of(self, kind: type) -> list[Any]:
        return [item for item in self.items if isinstance(item, kind)]


@pytest.fixture
def watched(own_home):
    """Opens a lab and a chat over a model, and the reader that watches it."""
    labs = []

    def open_chat(flow: Any, replies: list[Any], **given: Any):
        labs.append(al.Lab(flows=[flow], model=Scripted(replies, loop=True), embedder="hashing/hashing-64"))
        reader = Reader()
        return labs[-1].chat(on_event=reader, **{"documents": DOCUMENTS, **given}), reader

    yield open_chat
    for lab in labs:
        lab.close()


def test_a_turn_is_a_beginning_steps_its_reply_and_an_end(watched):
    chat, reader = watched("rag_only", ["It is 7.32 m wide."])
    reply = chat.say_sync("How wide is the goal?")
    assert isinstance(reader.items[0], TurnStarted) and reader.items[0].message.text == "How wide is the goal?"
    assert reader.items[-1] == Done(0, reply)
    assert "".join(item.text for item in reader.of(ReplyText)) == reply.text
    started = [item.event.id for item in reader.of(StepStarted)]
    ended = {item.event.id: item.event for item in reader.of(StepEnded)}
    assert set(started) <= set(ended) and any(isinstance(event, ModelCall) for event in ended.values())
    assert list(ended.values()) == [event for event in chat.trace.events if event.kind != "notice"]
    for item in reader.of(StepEnded):
        later = reader.items[reader.items.index(item) :]
        assert not any(isinstance(i, StepStarted) and i.event.id == item.event.id for i in later)


def test_text_before_a_tool_call_is_taken_back(watched):
    lookup = call("lookup_documents", document_names=[], query="goal width")
    thinking = Message(role="agent", text="Let me look it up.", tool_calls=lookup.tool_calls)
    chat, reader = watched("tools", [thinking, "7.32 m [1]."])
    chat.say_sync("How wide?")
    assert "Let me look it up." in reader.seen and reader.of(ReplyRetracted)
    assert reader.texts[0] == "7.32 m [1]." and not any("look it up.7" in text for text in reader.seen)


def test_discarded_first_attempt_is_never_streamed(watched):
    chat, reader = watched("tools_rag_fallback", ["I think 5 m.", "7.32 m [1]."])
    chat.say_sync("How wide is the goal?")
    assert not any("I think" in text for text in reader.seen) and reader.texts[0].startswith("7.32 m")


def test_ego_streams_only_chat_and_canvas(watched):
    chat, reader = watched("ego", [lambda request: USUAL[purpose(request)]], documents=())
    chat.say_sync("What is an oboe?")
    chat.say_sync("And again?")
    whole = "It is a woodwind.\n\n# Oboe"
    assert set(reader.seen) <= {"", "It is a woodwind.", whole} and reader.texts == {0: whole, 1: whole}
    after = reader.items[reader.items.index(reader.of(Done)[0]) :]
    assert any(isinstance(i, StepEnded) and i.turn == 0 and i.event.background for i in after)


def test_coordinator_streams_no_background_work(watched, tmp_path):
    def answer(request):
        return '{"keep": true, "text": "x"}' if request.output_schema else "Nice to meet you, Anna."

    flow = {"flow": "coordinator", "gate": "model"}
    chat, reader = watched(flow, [answer], documents=(), memory=tmp_path / "memory")
    chat.say_sync("My name is Anna and I live in Bern.")
    chat.facts_sync()
    assert any(item.event.background for item in reader.of(StepEnded)), "the flow works on after its reply"
    assert set(reader.seen) == {"", "Nice to meet you, Anna."}


def test_a_listener_gets_notices_by_name_until_it_ends(watched):
    chat, reader = watched("ego", [lambda request: USUAL[purpose(request)]], documents=())
    texts: list[StreamItem] = []
    end = chat.stream.on("assistantResponse", texts.append)
    chat.say_sync("What is an oboe?")
    assert [(i.event.name, i.event.text, i.turn) for i in texts] == [("assistantResponse", "It is a woodwind.", 0)]
    end()
    chat.say_sync("Again?")
    assert len(texts) == 1
    names = {item.event.name for item in reader.of(NoticeItem)}
    assert {"systemStatusMessage", "debugResponse", "subsystemMessage", "bubble", "assistantResponse"} <= names


def test_a_listener_that_fails_does_not_fail_the_turn(watched, caplog):
    chat, _ = watched("rag_only", ["Fine."])
    chat.stream.on("reply_text", lambda item: 1 / 0)
    assert chat.say_sync("How wide?").text == "Fine."
    assert "a listener to 'reply_text' failed" in caplog.text


def test_text_of_a_failed_attempt_is_retracted(own_home):
    class Breaks:
        name, parallel = "breaks", None
        received = 0

        async def complete(self, request, emit):
            self.received += 1
            emit("One two")
            if self.received == 1:
                raise al.core.errors.ServerFault("broken off", "breaks")
            return al.core.messages.Completion(message=Message(role="agent", text="One two"))

        async def close(self):
            pass

    reader = Reader()
    with al.Lab(flows=["rag_only"], model=Breaks(), embedder="hashing/hashing-64") as lab:
        lab.chat(documents=DOCUMENTS, on_event=reader).say_sync("How wide?")
    assert "One twoOne two" not in reader.seen and reader.texts[0] == "One two"


def test_a_turn_that_fails_or_is_stopped_ends_too(watched):
    chat, reader = watched("rag_only", [ValueError("no"), "Fine."])
    with pytest.raises(ValueError):
        chat.say_sync("How wide?")
    assert reader.of(Done) == [Done(0, None, "ValueError: no")]


async def test_tools_report_while_they_work(own_home):
    done = asyncio.Event()

    class Slow:
        spec = al.core.messages.ToolSpec(name="slow", description="works", parameters={"type": "object"})

        async def run(self, arguments: dict[str, Any], context: Any) -> str:
            context.report("slow", "half")
            await done.wait()
            return "finished"

    async def flow(turn: UserTurn, session: Any) -> Reply:
        session.tools["slow"] = Slow()
        message = await session.call_tool(call("slow").tool_calls[0])
        return Reply(text=message.text)

    reader = Reader()
    with al.Lab(flows=[flow], model=Scripted(["x"]), embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=(), on_event=reader)
        saying = asyncio.create_task(chat.say("Work"))
        await until(lambda: bool(reader.of(ToolProgress)))
        assert not saying.done() and reader.of(ToolProgress) == [ToolProgress(0, "slow", "half")]
        lab.loop.submit(_set(done)).result()
        assert (await saying).text == "finished"


async def _set(event: asyncio.Event) -> None:
    event.set()


def test_an_event_at_its_beginning_has_its_title(watched):
    chat, reader = watched("rag_only", ["Fine."])
    chat.say_sync("How wide is the goal?")
    titles = [item.event.title for item in reader.of(StepStarted)]
    assert all(isinstance(item.event, Event) for item in reader.of(StepStarted))
    assert titles[0] == "load_conversation" and "complete (answer; no tools)" in titles
