"""Runs of a few turns on the scripted model, whose answers, calls and failures a test chooses turn by turn."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import agentlab as al
from agentlab.core.messages import Completion, Message, Reply, Usage
from agentlab.lab.run import Run
from agentlab.models.scripted import Scripted
from support.unsealing import unseal

RIGHT, WRONG = "blue", "no idea"
Turn = tuple[str, int]
"""Conversation and number."""


def write_set(folder: Path, conversations: int, turns: int = 2) -> Path:
    folder.mkdir()
    rows = [
        {"id": f"c{c:02}", "turns": [{"user": f"c{c:02} {t}", "reference_answers": [RIGHT]} for t in range(turns)]}
        for c in range(conversations)
    ]
    (folder / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


class Answering:
    """Flow that is wrong, fails, or makes more model calls on chosen turns."""

    def __init__(
        self,
        name: str = "answering",
        wrong: Collection[Turn] = (),
        failing: Collection[Turn] = (),
        calls: Callable[[Turn], int] = lambda turn: 1,
    ) -> None:
        self.name = name
        self.wrong, self.failing, self.calls = wrong, failing, calls

    async def respond(self, turn: Any, session: Any) -> Reply:
        conversation, number = turn.text.split()
        location = conversation, int(number)
        for _ in range(self.calls(location)):
            await session.complete((Message(role="user", text=turn.text),))
        if location in self.failing:
            raise RuntimeError("by choice")
        return Reply(text=WRONG if location in self.wrong else RIGHT)


def play(data: Path, out: Path, *flows: Answering, resume: bool = False, **spec: Any) -> Run:
    with opened(data, *flows, **spec) as lab:
        return lab.run_sync(out=out, resume=resume)


def opened(data: Path, *flows: Answering, usage: Usage | None = None, **spec: Any) -> al.Lab:
    usage = usage or Usage(input_tokens=100, cached_tokens=0, output_tokens=10)
    reply = Completion(message=Message(role="agent", text="hm"), usage=usage)
    spec = {"datasets": [str(data)], "embedder": "hashing/hashing-64", "scorers": ["answer", "similarity"], **spec}
    return al.Lab(model=Scripted([reply], loop=True), flows=list(flows) or [Answering()], **spec)


def first_turns(run: Path, turns: int) -> Path:
    """Copy the first `turns` turns of a run to a new folder next to it."""
    going_on = run.with_name("going-on")
    shutil.copytree(run, going_on)
    (going_on / "summary.json").unlink()
    lines = (run / "turns.jsonl").read_text().splitlines(keepends=True)
    (going_on / "turns.jsonl").write_text("".join(lines[:turns]))
    return going_on


def edit_header(run: Run, change: Callable[[dict[str, Any]], object]) -> None:
    header = json.loads((run.path / "run.json").read_text())
    change(header)
    (run.path / "run.json").write_text(json.dumps(header))
    unseal(run.path)
