"""The run folder: `run.json`, then `turns.jsonl` and `calls.jsonl` line by line while the run goes on.

A line is written whole and flushed, so a killed run loses at most the turn it was in. What is read back is folded anew;
nothing in the folder is a running total.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from agentlab.errors import RunError
from agentlab.events import Event, revive, to_row
from agentlab.trace import Trace

FORMAT = 1
Play = tuple[str, str, int]
"""Flow label, conversation id, epoch."""


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path

    # Writing.

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> RunFolder:
        """A new folder with its `run.json`; raises RunError where a run is there already."""
        if (path / "run.json").exists():
            raise RunError(f"{path} holds a run already; continue it with --resume or choose another --out")
        if path.exists() and any(path.iterdir()):
            raise RunError(f"{path} is not empty and holds no run; choose another --out")
        path.mkdir(parents=True, exist_ok=True)
        folder = cls(path)
        folder.write_json("run.json", {"format": FORMAT, **header})
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run; raises RunError where it is none, or of a format this version cannot read."""
        folder = cls(path)
        header = folder.header
        if header.get("format") != FORMAT:
            raise RunError(f"{path}: this is run format {header.get('format')}, agentlab reads format {FORMAT}")
        return folder

    def write_json(self, name: str, content: Any) -> None:
        """Replace a file in one step, so that it is never half-written."""
        fresh = self.path / f".{name}.new"
        fresh.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        fresh.replace(self.path / name)

    def append_event(self, trace: Trace, event: Event) -> None:
        where = {"flow": trace.flow, "conversation": trace.conversation, "epoch": trace.epoch, "take": trace.take}
        self._append("calls.jsonl", {**where, **to_row(event)})

    def append_turn(self, row: dict[str, Any]) -> None:
        self._append("turns.jsonl", row)

    def write_scores(self, rows: list[dict[str, Any]]) -> None:
        fresh = self.path / ".scores.jsonl.new"
        with fresh.open("w", encoding="utf-8") as file:
            file.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        fresh.replace(self.path / "scores.jsonl")

    def _append(self, name: str, row: dict[str, Any]) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")

    def mend(self) -> None:
        """Cut off a last line that a killed run left unfinished."""
        for name in ("turns.jsonl", "calls.jsonl"):
            file = self.path / name
            if file.exists():
                content = file.read_bytes()
                whole = content[: content.rfind(b"\n") + 1]
                if whole != content:
                    file.write_bytes(whole)

    # Reading.

    @property
    def header(self) -> dict[str, Any]:
        try:
            header: dict[str, Any] = json.loads((self.path / "run.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise RunError(f"{self.path} is not a run folder: there is no run.json") from None
        except ValueError as problem:
            raise RunError(f"{self.path / 'run.json'} is not JSON: {problem}") from None
        return header

    def rows(self, name: str) -> Iterator[dict[str, Any]]:
        """The lines of a file; an unfinished last line is left out, any other broken line is a RunError."""
        file = self.path / name
        if not file.exists():
            return
        with file.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith("\n"):
                    return
                try:
                    yield json.loads(line)
                except ValueError as problem:
                    raise RunError(f"{file}:{number}: not JSON: {problem}") from None

    def turns(self) -> list[dict[str, Any]]:
        """One row a turn; of a conversation that was begun again, the last take."""
        rows = list(self.rows("turns.jsonl"))
        last = _last_takes(rows)
        return [row for row in rows if row["take"] == last[play_of(row)]]

    def traces(self) -> dict[Play, Trace]:
        """Every conversation's events, revived; of a conversation that was begun again, the last take."""
        rows = list(self.rows("calls.jsonl"))
        last = _last_takes(rows)
        traces: dict[Play, Trace] = {}
        for row in rows:
            play = play_of(row)
            if row["take"] == last[play]:
                trace = traces.setdefault(play, Trace(*play, take=row["take"]))
                trace.events.append(revive(row))
        return traces

    def takes(self) -> dict[Play, int]:
        """The last take of every conversation that left an event or a turn behind."""
        return _last_takes([*self.rows("calls.jsonl"), *self.rows("turns.jsonl")])


def play_of(row: dict[str, Any]) -> Play:
    return row["flow"], row["conversation"], row["epoch"]


def _last_takes(rows: list[dict[str, Any]]) -> dict[Play, int]:
    last: dict[Play, int] = {}
    for row in rows:
        play = play_of(row)
        last[play] = max(last.get(play, 0), row["take"])
    return last
