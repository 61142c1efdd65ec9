"""Errors name replies that their token limit cut off; tool arguments have a limit of their own."""

from __future__ import annotations

import pytest

from agentlab.core.events import Decision, ToolRun
from agentlab.core.messages import Completion, Message, ToolCall, Usage
from agentlab.flows import chatbox
from support.two_step import ANN, NONE, Tool, choose, decided, setup


def stopped(text: str, reason: str) -> Completion:
    message = Message(role="agent", text=text)
    return Completion(message=message, usage=Usage(output_tokens=12), model="scripted", finish_reason=reason)


@pytest.mark.parametrize(("reason", "named"), [("length", True), ("stop", False)])
async def test_arguments_that_were_cut_off_are_called_that(reason, named):
    write = Tool("write_file", "Written.")
    replies = [choose("write_file"), stopped('{"content": "a long', reason), NONE, "Done."]
    session, model = setup(chatbox, replies, write)
    await chatbox.respond(ANN, session)
    message = model.requests[-1].messages[-1].text
    assert message.startswith("Tool write_file failed.") and write.received == []
    assert ("the reply was cut off after 12 tokens" in message) == named


@pytest.mark.parametrize(("reason", "stored"), [("length", 1_100), ("stop", 5_000)])
async def test_arguments_without_end_do_not_fill_every_prompt_to_come(reason, stored):
    text = '{"content": "' + "a" * 5_000 + ("" if reason == "length" else '"}')
    write = Tool("write_file", "Written.")
    session, model = setup(chatbox, [choose("write_file"), stopped(text, reason), NONE, "Done."], write)
    await chatbox.respond(ANN, session)
    message = model.requests[-1].messages[-1].text
    assert (message.count("a") >= stored) == (reason == "stop"), "what was written to a file is kept whole"


async def test_a_choice_that_was_cut_off_is_called_that():
    session, _ = setup(chatbox, [stopped('{"tool": "wri', "length"), "Done."], Tool("write_file"))
    await chatbox.respond(ANN, session)
    [why] = [e.why for e in session.trace.events if isinstance(e, Decision) and e.name == "next action"]
    assert why.startswith("the reply was cut off after 12 tokens") and decided(session)[0][1] == "invalid"


async def test_arguments_have_a_limit_of_their_own():
    replies = [choose("write_file"), '{"content": "x"}', NONE, "Done."]
    session, model = setup(chatbox, replies, Tool("write_file", "Written."), max_argument_tokens=2000)
    await chatbox.respond(ANN, session)
    first, *_ = limits = [request.max_tokens for request in model.requests]
    assert limits == [first, 2000, first, first] and first != 2000


@pytest.mark.parametrize(("result", "text"), [("text", "ran"), (RuntimeError("disk gone"), "failed")])
async def test_history_reports_a_failed_tool(result, text):
    replies = [choose("read_file"), "{}", *([NONE] if text == "ran" else []), "Done."]
    session, model = setup(chatbox, replies, Tool("read_file", result))
    await chatbox.respond(ANN, session)
    assert model.requests[-1].messages[-1].text.startswith(f"Tool read_file {text}.")


@pytest.mark.parametrize(("reason", "named"), [("length", True), ("stop", False)])
async def test_native_arguments_that_were_cut_off_are_called_that(reason, named):
    cut = Message(role="agent", tool_calls=(ToolCall(id="c1", name="write_file", malformed='{"content": "a long'),))
    stopped_call = Completion(message=cut, usage=Usage(output_tokens=12), model="scripted", finish_reason=reason)
    write = Tool("write_file", "Written.")
    session, model = setup(chatbox, [stopped_call, "Done."], write, protocol="native", final_memory=False)
    await chatbox.respond(ANN, session)
    problem = "the reply was cut off after 12 tokens, before its end"
    [run] = [event for event in session.trace.events if isinstance(event, ToolRun)]
    [result] = [message for message in model.requests[-1].messages if message.role == "tool"]
    assert write.received == [] and (run.error == problem) == (result.text == f"Error: {problem}") == named
    assert (problem in session.trace.steps()) == named
    assert "not a JSON object" in result.text or named


@pytest.mark.parametrize(("own", "sent"), [(None, 256), (100, 256), (2000, 2000)])
async def test_one_limit_serves_a_native_reply_and_its_arguments(own, sent):
    settings = {} if own is None else {"max_argument_tokens": own}
    session, model = setup(chatbox, ["Done.", "Nothing."], Tool("save_memory"), protocol="native", **settings)
    await chatbox.respond(ANN, session)
    assert [request.max_tokens for request in model.requests] == [sent, sent]
