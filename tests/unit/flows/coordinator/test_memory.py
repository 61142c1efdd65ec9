"""Memory around a turn of the coordinator: stored, fetched ahead, streamed beside the reply, consolidated."""

from __future__ import annotations

import asyncio

import pytest

from agentlab.core.errors import MemoryUnavailable, ServerFault
from agentlab.core.events import Decision, Notice
from agentlab.core.messages import UserTurn
from agentlab.flows import coordinator
from agentlab.models.embedders import hashing
from support.coordinators import SlowMemory, messages_of, ops, say, setup, stored


async def test_turns_are_stored_after_the_reply_and_charged_to_memory(memory):
    session, _ = setup(["Noted.", "Hi."], memory=memory)
    await say(session, "I live in Bern, you know.", "Hello")
    stored = ops(session, kind="memory", op="remember")
    assert [(e.phase, e.background, e.turn) for e in stored] == [("memory_write", True, 0)]
    gates = [(d.turn, d.choice) for d in session.trace.events if isinstance(d, Decision) and d.name == "keep turn"]
    assert gates == [(0, True), (1, False)]
    assert [f.text for f in await memory.facts()] == [
        "2026-01-01 00:00 | user: I live in Bern, you know. | miyori: Noted."
    ]


async def test_the_model_can_be_the_gate(memory):
    session, model = setup(["Noted.", '{"keep": false}', "Hm.", "no JSON at all"], memory=memory, gate="model")
    await say(session, "I live in Bern.", "I moved to Rome.")
    assert [f.text.split(" | ")[1] for f in await memory.facts()] == ["user: I moved to Rome."]
    assert [e.phase for e in ops(session, kind="model_call")] == ["answer", "memory_write"] * 2
    assert "I live in Bern." in model.requests[1].messages[0].text


async def test_memories_fetched_ahead_are_used_without_waiting(memory):
    session, model = setup(["Noted.", "Bern."], memory=memory, gate="all", memory_read="ahead")
    await say(session, "I live in Bern, you know.", "Where do I live?")
    reads = ops(session, kind="memory", op="recall")
    assert [(e.turn, e.background) for e in reads][:3] == [(0, False), (0, True), (0, True)]
    assert not [e for e in reads if e.turn == 1 and not e.background]
    assert "I live in Bern" in model.requests[1].messages[-1].text


async def test_prefetched_memories_are_dropped_with_the_conversation(memory):
    session, _ = setup(["Noted.", "Hm."], memory=memory, gate="all", memory_read="ahead")
    session.begin_turn(0)
    await coordinator.respond(UserTurn(text="I live in Bern, you know."), session)
    session.forget_history()
    await session.run_background()
    assert len(await memory.facts()) == 1
    assert [e.background for e in ops(session, kind="memory", op="recall")] == [False]


async def test_streamed_memories_are_searched_during_the_reply_for_the_next_turn(memory):
    session, model = setup(["Noted.", "Bern."], memory=memory, memory_read="stream", store_turns=False)
    await session.remember("The user lives in Bern.")
    await say(session, "Where do I live?", "Well, where?")
    assert "Bern" not in model.requests[0].messages[-1].text
    assert "The user lives in Bern." in model.requests[1].messages[-1].text
    reads = ops(session, kind="memory", op="recall")
    assert [(e.turn, e.background) for e in reads] == [(0, False), (1, False)]
    calls = ops(session, kind="model_call")
    # Neither waits for the other.
    assert not set(reads[0].after) & {calls[0].id}
    assert not set(calls[0].after) & {reads[0].id}


async def test_cancelled_stream_leaves_the_reply_and_no_memories():
    session, model = setup(["Noted.", "Hm."], memory_read="stream", store_turns=False)
    memory = SlowMemory()
    session.change(memory=memory)
    session.begin_turn(0)
    turn = asyncio.create_task(coordinator.respond(UserTurn(text="Where do I live?"), session))
    await memory.received.wait()
    for _ in range(100):
        await asyncio.sleep(0)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert messages_of(session)[-1] == ("miyori", "Noted.")
    assert stored(session)[-1] == ("agent", "Noted.")
    memory.failure = MemoryUnavailable("the store is gone")
    await say(session, "And now?")
    assert model.requests[1].messages[-1].text == "[CONTEXT: 2026-01-01 00:00]\n\nAnd now?"


async def test_stream_with_an_unavailable_memory_is_a_notice(memory, monkeypatch):
    async def unavailable(*args, **kwargs):
        raise MemoryUnavailable("the store is gone")

    monkeypatch.setattr(memory, "search", unavailable)
    session, _ = setup(["Noted.", "Hm."], memory=memory, memory_read="stream", store_turns=False)
    assert await say(session, "Where do I live?", "Well?") == ["Noted.", "Hm."]
    assert [e.name for e in session.trace.events if isinstance(e, Notice)] == ["memory_unavailable"] * 2


@pytest.mark.parametrize(("distinct", "times"), [(True, 1), (False, 2)])
async def test_a_repeated_message_is_recalled_once_and_stored_twice(memory, distinct, times):
    replies = ["Noted.", "Noted again.", "You like tea."]
    session, model = setup(replies, memory=memory, distinct_memories=distinct)
    await say(session, "I like tea.", "I like tea.", "Do I like tea?")
    assert len(await memory.facts()) == 2
    message = model.requests[2].messages[-1].text
    assert message.count("user: I like tea.") == times and "Noted again." in message, "the newest one is recalled"


async def test_episodes_with_other_messages_are_recalled_together(memory):
    session, model = setup(["Noted.", "Noted.", "Tea."], memory=memory)
    await say(session, "I like tea.", "I like tea with milk.", "Do I like tea?")
    assert model.requests[2].messages[-1].text.count("user: I like tea") == 2


async def test_lasting_facts_are_drawn_from_episodes_and_newer_ones_replace_older(memory):
    session, model = setup(
        [
            "Noted.",
            '{"facts": ["The user lives in the city of Bern."]}',
            "Oh.",
            '{"facts": ["The user lives in the city of Basel.", 7, " "]}',
        ],
        memory=memory,
        gate="all",
        consolidate_every=1,
    )
    await say(session, "I live in Bern, you know.", "I have moved to Basel now.")
    assert [e.phase for e in ops(session, kind="model_call")] == ["answer", "consolidate"] * 2
    facts = [f.text for f in await memory.facts() if "user:" not in f.text]
    assert facts == ["The user lives in the city of Basel."]
    assert [e.op for e in ops(session, kind="memory", phase="consolidate")] == [
        "recall",
        "remember",
        "recall",
        "revise",
    ]
    assert "I live in Bern" in model.requests[1].messages[0].text


async def test_unavailable_memory_costs_only_the_memories(memory, monkeypatch):
    async def unavailable(*args, **kwargs):
        raise MemoryUnavailable("the store is gone")

    monkeypatch.setattr(memory, "search", unavailable)
    monkeypatch.setattr(memory, "add", unavailable)
    session, _ = setup(["Hello."], memory=memory, gate="all")
    assert await say(session, "I live in Bern.") == ["Hello."]
    notices = [e.name for e in session.trace.events if isinstance(e, Notice)]
    assert notices == ["memory_unavailable", "background_failed"]


async def test_an_older_fact_is_replaced_though_the_episode_is_nearer(memory):
    session, _ = setup(
        ["Noted.", '{"facts": ["I live in Basel now, not in Bern."]}'], memory=memory, gate="all", consolidate_every=1
    )
    vector = (await hashing.connect("hashing-64").embed(["I live in Basel, in Bern."]))[0]
    await memory.add("I live in Basel, in Bern.", vector, created=session.now, new_id=lambda: "old")
    await say(session, "I live in Basel now, not in Bern.")
    assert "I live in Basel, in Bern." not in [f.text for f in await memory.facts()]


async def test_episodes_wait_until_there_are_enough_and_outlast_a_failure(memory):
    replies = ["ok", "ok", ServerFault("gone", "m"), "ok", '{"facts": ["The user is called Ann."]}', "ok"]
    session, model = setup(replies, memory=memory, gate="all", consolidate_every=2, retries=0)
    await say(session, "My name is Ann, by the way.", "I have got two cats.", "And a dog, Rex.", "Bye for today, then.")
    extracts = [r.messages[0].text for r in model.requests if r.output_schema]
    assert len(extracts) == 2
    assert all(text in extracts[1] for text in ("Ann", "two cats", "Rex"))


@pytest.mark.parametrize(("settings", "reads"), [({"store_turns": False}, 3), ({"memory_facts": 0}, 0)])
async def test_reading_ahead_does_not_depend_on_storing(memory, settings, reads):
    session, _ = setup(["a", "b"], memory=memory, gate="all", memory_read="ahead", **settings)
    await say(session, "One and two", "Three")
    results = [e for e in ops(session, kind="memory", op="recall") if e.turn == 0]
    assert len(results) == reads
    assert len(await memory.facts()) == (2 if settings.get("store_turns", True) else 0)


async def test_prefetch_of_an_ended_conversation_is_cancelled():
    memory = SlowMemory(concurrent=1)
    session, _ = setup(["Noted."], gate="all", memory_read="ahead", memory_facts=1)
    session.change(memory=memory)
    session.begin_turn(0)
    await coordinator.respond(UserTurn(text="I live in Bern, you know."), session)
    joining = asyncio.create_task(session.run_background())
    await memory.received.wait()
    session.forget_history()
    session.forget_history()
    await asyncio.wait_for(joining, 5)
    assert len(memory.stored) == 1
