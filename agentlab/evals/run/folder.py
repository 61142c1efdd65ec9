"""The run folder: `run.json`, then `turns.jsonl` and `calls.jsonl` line by line while the run goes on.

A line is written whole or not at all, so a killed run loses at most the turn it was in, and one whose disk is full goes
on from there with --resume. What is read back is folded anew; nothing in the folder is a running total.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from agentlab.core import secrets
from agentlab.core.errors import RunError
from agentlab.core.events import Event, revive, to_row
from agentlab.core.files import append_whole, remove_leftovers, replace_file
from agentlab.core.messages import from_json
from agentlab.core.shown import LogFormatter
from agentlab.core.trace import Trace
from agentlab.evals.results.rows import Play, ScoreRow, TurnRow, encode

FORMAT = 2
READABLE = (1, 2)
"""Format 1 has no `graders` in its header and no `background` in its ledger: such a run can be opened and its flows be
compared with each other, but it cannot be continued, nor compared with another run."""
LOCK = ".lock"
_Row = TypeVar("_Row")


@dataclass(frozen=True)
class Played:
    """What the flows of a run have done; of a conversation that was begun again, the last take."""

    takes: dict[Play, int]
    """The last take of every conversation that left an event or a turn behind."""
    turns: list[TurnRow]
    """Sorted."""
    traces: dict[Play, Trace]
    """Every conversation's events, revived."""
    abandoned: list[tuple[str, Event]]
    """Events of takes that a later one replaced, with the flow of each: nothing counts them but the bill."""
    secrets: int
    """Texts in all these rows out of which a secret was taken before they were written."""


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._failure: RunError | None = None

    # Writing.

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> RunFolder:
        """A new folder with its `run.json`; raises RunError where a run is there already."""
        try:
            if (path / "run.json").exists():
                raise RunError(f"{path} holds a run already; continue it with --resume or choose another --out")
            path.mkdir(parents=True, exist_ok=True)
            remove_leftovers(path)
            if any(file.name != LOCK for file in path.iterdir()):
                raise RunError(f"{path} is not empty and holds no run; choose another --out")
        except OSError as problem:
            raise RunError(f"{path} cannot be a run folder: {problem.strerror}") from None
        folder = cls(path)
        folder.write_json("run.json", {"format": FORMAT, **header})
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run; raises RunError where it is none, or of a format this version cannot read."""
        folder = cls(path)
        header = folder.header
        if not isinstance(header, dict) or not {"format", "spec", "datasets", "models"} <= set(header):
            raise RunError(f"{path / 'run.json'} is not the header of a run")
        if header["format"] not in READABLE:
            known = " and ".join(map(str, READABLE))
            raise RunError(f"{path}: this is run format {header['format']}, agentlab reads formats {known}")
        return folder

    def write_json(self, name: str, content: Any) -> None:
        """Replace a file in one step, so that it is never half-written."""
        with self._writing(name):
            replace_file(self.path / name, _without_secrets(encode(content, indent=2), indent=2) + "\n")

    def append_event(self, trace: Trace, event: Event) -> None:
        where = {"flow": trace.flow, "conversation": trace.conversation, "epoch": trace.epoch, "take": trace.take}
        self._append("calls.jsonl", {**where, **to_row(event)})

    def append_turn(self, row: TurnRow) -> None:
        self._append("turns.jsonl", row)

    def write_scores(self, rows: list[ScoreRow]) -> None:
        with self._writing("scores.jsonl"):
            replace_file(self.path / "scores.jsonl", "".join(_without_secrets(encode(row)) + "\n" for row in rows))

    def replace_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Replace a file in one step with lines that need not fit in memory."""
        fresh = self.path / f".{name}.{uuid.uuid4().hex}.new"
        try:
            with self._writing(name):
                with fresh.open("wb") as file:
                    file.writelines(lines)
                fresh.replace(self.path / name)
        finally:
            fresh.unlink(missing_ok=True)

    def _append(self, name: str, row: Any) -> None:
        # Half a surrogate pair, which a model may write, becomes its JSON escape.
        line = _without_secrets(encode(row), counted=True).encode("utf-8", "backslashreplace")
        if self._failure is not None:
            # A flow may have survived the first one; nothing is written past a line that is missing.
            raise self._failure
        with self._writing(name):
            append_whole(self.path / name, line + b"\n")
        self.__dict__.pop("played", None)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._failure = RunError(
                f"{self.path / name} cannot be written: {problem.strerror}; what was done is kept: once that is mended,"
                " --resume goes on"
            )
            raise self._failure from None

    def mend(self) -> None:
        """Cut off a last line that a killed run left unfinished, and delete half-written files."""
        for name in ("turns.jsonl", "calls.jsonl"):
            if (self.path / name).exists():
                with self._writing(name), (self.path / name).open("rb+") as file:
                    file.truncate(file.read().rfind(b"\n") + 1)
        with self._writing(""):
            remove_leftovers(self.path)

    # Reading.

    @property
    def header(self) -> dict[str, Any]:
        header: dict[str, Any] = self.read_json("run.json", " is not a run folder: there is no run.json")
        return header

    def read_json(self, name: str, missing: str) -> Any:
        """The content of a file; raises RunError where it cannot be read, and with `missing` where it is not there."""
        try:
            return json.loads((self.path / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{self.path}{missing}") from None
        except (OSError, ValueError) as problem:
            raise RunError(f"{self.path / name} cannot be read: {problem}") from None

    def scores(self) -> list[ScoreRow]:
        return list(self.rows("scores.jsonl", lambda content: from_json(ScoreRow, content)))

    def rows(self, name: str, read: Callable[[Any], _Row]) -> Iterator[_Row]:
        """What `read` makes of each line; an unfinished last one is left out, any other that is broken a RunError."""
        file = self.path / name
        if not file.exists():
            return
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    return
                try:
                    yield read(json.loads(line))
                except (KeyError, ValueError) as problem:
                    raise RunError(f"{file}:{number}: {type(problem).__name__}: {problem}") from None

    @cached_property
    def played(self) -> Played:
        """Of all lines; read anew once there are more."""
        takes: dict[Play, int] = {}
        traces: dict[Play, Trace] = {}
        abandoned: list[tuple[str, Event]] = []

        def begin(play: Play, take: int) -> None:
            takes[play] = take
            if play in traces:
                abandoned.extend((play[0], event) for event in traces[play].events)

        removed = 0
        for play, take, event, held in self.rows("calls.jsonl", _call):
            removed += held
            if take > takes.get(play, -1):
                begin(play, take)
                traces[play] = Trace(*play, take=take)
            if take == takes[play]:
                traces[play].events.append(event)
            else:
                abandoned.append((play[0], event))
        turns = list(self.rows("turns.jsonl", lambda content: from_json(TurnRow, content)))
        for row in turns:
            if row.take > takes.get(row.play, -1):
                begin(row.play, row.take)
                traces.pop(row.play, None)
        removed += sum(row.secrets or 0 for row in turns)
        kept = [row for row in turns if row.take == takes[row.play]]
        # Rows stand in the file as turns ended; in one order, sums and means of floats are the same to the bit.
        return Played(takes, sorted(kept, key=lambda row: (*row.play, row.turn)), traces, abandoned, removed)


class _Place(Struct):
    flow: str
    conversation: str
    epoch: int
    take: int
    secrets: int = 0


def _call(content: Any) -> tuple[Play, int, Event, int]:
    """A line of the ledger: its conversation, which take of that, the event, and how many secrets it held."""
    place = from_json(_Place, content)
    return (place.flow, place.conversation, place.epoch), place.take, revive(content), place.secrets


def _without_secrets(encoded: str, *, indent: int | None = None, counted: bool = False) -> str:
    """JSON without secrets; `counted`: an object that held some says in how many of its texts."""
    if secrets.scrub(encoded) == encoded:
        return encoded
    value, count = secrets.scrubbed(json.loads(encoded))
    return encode({**value, "secrets": count} if counted and count else value, indent)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep every other run out of the folder; raises RunError where one is at work there."""
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as held:
        try:
            path.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(path / LOCK, timeout=0))
        except Timeout:
            raise RunError(f"another run is at work in {path}; wait for it or choose another --out") from None
        except (FileExistsError, NotADirectoryError):
            raise RunError(f"{path} cannot be a run folder: a file is in the way") from None
        except OSError as problem:
            raise RunError(f"{path} cannot be a run folder: {problem.strerror}") from None
        yield


class _LogFile(logging.FileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Pass over a line that cannot be written: what matters is said by the run itself."""


@contextlib.contextmanager
def run_log() -> Iterator[Callable[[Path], None]]:
    """Keep everything our loggers say meanwhile; it stands in `run.log` of a folder once it is told which."""
    kept = MemoryHandler(capacity=1)
    ours = logging.getLogger("agentlab")
    level = ours.level

    def write_to(folder: Path) -> None:
        try:
            file = _LogFile(folder / "run.log", encoding="utf-8")
        except OSError as problem:
            raise RunError(f"{folder / 'run.log'} cannot be written: {problem.strerror}") from None
        file.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        kept.setTarget(file)
        kept.flush()

    ours.addHandler(kept)
    ours.setLevel(logging.DEBUG)
    try:
        yield write_to
    finally:
        ours.removeHandler(kept)
        ours.setLevel(level)
        if kept.target is not None:
            kept.target.close()
        kept.close()
