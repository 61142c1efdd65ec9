"""A chat of several sessions replays whole once it is saved, or the turns that do not are named."""

from __future__ import annotations

import itertools
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import agentlab as al
from agentlab.lab.replay_check import turns_that_miss

TEXTS = (
    "I live in Ulm.",
    "My cat is Fenchurch.",
    "Where do I live?",
    "Where do I live?",
    "Who is my cat?",
    "Bye, Ulm.",
)
FLOWS = {
    "coordinator": {"flow": "coordinator", "consolidate_every": 2, "tools": []},
    "chatbox": "chatbox",
    "fallback": "tools_rag_fallback",
    "ego": {"flow": "ego", "planning": False},
}


def saved(flow: object, sessions: list[int], folder: Path) -> Path:
    """Talk for `sessions` turns in each session, then save the conversation; return the folder of the saved one."""
    folder.mkdir(exist_ok=True)
    texts = iter(TEXTS)
    script = folder / "replies.yaml"
    script.write_text(f"loop: true\nreplies: {[f'Noted {n}.' for n in range(7)]}\n")
    for number, turns in enumerate(sessions):
        with al.Lab(
            name="chat",
            mode="record",
            recordings=str(folder / "recordings"),
            flows=[flow],
            model=f"scripted/{script}",
            embedder="hashing/hashing-64",
            memory="sqlite",
        ) as lab:
            chat = lab.chat(documents=(), memory=folder / "memory", database=folder / "kept.jsonl")
            for _ in range(turns):
                chat.say_sync(next(texts))
            if number == len(sessions) - 1:
                chat.save(folder / "saved")
    return folder / "saved"


@pytest.mark.parametrize("flow", FLOWS.values(), ids=FLOWS)
@settings(max_examples=3)
@given(st.sets(st.integers(1, 5), max_size=3))
def test_any_split_of_a_conversation_replays_whole(own_home, flow, breaks):
    ends = [0, *sorted(breaks), len(TEXTS)]
    with tempfile.TemporaryDirectory() as folder:
        sessions = [end - start for start, end in itertools.pairwise(ends)]
        assert turns_that_miss(saved(flow, sessions, Path(folder)) / "spec.yaml") == []


def test_turns_that_do_not_replay_are_named(own_home, tmp_path):
    """Facts that a session searched ahead are lost with it, and a replay has only one session."""
    ahead = {"flow": "coordinator", "memory_read": "ahead", "tools": []}
    assert turns_that_miss(saved(ahead, [6], tmp_path / "one") / "spec.yaml") == []
    assert turns_that_miss(saved(ahead, [2, 4], tmp_path / "two") / "spec.yaml") == [3, 4, 5, 6]
