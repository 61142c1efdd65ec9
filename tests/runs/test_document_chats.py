"""The document flows in a chat: their searches, the stored tool results, and the text for the user."""

from __future__ import annotations

from typing import Any

import pytest

import agentlab as al
from agentlab.core.events import Decision, Search
from agentlab.core.messages import Message, ToolCall, ToolSpec
from agentlab.data.documents import Document
from agentlab.models.scripted import Scripted, call

DOCUMENTS = [
    Document(doc_id="law-01", title="Law 1: The field of play", text="A goal is 7.32 m wide."),
    Document(doc_id="law-11", title="Law 11: Offside", text="A player is offside behind the last defender."),
    Document(doc_id="law-12", title="Law 12: Fouls", text="A foul is punished by a free kick."),
]


class Booking:
    spec = ToolSpec(name="book", description="Books.", parameters={"type": "object", "properties": {}})

    def run(self, arguments: dict[str, Any], context: Any) -> str:
        return "Booked: number 17."


@pytest.fixture
def opened(own_home):
    labs = []

    def open_chat(flow: Any, *replies: Any) -> tuple[al.lab.chat.Chat, Scripted]:
        model = Scripted(replies)
        labs.append(al.Lab(flows=[flow], model=model, embedder="hashing/hashing-64", retrieval__method="bm25"))
        return labs[-1].chat(documents=DOCUMENTS), model

    yield open_chat
    for lab in labs:
        lab.close()


def decisions(chat: Any) -> dict[str, Any]:
    return {event.name: event.choice for event in chat.trace.events if isinstance(event, Decision)}


def searches(chat: Any) -> list[Search]:
    return [event for event in chat.trace.events if isinstance(event, Search)]


def test_tool_results_are_never_discarded(own_home):
    model = Scripted([call("book"), "You are booked, number 17.", "The documents do not say."])
    with al.Lab(flows=["tools_rag_fallback"], model=model, embedder="hashing/hashing-64") as lab:
        chat = lab.chat(documents=DOCUMENTS)
        lab.loop.run_coroutine(_with_tool(chat))
        assert chat.say_sync("Book the field of play, please.").text == "You are booked, number 17."
        assert decisions(chat)["fallback needed"] is False


async def _with_tool(chat: Any) -> None:
    driver = await chat._open_driver()
    driver.session.tools["book"] = Booking()


@pytest.mark.parametrize("flow", ["rag_only", "tools_rag_fallback"])
def test_thanks_are_not_looked_up(opened, flow):
    chat, _ = opened(flow, "You are welcome.")
    assert chat.say_sync("Thanks!").text == "You are welcome."
    assert decisions(chat)["should_use_retrieval"] is False and not searches(chat)


def test_what_answers_a_question_of_the_assistant_is_looked_up(opened):
    chat, _ = opened("rag_only", "Law 11 or law 12?", "Here it is.", "You are welcome.")
    for text, is_searched in (("Which law is it?", True), ("ok, sure", True), ("ok, thanks", False)):
        chat.say_sync(text)
        assert decisions(chat)["should_use_retrieval"] is is_searched


def test_older_recordings_decide_by_words(opened):
    text = "I would like the first one, thanks."
    for decision, is_searched in (("words", False), ("rules", True)):
        chat, _ = opened({"flow": "rag_only", "retrieval_decision": decision}, "Fine.")
        chat.say_sync(text)
        assert decisions(chat)["should_use_retrieval"] is is_searched


@pytest.mark.parametrize("flow", ["rag_only", "tools_rag_fallback"])
def test_an_old_marker_never_names_new_passages(opened, flow):
    chat, model = opened(flow, "7.32 m [1].", "7.32 m [1].", "As I said.", "As I said.")
    chat.say_sync("How wide is a goal?")
    chat.say_sync("What is offside?")
    replies = [message.text for message in model.requests[-1].messages if message.role == "agent"]
    assert replies[0] == "7.32 m (Law 1: The field of play)."
    keeping, model = opened({"flow": flow, "markers_in_history": True}, "7.32 m [1].", "7.32 m [1].", "Yes.", "Yes.")
    keeping.say_sync("How wide is a goal?")
    keeping.say_sync("What is offside?")
    assert "7.32 m [1]." in [message.text for message in model.requests[-1].messages]


def test_the_decision_and_the_search_itself_can_be_switched_off(opened):
    always, _ = opened({"flow": "rag_only", "retrieval_decision": "always"}, "Welcome.")
    always.say_sync("Thanks!")
    assert len(searches(always)) == 1
    never, _ = opened({"flow": "rag_only", "rag_retrieval": False}, "Fine.")
    never.say_sync("How wide is a goal?")
    assert decisions(never)["documents available"] is False and not searches(never)


def test_the_reply_that_is_shown_carries_its_sources_and_no_marker_dangles(opened):
    chat, _ = opened("rag_only", "It is 7.32 m wide [1], they say [7].")
    reply = chat.say_sync("How wide is a goal?")
    assert reply.display_text == (
        "It is 7.32 m wide [1], they say.\n\nSource [1]: Law 1: The field of play (document law-01, passage law-01#0)"
    )


@pytest.mark.parametrize(
    ("arguments", "doc_ids"),
    [
        ({"query": "goal foul offside", "document_names": ["offside"]}, {"law-11"}),
        ({"query": "goal foul offside", "document_names": ["Law 12"]}, {"law-12"}),
        ({"query": "goal foul offside"}, {"law-01", "law-11", "law-12"}),
        ({"query": "goal foul offside", "document_names": None}, {"law-01", "law-11", "law-12"}),
        ({"query": "goal foul offside", "document_names": ["law"]}, set()),
    ],
)
def test_a_look_up_takes_part_of_a_title_and_no_list_as_everything(opened, arguments, doc_ids):
    message = Message(role="agent", tool_calls=(ToolCall(id="c", name="lookup_documents", arguments=arguments),))
    chat, _ = opened("tools", message, "Fine.")
    chat.say_sync("What about goals, fouls and offside?")
    assert {passage.doc_id for search in searches(chat) for passage in search.passages} == doc_ids


def test_a_malformed_look_up_lets_the_fallback_search(opened):
    malformed = Message(
        role="agent", tool_calls=(ToolCall(id="c", name="lookup_documents", arguments={}, malformed='{"query": '),)
    )
    chat, _ = opened("tools_rag_fallback", malformed, "No idea.", "7.32 m.")
    assert chat.say_sync("How wide is a goal?").text == "7.32 m."
    assert decisions(chat)["fallback needed"] is True
    rejected = Message(role="agent", tool_calls=(ToolCall(id="c", name="lookup_documents", arguments={"query": 7}),))
    chat, _ = opened("tools_rag_fallback", rejected, "No idea.", "7.32 m.")
    assert chat.say_sync("How wide is a goal?").text == "No idea."
