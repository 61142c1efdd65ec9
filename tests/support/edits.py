"""Finished runs, baselines and recordings with one value edited: each is refused by the name of its file."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import agentlab as al
from agentlab.core.errors import AgentlabError
from agentlab.evals.compare.baselines import read_baseline, write_baseline
from agentlab.wire.recordings import Recordings
from support.child_processes import in_child
from support.mutations import changed, places
from support.replays import play as play_recorded
from support.requests import parts_of
from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set

BATCH = 500
"""Number of edits per child process."""
PLAUSIBLE: list[Callable[[Any], Any]] = [
    lambda value: value + 1 if isinstance(value, (int, float)) else f"{value}.",
    lambda value: 1.0,
    lambda value: 0,
    lambda value: None,
    lambda value: not value,
    lambda value: "the reference",
    lambda value: [],
]
OF_RUN = ("run.json", "turns.jsonl", "calls.jsonl", "summary.json")


def play(cases: int, folder: Path, chance: random.Random, part: str) -> tuple[str, Iterator[str | None]]:
    return f"edits of {', '.join(OF_RUN)}, a baseline and recordings", _cases(cases, folder, chance)


def _cases(cases: int, folder: Path, chance: random.Random) -> Iterator[str | None]:
    for begin in range(0, cases, BATCH):
        count, here, seed = min(BATCH, cases - begin), folder / str(begin), chance.random()
        ended = in_child(lambda h=here, c=count, s=seed: _edit(h, c, s), max_seconds=600)  # type: ignore[misc]
        failures = [line.removeprefix("FAILED ") for line in ended.printed.splitlines() if line.startswith("FAILED ")]
        if ended.code != 0:
            failures.append(f"the process: {ended}")
        yield from failures
        yield from [None] * (count - len(failures))


def _edit(folder: Path, count: int, seed: float) -> int:
    folder.mkdir(parents=True)
    dataset = write_set(folder / "rules", CONVERSATIONS[:2], DOCUMENTS)
    run = play_recorded(dataset, "record", folder / "run", flows=["rag_only"])
    write_baseline(run, folder / "baseline.jsonl")
    (recorded,) = (folder / "recordings").glob("*.jsonl")

    def reads_recordings() -> None:
        recordings = Recordings.open(recorded.parent, recorded.stem)
        for row in recordings.completions():
            parts_of(recordings, row)

    evidence: list[tuple[Path, Callable[[], Any]]] = [
        *((run.path / name, lambda: al.open_run(run.path)) for name in OF_RUN),
        (folder / "baseline.jsonl", lambda: read_baseline(folder / "baseline.jsonl")),
        (recorded, reads_recordings),
    ]
    whole = {file: file.read_text() for file, _ in evidence}
    chance = random.Random(seed)
    for number in range(count):
        file, read = evidence[number % len(evidence)]
        edited, what = _edited(whole[file], chance, by_line=file.suffix == ".jsonl")
        file.write_text(edited)
        try:
            read()
            print(f"FAILED {file.name}: {what} is taken as it is", flush=True)
        except AgentlabError as refused:
            # After an edit of a checksum the error names the file of that checksum.
            named = what.split()[0].removeprefix("seal.") if what.startswith("seal.") else file.name
            if named not in str(refused) and file.name not in str(refused):
                print(f"FAILED {file.name}: {what}: {str(refused)[:100]!r}", flush=True)
        file.write_text(whole[file])
    return 0


def _edited(content: str, chance: random.Random, *, by_line: bool) -> tuple[str, str]:
    """Return the content with one changed value, and the name of that value."""
    lines = content.splitlines() if by_line else [content]
    while True:
        number = chance.randrange(len(lines))
        row = json.loads(lines[number])
        way = chance.choice(places(row))
        before = row
        for key in way:
            before = before[key]
        after = chance.choice(PLAUSIBLE)(before)
        if json.dumps(after) != json.dumps(before):
            lines[number] = json.dumps(changed(row, way, after, drop=False))
            return "\n".join(lines) + "\n", f"{'.'.join(map(str, way))} from {before!r:.40} to {after!r:.40}"
