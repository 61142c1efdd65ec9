"""The run folder: `run.json`, then `turns.jsonl` and `calls.jsonl` line by line while the run goes on.

A line is written whole or not at all, so a killed run loses at most the turn it was in, and one whose disk is full goes
on from there with --resume. What is read back is folded anew; nothing in the folder is a running total.
"""

from __future__ import annotations

import contextlib
import json
import logging
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from agentlab.core.errors import RunError
from agentlab.core.events import Event, revive, to_row
from agentlab.core.files import (
    append_whole,
    cut_unfinished_line,
    lines_of,
    open_file,
    read_bytes,
    remove_leftovers,
    replace_file,
)
from agentlab.core.messages import from_json
from agentlab.core.strict_json import parse_json
from agentlab.core.trace import Trace, check_conservation
from agentlab.evals.results.rows import Count, Header, Play, ScoreRow, TurnRow, encode
from agentlab.evals.run.seal import FILES, PLAYED, check_seal, sealed

FORMAT = 2
READABLE = (1, 2)
"""Format 1 has no `graders` in its header and no `background` in its ledger: such a run can be opened and its flows be
compared with each other, but it cannot be continued, nor compared with another run."""
LOCK = ".lock"
_DAMAGED = "the file was damaged or edited; take it from a copy, or run again"
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

    def faults(self, *, complete: bool = True) -> dict[Play, str]:
        """Of every conversation that does not add up, what is wrong with it."""
        answered = {(*row.play, row.turn) for row in self.turns}
        found: dict[Play, str] = {}
        for play, trace in self.traces.items():
            # A turn that a kill cut short may have lost the steps that were open; what it cost still counts.
            whole = [event for event in trace.events if complete or (*play, event.turn) in answered]
            try:
                check_conservation(whole, "/".join(map(str, play)))
            except RunError as problem:
                found[play] = str(problem)
        for row in self.turns:
            trace = self.traces.get(row.play, Trace(*row.play))
            if not trace.totals(row.turn).agrees_with(row.totals):
                found.setdefault(row.play, f"turn {row.turn} does not add up to its calls")
        return found


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
        folder.write_json("run.json", {"format": FORMAT, "sealed": True, **header})
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """An existing run; raises RunError where it is none, or of a format this version cannot read."""
        folder = cls(path)
        folder.header  # noqa: B018 - raises what it raises
        return folder

    def write_json(self, name: str, content: Any) -> None:
        """Replace a file in one step, so that it is never half-written; the summary is sealed with what is there."""
        with self._writing(name):
            if name == "summary.json":
                content = sealed(self.path, json.loads(encode(content)))
            replace_file(self.path / name, encode(content, indent=2) + "\n")
            if name == "run.json" and (self.path / "summary.json").exists():
                self.write_json("summary.json", self.read_json("summary.json", ""))

    def append_event(self, trace: Trace, event: Event) -> None:
        where = {"flow": trace.flow, "conversation": trace.conversation, "epoch": trace.epoch, "take": trace.take}
        self._append("calls.jsonl", {**where, **to_row(event)})

    def append_turn(self, row: TurnRow) -> None:
        self._append("turns.jsonl", row)

    def write_scores(self, rows: list[ScoreRow]) -> None:
        with self._writing("scores.jsonl"):
            replace_file(self.path / "scores.jsonl", "".join(encode(row) + "\n" for row in rows))

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
        line = encode(row).encode("utf-8", "backslashreplace")
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

    def reopen(self) -> None:
        """Go on with a run that may have ended: its seal is checked, and with the summary it goes; raises RunError."""
        if self.summary_file.exists():
            self.check_seal(("run.json", *PLAYED))
            with self._writing("summary.json"):
                self.summary_file.unlink()

    def mend(self) -> None:
        """Cut off a last line that a killed run left unfinished, and delete half-written files."""
        for name in ("turns.jsonl", "calls.jsonl"):
            if (self.path / name).exists():
                with self._writing(name):
                    cut_unfinished_line(self.path / name)
        with self._writing(""):
            remove_leftovers(self.path)

    # Reading.

    @property
    def summary_file(self) -> Path:
        return self.path / "summary.json"

    def check_seal(self, names: Sequence[str] = FILES) -> bool:
        """Whether the run has ended and is sealed; raises RunError for a file of `names` that was edited since."""
        summary = self.read_json("summary.json", "") if self.summary_file.exists() else None
        return summary is not None and check_seal(self.path, summary, self.header, names)

    @property
    def header(self) -> dict[str, Any]:
        header: dict[str, Any] = self.read_json("run.json", " is not a run folder: there is no run.json")
        form = header.get("format") if isinstance(header, dict) else None
        if type(form) is int and form not in READABLE:
            known = " and ".join(map(str, READABLE))
            raise RunError(f"{self.path}: this is run format {form}, agentlab reads formats {known}")
        try:
            from_json(Header, header)
        except ValueError as problem:
            raise RunError(f"{self.path / 'run.json'} is not the header of a run: {problem}") from None
        return header

    def read_json(self, name: str, missing: str) -> Any:
        """The content of a file; raises RunError where it cannot be read, and with `missing` where it is not there."""
        try:
            return parse_json(read_bytes(self.path / name, links=False))
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{self.path}{missing}") from None
        except OSError as problem:
            raise RunError(f"{self.path / name} cannot be read: {problem.strerror}") from None
        except ValueError as problem:
            raise RunError(f"{self.path / name} cannot be read: {problem}; {_DAMAGED}") from None

    def scores(self) -> list[ScoreRow]:
        return list(self.rows("scores.jsonl", lambda content: from_json(ScoreRow, content)))

    def rows(self, name: str, read: Callable[[Any], _Row]) -> Iterator[_Row]:
        """What `read` makes of each line; an unfinished last one is left out, any other that is broken a RunError."""
        file = self.path / name
        number = 0
        try:
            with open_file(file, links=False) as lines:
                for line in lines_of(lines):
                    number += 1
                    if not line.endswith(b"\n"):
                        return
                    yield read(parse_json(line))
        except FileNotFoundError:
            return
        except OSError as problem:
            raise RunError(f"{file} cannot be read: {problem.strerror}") from None
        except ValueError as problem:
            raise RunError(f"{file}:{number}: {problem}; {_DAMAGED}") from None

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

        for play, take, event in self.rows("calls.jsonl", _call):
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
        kept = [row for row in turns if row.take == takes[row.play]]
        # Rows stand in the file as turns ended; in one order, sums and means of floats are the same to the bit.
        return Played(takes, sorted(kept, key=lambda row: (*row.play, row.turn)), traces, abandoned)


class _Place(Struct):
    flow: str
    conversation: str
    epoch: int
    take: Count


def _call(content: Any) -> tuple[Play, int, Event]:
    """A line of the ledger: the conversation it belongs to, which take of it, and the event."""
    place = from_json(_Place, content)
    return (place.flow, place.conversation, place.epoch), place.take, revive(content)


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


MOST_LOGGED = 64 * 2**20
"""Bytes of a `run.log`."""


class _LogFile(logging.FileHandler):
    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None or self.stream.tell() < MOST_LOGGED:
            super().emit(record)

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
        file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
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
