"""A chat of several sessions replays whole once it is saved, or the turns that do not are named."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import CancelledError
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as al
from agentlab.core.messages import Completion, Request
from agentlab.core.protocols import Emit
from agentlab.lab import chat as chats
from agentlab.lab.lab import turns_that_miss
from agentlab.models.scripted import Scripted

TEXTS = (
    "I live in Ulm.",
    "My cat is Fenchurch.",
    "Where do I live?",
    "Where do I live?",
    "Who is my cat?",
    "I moved to Bonn.",
    "Thanks!",
    "My sister plays the oboe.",
    "Where do I live?",
    "What does she play?",
    "I am allergic to nuts.",
    "Bye, Ulm.",
)
FLOWS = {
    "coordinator": {"flow": "coordinator", "consolidate_every": 2, "tools": []},
    "chatbox": "chatbox",
    "fallback": "tools_rag_fallback",
    "ego": {"flow": "ego", "planning": False},
}


class Hangs(Scripted):
    """Answers its request `at`, counted anew by each change of `at`, only after half a second."""

    def __init__(self, script: Path) -> None:
        super().__init__([f"Noted {n}." for n in range(7)], loop=True, name=f"scripted/{script}")
        self.at, self.hung = 0, threading.Event()

    async def complete(self, request: Request, emit: Emit) -> Completion:
        self.at -= 1
        if self.at == 0:
            self.hung.set()
            await asyncio.sleep(0.5)
        return await super().complete(request, emit)


def say_and_hang(chat: al.Chat, text: str, model: Hangs, request: int) -> None:
    """Send a message whose call `request` hangs, and interrupt the turn if it waits for it."""
    chat.receipts_sync(wait_s=30)  # the calls of the last turn's background work do not count
    model.at = request
    model.hung.clear()
    pending = chat.submit(text)
    while not pending.done() and not model.hung.wait(0.01):
        pass
    if not pending.done():
        chat.stop()
    with contextlib.suppress(CancelledError):
        pending.result(30)


def saved(flow: object, sessions: Sequence[int], folder: Path, forks: Sequence[int] = (), hangs: Sequence[int] = ()):
    """Talk for `sessions` turns in each session, then save; return the saved spec and the first turn that was cut.

    Session n begins with the first `forks[n]` turns if there are so many, and call `hangs[n]` of its last turn hangs.
    """
    folder.mkdir(exist_ok=True)
    texts = iter(TEXTS)
    script = folder / "replies.yaml"
    script.write_text(f"loop: true\nreplies: {[f'Noted {n}.' for n in range(7)]}\n")
    model, first_cut = Hangs(script), len(TEXTS)
    for number, turns in enumerate(sessions):
        with al.Lab(
            name="chat",
            mode="record",
            recordings=str(folder / "recordings"),
            flows=[flow],
            model=model,
            embedder="hashing/hashing-64",
            memory="sqlite",
        ) as lab:
            stored = {"documents": (), "memory": folder / "memory", "database": folder / "kept.jsonl"}
            chat = lab.chat(**stored)
            if number < len(forks) and 0 < forks[number] < len(chat.turn_rows):
                first_turns = chat.turns_until(forks[number])
                lab.loop.run_coroutine(chat.close())
                chat = lab.chat(**stored, begins_with=first_turns)
            for _ in range(turns - 1):
                chat.say_sync(next(texts))
            hangs_at = hangs[number] if number < len(hangs) and number < len(sessions) - 1 else 0
            say_and_hang(chat, next(texts), model, hangs_at)
            if model.hung.is_set() and hangs_at:
                first_cut = min(first_cut, len(chat.turn_rows) - 1)
            if number == len(sessions) - 1:
                chat.save(folder / "saved")
    return folder / "saved" / "spec.yaml", first_cut


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
@settings(max_examples=3)
@given(st.sets(st.integers(1, 11), max_size=4), st.lists(st.integers(0, 8), max_size=4))
def test_any_split_of_a_conversation_replays_whole(own_home, flow, breaks, forks):
    ends = [0, *sorted(breaks), len(TEXTS)]
    with tempfile.TemporaryDirectory() as folder:
        sessions = [end - start for start, end in itertools.pairwise(ends)]
        assert turns_that_miss(saved(flow, sessions, Path(folder), forks)[0]) == []


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
@settings(max_examples=4)
@given(st.sets(st.integers(2, 11), min_size=1, max_size=3), st.lists(st.integers(1, 6), min_size=3, max_size=3))
def test_turns_before_a_cut_replay_whole(own_home, flow, breaks, hangs):
    """A call that was cut off, in the turn or in the background after it, is in no recording."""
    ends = [0, *sorted(breaks), len(TEXTS)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(chats, "CLOSING_SECONDS", 0.05)
        sessions = [end - start for start, end in itertools.pairwise(ends)]
        spec, first_cut = saved(flow, sessions, Path(folder), hangs=hangs)
        missing = turns_that_miss(spec)
        assert all(turn > first_cut for turn in missing)


def test_turns_that_do_not_replay_are_named(own_home, tmp_path):
    """Facts that a session searched ahead are lost with it, and a replay has only one session."""
    ahead = {"flow": "coordinator", "memory_read": "ahead", "tools": []}
    assert turns_that_miss(saved(ahead, [6], tmp_path / "one")[0]) == []
    assert turns_that_miss(saved(ahead, [2, 4], tmp_path / "two")[0]) == [3, 4, 5, 6]
