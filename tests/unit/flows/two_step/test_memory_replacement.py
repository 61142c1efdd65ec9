"""The one retry of an update whose id does not exist."""

from __future__ import annotations

import json

import pytest

from agentlab.flows import chatbox
from support.two_step import ANN, FIRST_FACT, NONE, Tool, choose, phases, setup

MISSING = "Memory replacement failed. The provided memory_id 'f9' was not found."


async def test_unknown_id_is_written_again_once_with_the_facts_shown(memory):
    update = Tool("update_memory", MISSING, "Memory replaced successfully. New ID: fact_2")
    existing = json.dumps({"memory_id": FIRST_FACT})
    replies = [choose("update_memory"), '{"memory_id": "f9"}', existing, NONE, NONE, "Done."]
    session, model = setup(chatbox, replies, update, memory=memory, filter_memory_tools=False)
    await session.remember("Ann lives in Oslo")
    await chatbox.respond(ANN, session)
    assert [arguments["memory_id"] for arguments in update.received] == ["f9", FIRST_FACT]
    assert f"ID: {FIRST_FACT} | Content: Ann lives in Oslo" in model.requests[2].messages[-1].text
    assert phases(session)[:3] == ["select_tool", "tool_args", "tool_args"]


async def test_an_id_that_is_unknown_twice_ends_the_loop():
    update = Tool("update_memory", MISSING, MISSING)
    replies = [choose("update_memory"), '{"memory_id": "f9"}', '{"memory_id": "f8"}', NONE, "Done."]
    session, model = setup(chatbox, replies, update, filter_memory_tools=False)
    assert (await chatbox.respond(ANN, session)).text == "Done."
    assert len(update.received) == 2 and model.requests[-1].messages[-1].text.endswith(MISSING)


@pytest.mark.parametrize("result", [RuntimeError("disk gone"), RuntimeError(MISSING)])
async def test_other_failed_updates_are_not_repeated(memory, result):
    update = Tool("update_memory", result, "Memory replaced successfully. New ID: fact_2")
    replies = [choose("update_memory"), '{"memory_id": "f9"}', NONE, "Done."]
    session, _ = setup(chatbox, replies, update, memory=memory, filter_memory_tools=False)
    assert (await chatbox.respond(ANN, session)).text == "Done."
    assert len(update.received) == 1 and phases(session) == ["select_tool", "tool_args", "memory_write", "answer"]


async def test_no_other_tool_is_asked_again_for_what_it_returns():
    read = Tool("read_file", MISSING, "again")
    session, _ = setup(chatbox, [choose("read_file"), "{}", NONE, "Done."], read, filter_memory_tools=False)
    await chatbox.respond(ANN, session)
    assert len(read.received) == 1


async def test_second_attempt_reads_that_no_fact_is_known():
    update = Tool("update_memory", MISSING, MISSING)
    replies = [choose("update_memory"), '{"memory_id": "f9"}', '{"memory_id": "f8"}', NONE, "Done."]
    session, model = setup(chatbox, replies, update, filter_memory_tools=False)
    await chatbox.respond(ANN, session)
    assert model.requests[2].messages[-1].text == "The IDs that exist are these:\n(none)"
