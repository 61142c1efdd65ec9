"""Runs that are killed, stopped or out of disk at some moment, resumed until they end, and held against a whole one."""

from __future__ import annotations

import json
import os
import random
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentlab.cli.parser import main
from agentlab.evals.results.run import open_run
from support.forks import files_in, in_child
from support.rules_set import DOCUMENTS, write_set

MEASURED = {"latency_s", "phases", "billed"}
"""What a second sitting may change: times, and what was paid for twice."""
FLOW = '''"""Searches, asks twice, remembers."""
import asyncio
import agentlab as al

MEMORY = True


async def respond(turn, session):
    await session.retrieve(turn.text)
    facts = await session.recall(turn.text)
    await asyncio.sleep(0.003)
    first = await session.complete(f"{turn.text} {[fact.text for fact in facts]}")
    await session.remember(f"asked: {turn.text}")
    session.notify("half", first.text)
    second = await session.complete(f"Again: {turn.text}")
    return al.Reply(text=second.text, data={"facts": len(facts)})
'''
SET_UPS: dict[str, dict[str, Any]] = {
    "plain": {},
    "sqlite": {"memory": "sqlite"},
    "textfile, three at once": {"memory": "textfile", "concurrency": 3},
    "recording": {"mode": "auto", "memory": "sqlite"},
    "two flows, two epochs": {"epochs": 2, "generation": {"temperature": 0.5}, "flows": ["./asking.py", "rag_only"]},
}


class SetUp:
    """A spec in a folder of its own, its undisturbed outcome, and how long that took."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        conversations = [
            {
                "id": f"c{n}",
                "turns": [{"user": f"How heavy is ball {n}.{t}?", "reference_answers": ["450 g"]} for t in "ab"],
            }
            for n in range(6)
        ]
        folder.mkdir(parents=True)
        write_set(folder / "set", conversations, DOCUMENTS)
        (folder / "asking.py").write_text(FLOW)
        (folder / "replies.yaml").write_text("loop: true\nreplies: [Between 410 and 450 g.]\n")
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        spec = {
            "name": "interrupted",
            "datasets": ["set"],
            "flows": ["./asking.py"],
            "model": "scripted/replies.yaml",
            "embedder": "hashing/hashing-64",
            "scorers": ["answer"],
            "recordings": "recordings",
            **SET_UPS[name],
        }
        (folder / "spec.yaml").write_text(json.dumps(spec))
        ended = in_child(lambda: self.run("whole"))
        assert ended.code == 0, ended.said
        self.seconds = ended.seconds
        self.whole = outcome(folder / "whole")
        self.largest = max((folder / "whole" / name).stat().st_size for name in files_in(folder / "whole"))
        self.take_away("recordings")

    def run(self, out: str, *more: str) -> int:
        """In a child: there it is the only one."""
        os.chdir(self.folder)
        os.environ |= {"AGENTLAB_HOME": str(self.folder / "home"), "TMPDIR": str(self.temporary)}
        tempfile.tempdir = None
        return main(["run", "spec.yaml", "--out", out, *more])

    def take_away(self, *names: str) -> None:
        import shutil

        for name in names:
            shutil.rmtree(self.folder / name, ignore_errors=True)


def outcome(out: Path) -> dict[str, Any]:
    """What must not depend on how often a run was disturbed."""
    run = open_run(out)
    flows = {
        label: {name: value for name, value in flow.items() if name not in MEASURED}
        for label, flow in run.summary["flows"].items()
    }
    turns = [(row.play, row.turn, row.reply and row.reply.text, row.error) for row in run.played()]
    scores = [(s.flow, s.conversation, s.turn, s.epoch, s.metric, float(s.value)) for s in run.folder.scores()]
    return {"status": run.summary["status"], "flows": flows, "turns": turns, "scores": scores}


def finished(out: Path) -> list[str]:
    """Rows of turns that are whole on disk."""
    file = out / "turns.jsonl"
    return [line for line in file.read_text().split("\n")[:-1] if line] if file.exists() else []


def interrupted(set_up: SetUp, how: str, chance: random.Random, times: int) -> Iterator[str]:
    """Disturb one run `times` times, resume it to its end, and say what is not as if nothing had been."""
    out = set_up.folder / "cut"
    set_up.take_away("cut", "recordings")
    kept: list[str] = []
    for _ in range(times):
        options: dict[str, Any] = {}
        if how == "full disk":
            options["most_bytes_a_file"] = int(chance.choice([0, 1, chance.random() * set_up.largest]))
        else:
            options |= {"send": {"SIGKILL": signal.SIGKILL, "SIGTERM": signal.SIGTERM}[how]}
            options |= {"after": chance.random() * set_up.seconds}
        ended = in_child(lambda: set_up.run("cut", "--resume"), **options)
        if ended.hung or (how == "full disk" and not ended.is_clean) or "Traceback" in ended.said:
            yield f"{how}: {ended}"
        rows = finished(out)
        if rows[: len(kept)] != kept:
            yield f"{how}: a finished turn is gone or was changed"
        kept = rows
    ended = in_child(lambda: set_up.run("cut", "--resume"))
    if ended.code != 0:
        yield f"{how}: it cannot be resumed: {ended}"
        return
    if finished(out)[: len(kept)] != kept:
        yield f"{how}: a finished turn was repeated"
    found = outcome(out)
    differ = [part for part, value in set_up.whole.items() if found[part] != value]
    if differ:
        yield f"{how}: {', '.join(differ)} differ from the undisturbed run"
    left = [file for file in files_in(set_up.temporary) if not file.endswith(".lock")]
    if left:
        yield f"{how}: {len(left)} files left in the temporary folder, such as {left[0]}"
        set_up.take_away("tmp")
        set_up.temporary.mkdir()
