"""Runs that are killed, stopped or out of disk, resumed to their end, and compared with a whole run."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentlab.cli.parser import main
from agentlab.lab.run import open_run
from support.child_processes import ChildResult, files_in, in_child
from support.rules_set import DOCUMENTS, write_set

MEASURED = {"latency_s", "phases", "billed"}
"""Values that a second process may change: times, and costs paid twice."""
PLACES = {
    "the run folder": "cut",
    "the recordings": "recordings",
    "the temporary folder, memories": "tmp",
    "caches": "home",
}
PAGE, ROOMY = 4, 2**18
"""Kilobytes of one block of a file system, and of a disk with enough room for all files."""
MAX_TIMES = 4
"""Maximum number of disturbances before a run is resumed to its end."""
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
    """Spec in a folder, with the outcome and duration of an undisturbed run."""

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
        assert ended.code == 0, ended.printed
        self.seconds = ended.seconds
        self.whole = outcome(folder / "whole")
        self.lines = [
            position for name in ("turns", "calls") for position in _lines(folder / "whole" / f"{name}.jsonl")
        ]
        """Start and end of each row in bytes."""
        self.take_away("recordings")

    def run(self, out: str, *more: str) -> int:
        """Run the spec; only a child process may call this, since it changes the folder and the environment."""
        os.chdir(self.folder)
        os.environ |= {"AGENTLAB_HOME": str(self.folder / "home"), "TMPDIR": str(self.temporary)}
        tempfile.tempdir = None
        return main(["run", "spec.yaml", "--out", out, *more])

    def take_away(self, *names: str) -> None:
        """Delete the content of these folders, which may be mount points."""
        for name in names:
            for inside in (self.folder / name).glob("*"):
                shutil.rmtree(inside) if inside.is_dir() else inside.unlink()


def _lines(file: Path) -> Iterator[tuple[int, int]]:
    begin = 0
    for line in file.read_bytes().splitlines(keepends=True):
        yield begin, begin + len(line)
        begin += len(line)


def outcome(out: Path) -> dict[str, Any]:
    """Return the results that must not depend on the number of disturbances."""
    run = open_run(out)
    flows = {
        label: {name: value for name, value in flow.items() if name not in MEASURED}
        for label, flow in run.summary["flows"].items()
    }
    turns = [(row.trial, row.turn, row.reply and row.reply.text, row.error) for row in run.turn_rows()]
    scores = [
        (row.trial, row.turn, metric, float(score.value))
        for row in run.turn_rows()
        for metric, score in (row.scores or {}).items()
    ]
    return {"status": run.summary["status"], "flows": flows, "turns": turns, "scores": scores}


def finished(out: Path) -> list[str]:
    """Return the complete rows of turns on disk."""
    file = out / "turns.jsonl"
    return [line for line in file.read_text().split("\n")[:-1] if line] if file.exists() else []


def play(cases: int, folder: Path, chance: random.Random, part: str) -> tuple[str, Iterator[str | None]]:
    unit = f"disturbances of runs of {len(SET_UPS)} set-ups"
    disks = Disks() if part == "disks" else None
    places = f", or in {', '.join(PLACES)}" if disks and disks.own else ""
    how = {
        "kills": "SIGKILL",
        "stops": "SIGTERM, every third SIGHUP",
        "disks": f"full disks before, within or after a line{places}",
    }
    return f"{unit}: {how[part]}", _cases(cases, folder, chance, part, disks)


def _cases(cases: int, folder: Path, chance: random.Random, part: str, disks: Disks | None) -> Iterator[str | None]:
    names = list(SET_UPS)[: max(1, cases // 3)]
    set_ups = [SetUp(folder / str(number), name) for number, name in enumerate(names)]
    done = 0
    while done < cases:
        set_up = set_ups[done // MAX_TIMES % len(set_ups)]
        numbers = range(done, min(cases, done + MAX_TIMES))
        with disks.under(set_up) if disks else contextlib.nullcontext():
            failures = list(_interrupted(set_up, numbers, chance, part, disks))
        yield from (f"{set_up.name}: {failure}" for failure in failures)
        yield from [None] * (len(numbers) - len(failures))
        done = numbers.stop


def _interrupted(set_up: SetUp, numbers: range, chance: random.Random, part: str, disks: Disks | None) -> Iterator[str]:
    """Disturb one run several times, resume it to its end, and return the differences from a whole run."""
    out = set_up.folder / "cut"
    set_up.take_away("cut", "recordings")
    stored: list[str] = []
    for number in numbers:
        if disks is not None:
            ended = disks.fill(set_up, number, chance)
        else:
            send = signal.SIGKILL if part == "kills" else signal.SIGHUP if number % 3 == 2 else signal.SIGTERM
            after = chance.random() * set_up.seconds
            ended = in_child(lambda: set_up.run("cut", "--resume"), send=send, after=after)
        if ended.hung or (disks is not None and not ended.is_clean) or "Traceback" in ended.printed:
            yield f"{ended}"
        rows = finished(out)
        if rows[: len(stored)] != stored:
            yield "a finished turn is gone or was changed"
        stored = rows
    ended = in_child(lambda: set_up.run("cut", "--resume"))
    if ended.code != 0:
        yield f"it cannot be resumed: {ended}"
        return
    if finished(out)[: len(stored)] != stored:
        yield "a finished turn was repeated"
    result = outcome(out)
    differ = [part for part, value in set_up.whole.items() if result[part] != value]
    if differ:
        yield f"{', '.join(differ)} differ from the undisturbed run"
    left = [file for file in files_in(set_up.temporary) if not file.endswith(".lock")]
    if left:
        yield f"{len(left)} files left in the temporary folder, such as {left[0]}"
        set_up.take_away("tmp")


class Disks:
    """Disks that are full: a limit on the size of files, to the byte, or, for root, small file systems of their own."""

    def __init__(self) -> None:
        # Mounts that nobody else sees, and that end with this process.
        self.own = not os.geteuid() and not ctypes.CDLL(None).unshare(0x00020000)
        self.own = self.own and not _mount("--make-rprivate", "/")

    @contextlib.contextmanager
    def under(self, set_up: SetUp) -> Iterator[None]:
        places = [set_up.folder / name for name in PLACES.values()] if self.own else []
        for position in places:
            position.mkdir(exist_ok=True)
            assert not _mount("-t", "tmpfs", "-o", f"size={ROOMY}k", "torture", str(position))
        try:
            yield
        finally:
            for position in places:
                subprocess.run(["umount", str(position)], check=True)

    def fill(self, set_up: SetUp, number: int, chance: random.Random) -> ChildResult:
        """Run on a disk that fills up, then make room again."""
        work, turn = lambda: set_up.run("cut", "--resume"), number // 2
        if not self.own or number % 2:
            begin, end = chance.choice(set_up.lines)
            most = (begin, chance.randint(begin + 1, end - 1), end)[turn % 3]
            return in_child(work, max_file_bytes=most)
        position = set_up.folder / list(PLACES.values())[turn % len(PLACES)]
        used = shutil.disk_usage(position).used // 1024
        room = used + PAGE * chance.choice([0, 1, 2, chance.randint(0, 60)])
        assert not _mount("-o", f"remount,size={room or PAGE}k", str(position))
        try:
            return in_child(work)
        finally:
            assert not _mount("-o", f"remount,size={ROOMY}k", str(position))


def _mount(*arguments: str) -> int:
    return subprocess.run(["mount", *arguments], capture_output=True).returncode
