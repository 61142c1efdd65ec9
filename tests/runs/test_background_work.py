"""Work in the background of a turn: joined, counted, not waited for, and the same in a replay."""

from __future__ import annotations

import asyncio

import pytest

from agentlab.core.events import ModelCall
from agentlab.core.messages import Message, Reply
from support.replays import VaryingModel, ask, play, replay, replay_invariants


@pytest.mark.slow
def test_background_work_is_joined_counted_and_not_waited_for(dataset, tmp_path):
    ended = []

    async def forgetful(turn, session):
        reply = await session.complete((Message(role="user", text=turn.text),))

        async def note() -> None:
            await asyncio.sleep(0.01)
            await session.complete((Message(role="user", text=f"sum up: {turn.text}"),), phase="summarize")
            ended.append(turn.text)

        session.background(note(), "note")
        return Reply(text=reply.message.text)

    recorded = play(dataset, "record", tmp_path / "a", flows=[forgetful], concurrency=2)
    assert len(ended) == 6
    flow = recorded.summary["flows"]["forgetful"]
    assert flow["llm_calls"] == 12 and flow["phases"]["summarize"]["calls"] == 6
    trace = recorded.trace("forgetful", "c0")
    first, second = (event for event in trace.at(0) if isinstance(event, ModelCall))
    assert (first.background, second.background) == (False, True)
    assert trace.latency(1) == first.seconds
    assert replay_invariants(replay(dataset, tmp_path / "b", flows=[forgetful], concurrency=5)) == replay_invariants(
        recorded
    )


def test_failed_background_task_is_reported_and_the_turn_counts(dataset, tmp_path):
    async def careless(turn, session):
        async def fall() -> None:
            raise ZeroDivisionError("beside")

        session.background(fall(), "fall")
        return Reply(text="done")

    run = play(dataset, "live", tmp_path / "a", flows=[careless])
    assert run.summary["flows"]["careless"]["errors"] == 0
    assert sum("ZeroDivisionError" in str(detail) for detail in run.calls["detail"]) == 6


def test_background_work_sees_the_same_history_in_a_replay(dataset, tmp_path):
    async def noting(turn, session):
        async def note() -> None:
            history = [message.text for message in session.load_conversation()]
            await ask(session, " | ".join(history))

        session.background(note(), "note")
        reply = await ask(session, f"slow {turn.text}")
        session.save_message("user", turn.text)
        session.save_message("agent", reply)
        return Reply(text=reply)

    recorded = play(dataset, "record", tmp_path / "a", model=VaryingModel(), flows=[noting])
    assert replay_invariants(replay(dataset, tmp_path / "b", flows=[noting])) == replay_invariants(recorded)
