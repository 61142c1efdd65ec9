"""The three document flows against the calling sequences they rebuild: order of steps, messages, calls, fallback."""

from __future__ import annotations

from textwrap import dedent

import pytest

from agentlab.core.events import ModelCall, Notice
from agentlab.core.messages import Message, ToolCall, UserTurn
from agentlab.core.trace import Costs, Totals
from agentlab.flows import rag_only, tools, tools_rag_fallback
from agentlab.models.scripted import Scripted, call
from support.doubles import BALL, OFFSIDE, ListIndex, session_over

ASK = UserTurn(text="Is a player who is level offside?")
LOOKUP = call("lookup_documents", document_names=[], query="offside level")
ANSWER = "A player level with the second-last opponent is onside."


def counts(totals: Totals) -> tuple[int, int, int]:
    return totals.llm_calls, totals.embedding_calls, totals.tool_calls


def requests(session) -> list:
    return [event.request for event in session.trace.events if isinstance(event, ModelCall)]


async def test_rag_only_follows_its_diagram():
    session = session_over(rag_only, Scripted([ANSWER]), ListIndex(OFFSIDE, BALL))
    reply = await rag_only.respond(ASK, session)
    assert session.trace.steps(1, details=False) == dedent(
        """\
        ├─ load_conversation
        ├─ retrieve_documents
        │  ├─ documents available? yes
        │  ├─ should_use_retrieval? yes
        │  └─ retrieve_context
        │     ├─ embed
        │     └─ search
        ├─ format_context
        ├─ generate_response
        │  └─ complete (answer; no tools)
        ├─ append_citations
        ├─ send_and_persist
        │  ├─ notify reply
        │  ├─ save_message user
        │  └─ save_message agent
        └─ notify info"""
    )
    assert counts(session.trace.totals()) == (1, 1, 0)
    assert [c.doc_id for c in reply.citations] == ["law-11"]
    system, question = requests(session)[0].messages
    assert "lookup_documents" not in system.text
    assert OFFSIDE.text in question.text and ASK.text in question.text


async def test_tools_follows_its_diagram():
    session = session_over(tools, Scripted([LOOKUP, ANSWER]), ListIndex(OFFSIDE, BALL))
    reply = await tools.respond(ASK, session)
    assert session.trace.steps(1, details=False) == dedent(
        """\
        ├─ load_conversation
        ├─ generate_response_with_tools
        │  ├─ list_documents
        │  ├─ complete (select_tool; tools: lookup_documents)
        │  ├─ call_tool lookup_documents
        │  │  └─ retrieve_context
        │  │     ├─ embed
        │  │     └─ search
        │  └─ complete (answer; tools: lookup_documents)
        ├─ append_citations
        ├─ send_and_persist
        │  ├─ notify reply
        │  ├─ save_message user
        │  └─ save_message agent
        └─ notify info"""
    )
    assert counts(session.trace.totals()) == (2, 1, 1)
    assert reply.citations
    first, second = requests(session)
    assert [m.role for m in first.messages] == ["system", "user"]
    assert "lookup_documents" in first.messages[0].text and "Offside" in first.messages[0].text
    assert [m.role for m in second.messages] == ["system", "user", "agent", "tool"]
    assert second.messages[:2] == first.messages, "the second call only adds to the first"
    assert second.messages[2].tool_calls[0].id == second.messages[3].tool_call_id
    assert second.messages[3].text.startswith("Found 2 sections")
    assert second.tools == first.tools


async def test_fallback_follows_its_diagram():
    session = session_over(tools_rag_fallback, Scripted(["I think so.", ANSWER]), ListIndex(OFFSIDE, BALL))
    reply = await tools_rag_fallback.respond(ASK, session)
    assert session.trace.steps(1, details=False) == dedent(
        """\
        ├─ load_conversation
        ├─ generate_response_with_tools
        │  ├─ list_documents
        │  └─ complete (answer; tools: lookup_documents)
        ├─ fallback needed? yes
        ├─ retrieve_documents
        │  ├─ documents available? yes
        │  ├─ should_use_retrieval? yes
        │  └─ retrieve_context
        │     ├─ embed
        │     └─ search
        ├─ passages found? yes
        ├─ format_context
        ├─ generate_response
        │  └─ complete (fallback; no tools)
        ├─ append_citations
        ├─ send_and_persist
        │  ├─ notify reply
        │  ├─ save_message user
        │  └─ save_message agent
        └─ notify info"""
    )
    assert counts(session.trace.totals()) == (2, 1, 0)
    assert reply.text == ANSWER
    first, second = requests(session)
    assert OFFSIDE.text not in str(first.messages), "the first attempt has no passages"
    assert second.tools == () and "lookup_documents" not in second.messages[0].text
    assert OFFSIDE.text in second.messages[-1].text


@pytest.mark.parametrize(
    "flow, replies, expected",
    [
        (rag_only, [ANSWER], (1, 1, 0)),
        (tools, [LOOKUP, ANSWER], (2, 2, 1)),
        (tools_rag_fallback, ["no look-up", ANSWER], (2, 2, 0)),
    ],
)
async def test_initial_context_costs_the_tool_flows_one_more_embedding(flow, replies, expected):
    settings = {} if flow is rag_only else {"initial_context": True}
    session = session_over(flow, Scripted(replies), ListIndex(OFFSIDE), **settings)
    await flow.respond(ASK, session)
    assert counts(session.trace.totals()) == expected
    assert OFFSIDE.text in str(requests(session)[0].messages)


async def test_first_reply_stays_if_no_tool_is_called():
    session = session_over(tools, Scripted(["You're welcome!"]), ListIndex(OFFSIDE))
    reply = await tools.respond(UserTurn(text="Thanks!"), session)
    assert (reply.text, reply.citations) == ("You're welcome!", ())
    assert counts(session.trace.totals()) == (1, 0, 0)


async def test_no_fallback_after_a_look_up():
    session = session_over(tools_rag_fallback, Scripted([LOOKUP, ANSWER]), ListIndex(OFFSIDE))
    await tools_rag_fallback.respond(ASK, session)
    assert counts(session.trace.totals()) == (2, 1, 1)
    assert "fallback needed? no" in session.trace.steps(1)


@pytest.mark.parametrize(
    "rejected",
    [
        call("lookup_documents", document_names=["no such document"], query="offside"),
        call("lookup_documents", document_names=[], query="  "),
        call("lookup_documents", document_names="Offside", query="offside"),
    ],
)
async def test_a_rejected_look_up_counts_as_called_and_is_explained_to_the_model(rejected):
    session = session_over(tools_rag_fallback, Scripted([rejected, "The documents do not say."]), ListIndex(OFFSIDE))
    await tools_rag_fallback.respond(ASK, session)
    assert counts(session.trace.totals()) == (2, 0, 1)
    assert requests(session)[1].messages[-1].text.startswith("Error: ")
    assert "fallback needed? no" in session.trace.steps(1)


async def test_first_reply_stays_without_passages():
    session = session_over(tools_rag_fallback, Scripted(["First reply."]), ListIndex())
    reply = await tools_rag_fallback.respond(ASK, session)
    assert reply.text == "First reply."
    assert session.trace.totals().llm_calls == 1


async def test_a_turn_without_words_is_not_searched():
    session = session_over(rag_only, Scripted(["?"]), ListIndex(OFFSIDE))
    await rag_only.respond(UserTurn(text="?!"), session)
    assert counts(session.trace.totals()) == (1, 0, 0)
    assert "should_use_retrieval? no" in session.trace.steps(1)


async def test_several_calls_in_one_reply_are_all_answered_in_order():
    both = Message(
        role="agent",
        tool_calls=(
            ToolCall(id="a", name="lookup_documents", arguments={"document_names": ["offside"], "query": "level"}),
            ToolCall(id="b", name="lookup_documents", arguments={"document_names": ["law-2"], "query": "weight"}),
        ),
    )
    session = session_over(tools, Scripted([both, ANSWER]), ListIndex(OFFSIDE, BALL))
    await tools.respond(ASK, session)
    assert counts(session.trace.totals()) == (2, 2, 2)
    results = requests(session)[1].messages[-2:]
    assert [m.tool_call_id for m in results] == ["a", "b"]
    assert "[1]" in results[0].text and OFFSIDE.text in results[0].text
    assert "[2]" in results[1].text and BALL.text in results[1].text, "passages are numbered through over a turn"


async def test_the_loop_ends_at_its_limit_with_an_answer():
    session = session_over(tools, Scripted([LOOKUP, LOOKUP, "Finally."]), ListIndex(OFFSIDE), max_rounds=2)
    reply = await tools.respond(ASK, session)
    assert reply.text == "Finally."
    assert [r.tool_choice for r in requests(session)] == ["auto", "auto", "none"]
    assert "tool limit reached? yes" in session.trace.steps(1)


async def test_a_call_of_an_unknown_tool_is_answered_with_what_there_is():
    session = session_over(tools, Scripted([call("delete_everything"), "Sorry."]), ListIndex(OFFSIDE))
    await tools.respond(ASK, session)
    assert "lookup_documents" in requests(session)[1].messages[-1].text


async def test_next_turn_sees_the_stored_chain_and_the_user_is_notified():
    session = session_over(rag_only, Scripted([ANSWER, "Yes."]), ListIndex(OFFSIDE))
    await rag_only.respond(ASK, session)
    session.begin_turn(1)
    await rag_only.respond(UserTurn(text="Are you sure?"), session)
    roles = [(m.role, m.text) for m in requests(session)[1].messages[1:-1]]
    assert roles == [("user", ASK.text), ("agent", ANSWER)]
    notices = [e.text for e in session.trace.events if isinstance(e, Notice) and e.name == "reply"]
    assert "law-11#0" in notices[0] and notices[0].startswith(ANSWER)


async def test_a_new_part_of_a_conversation_forgets_the_chain():
    session = session_over(rag_only, Scripted([ANSWER, "Hello."]), ListIndex(OFFSIDE))
    await rag_only.respond(ASK, session)
    session.begin_turn(1)
    session.forget_history()
    await rag_only.respond(UserTurn(text="Hello"), session)
    assert len(requests(session)[1].messages) == 2


async def test_a_rewritten_query_is_one_more_call_in_a_phase_of_its_own():
    session = session_over(
        rag_only, Scripted([ANSWER, "weight of the ball", "450 grams."]), ListIndex(BALL), rewrite_query=True
    )
    await rag_only.respond(ASK, session)
    session.begin_turn(1)
    await rag_only.respond(UserTurn(text="And how heavy is it?"), session)
    assert session.index.embedder.received == [ASK.text, "weight of the ball"]
    assert [counts(session.trace.totals(turn)) for turn in (1, 2)] == [(1, 1, 0), (2, 1, 0)]
    assert list(Costs.of(session.trace.at(1)).phases) == ["rewrite", "retrieve", "answer"]
    assert requests(session)[-1].messages[-1].text.endswith("And how heavy is it?")
