"""Stops and failures during a turn: the messages stay, and the history stays usable."""

from __future__ import annotations

import asyncio

import pytest

from agentlab.core.errors import ServerFault
from agentlab.core.messages import UserTurn
from agentlab.flows import coordinator
from agentlab.flows.coordinator.llm_coordinator import INTERRUPTED
from support.coordinators import SlowMemory, Tool, both, history, messages_of, say, setup, stored, talk


async def test_stop_in_mid_stream_keeps_the_text():
    session, model = talk(["One ", "two ", "three"], ["Yes."])
    session.begin_turn(0)
    texts = []
    session.stream.on("reply_text", lambda item: (texts.append(item.text), item.text == "two " and task.cancel()))
    task = asyncio.create_task(coordinator.respond(UserTurn(text="Count"), session))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert texts == ["One ", "two "]
    assert messages_of(session)[-1] == ("miyori", "One two ")
    assert [m.text for m in session.history.messages] == ["Count", "One two "]
    assert await say(session, "Go on?") == ["Yes."]
    assert [m.role for m in model.requests[1].messages] == ["system", "user", "agent", "user"]


async def test_stop_in_mid_stream_keeps_the_text_during_a_memory_read(memory):
    pieces = ["One ", "two ", *["and " for _ in range(20)], "twenty"]
    session, _ = talk(pieces, memory=memory, memory_read="stream", store_turns=False)
    session.begin_turn(0)
    session.stream.on("reply_text", lambda item: item.text == "two " and task.cancel())
    task = asyncio.create_task(coordinator.respond(UserTurn(text="Count"), session))
    with pytest.raises(asyncio.CancelledError):
        await task
    _, words = messages_of(session)[-1]
    assert words.startswith("One two ") and "twenty" not in words


async def test_a_stop_between_tools_leaves_no_call_without_a_result():
    def stop(arguments):
        task.cancel()
        return asyncio.sleep(1)

    session, model = talk(both(), ["Fine."], tools=(Tool("weather", "rain"), Tool("dates", stop)))
    session.begin_turn(0)
    task = asyncio.create_task(coordinator.respond(UserTurn(text="Tomorrow?"), session))
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [text for _, text in messages_of(session)[2:]] == ["rain", INTERRUPTED]
    assert await say(session, "Go on?") == ["Fine."]
    assert [m.role for m in model.requests[1].messages] == ["system", "user", "agent", "tool", "tool", "user"]


@pytest.mark.parametrize("broken", [[ServerFault("gone", "m")], ["One ", ServerFault("gone", "m")]])
async def test_an_error_of_the_provider_leaves_a_history_the_next_turn_can_use(broken):
    session, model = talk(both(), broken, ["Here again."], tools=(Tool("weather"), Tool("dates")))
    session.begin_turn(0)
    with pytest.raises(ServerFault):
        await coordinator.respond(UserTurn(text="Tomorrow?"), session)
    assert not history(session).open_calls()
    assert await say(session, "And now?") == ["Here again."]
    assert [m.role for m in model.requests[-1].messages][-2:] == ["tool", "user"]


async def test_a_stop_while_memories_are_sought_keeps_the_prompt_and_no_reply():
    memory = SlowMemory()
    session, model = setup(["First reply.", "Third reply."], gate="all")
    await say(session, "First")
    session.change(memory=memory)
    session.begin_turn(1)
    task = asyncio.create_task(coordinator.respond(UserTurn(text="Second"), session))
    await memory.received.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stored(session) == [("user", "First"), ("agent", "First reply."), ("user", "Second")]
    memory.failure = ServerFault("the embedder is gone", "m")
    session.begin_turn(2)
    with pytest.raises(ServerFault):
        await coordinator.respond(UserTurn(text="Third"), session)
    session.change(memory=None)
    session.begin_turn(3)
    await coordinator.respond(UserTurn(text="Fourth"), session)
    prompts = [m.text.split("\n\n")[-1] for m in model.requests[-1].messages if m.role == "user"]
    assert prompts == ["First", "Second", "Third", "Fourth"]


async def test_results_that_were_there_when_the_turn_was_stopped_are_kept():
    late = asyncio.Event()

    async def never():
        late.set()
        await asyncio.Event().wait()

    session, _ = talk(both(), tools=(Tool("weather", "rain"), Tool("dates", lambda a: never())), parallel_tools=True)
    session.begin_turn(0)
    task = asyncio.create_task(coordinator.respond(UserTurn(text="Tomorrow?"), session))
    await late.wait()
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [text for _, text in messages_of(session)[2:]] == ["rain", INTERRUPTED]
    assert "may have taken effect" in INTERRUPTED
