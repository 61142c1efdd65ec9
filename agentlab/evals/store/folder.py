"""The run folder: `run.json`, then `turns.jsonl` and `calls.jsonl` line by line while the run goes on.

A line is written whole or not at all, so a killed run loses at most the turns it was in and those that were ending, and
one whose disk is full goes on from there with --resume. An event is written when it happens, or with its turn's row if
it is replayed, and a turn's row after all of its events.
Nothing in the folder is a running total. Tables and comparisons read turn rows alone, traces are read one at a time.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from agentlab.core import secrets
from agentlab.core.errors import RunError
from agentlab.core.events import Event
from agentlab.core.files import (
    MAX_STREAMED_FILE_BYTES,
    MAX_USER_FILE_BYTES,
    AppendOnlyFile,
    HeldFile,
    remove_temp_files,
    truncate_partial_line,
    write_atomically,
)
from agentlab.core.messages import from_json
from agentlab.core.strict_json import parse_json
from agentlab.core.trace import Trace
from agentlab.evals.store.atomic_folder import RunWriteError
from agentlab.evals.store.checksums import check_seal, sealed
from agentlab.evals.store.ledger import Ledger, LedgerEncoder, iter_rows
from agentlab.evals.store.rows import RESTART_MARKER, Header, TrialKey, TurnFigures, TurnRow, encode, encode_line

FORMAT = 3
LOCK = ".lock"
_DAMAGED = "the file was damaged or edited; take it from a copy, or run again"
TURNS, CALLS = ROWS = ("turns.jsonl", "calls.jsonl")
_Turn = TypeVar("_Turn", TurnRow, TurnFigures)


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.summary_file = path / "summary.json"
        self._failure: RunError | None = None
        self._is_open = False
        """Whether rows were written since there was a summary."""
        self.is_sealed = False
        """Whether its files were held against its seal: a run that has not ended has none, nor one that is older."""
        self._waiting: list[bytes] = []
        """Lines of replayed events, which are written before the next live event or turn row."""
        self._files = {name: AppendOnlyFile(path / name) for name in ROWS}
        self._held: dict[Path, HeldFile] = {}
        """What was read since something was written."""

    # Writing.

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> RunFolder:
        """A new folder with its `run.json`; raises RunError where a run is there already."""
        try:
            if (path / "run.json").exists():
                raise RunError(f"{path} holds a run already; continue it with --resume or choose another --out")
            path.mkdir(parents=True, exist_ok=True)
            remove_temp_files(path)
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
        for place in (path / "shards", path / "judges", *path.glob("shards/*"), *path.glob("judges/*")):
            if place.is_symlink():
                raise RunError(f"{place} cannot be used: it is a link; put the folder itself in its place")
        header = folder.header
        form = header.get("format") if isinstance(header, dict) else None
        if type(form) is int and form != FORMAT:
            raise RunError(
                f"{path / 'run.json'}: this is run format {form}, agentlab reads format {FORMAT}; run it again"
            )
        try:
            from_json(Header, header)
        except ValueError as problem:
            raise RunError(f"{path / 'run.json'} is not the header of a run: {problem}") from None
        return folder

    def write_json(self, name: str, content: Any) -> None:
        """Replace a file in one step, so that it is never half-written; the summary is sealed with what is there."""
        summary = self.read_json("summary.json", "") if name == "run.json" and self.summary_file.exists() else None
        if summary is not None:
            self.unseal()
        with self._writing(name):
            content, _ = secrets.redact_json(json.loads(encode(content)))
            if name == "summary.json":
                content = sealed(self.path, content, self._sealed_files())
                self._is_open = False
            write_atomically(self.path / name, encode(content, indent=2) + "\n")
            self._read_anew("header", "summary")
            if name == "summary.json":
                self.is_sealed = True
        if summary is not None:
            self.write_json("summary.json", summary)

    def replace_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Replace a file in one step with lines that need not fit in memory."""
        self.unseal()
        fresh = self.path / f".{name}.{uuid.uuid4().hex}.new"
        try:
            with self._writing(name):
                with fresh.open("wb") as file:
                    file.writelines(lines)
                fresh.replace(self.path / name)
                self._read_anew()
        finally:
            fresh.unlink(missing_ok=True)

    def ledger_writer(self, trace: Trace) -> Callable[[Trace, Event], None]:
        """Return a listener that writes the events of a trace into the ledger, in their order.

        An event is written when it happens. While the calls of the trace are replayed, which costs nothing, its events
        wait for the row of their turn.
        """
        encoder, replays = LedgerEncoder(trace), False

        def write(_: Trace, event: Event) -> None:
            nonlocal replays
            if event.is_billable:
                replays = event.origin == "replay"
            self._waiting += encoder.of(event)
            if not replays:
                self.flush()

        return write

    def append_turn(self, row: TurnRow) -> None:
        """Write a turn's row, which says that its events are there."""
        self.flush()
        self._write(TURNS, [encode_line(row)])

    def flush(self) -> None:
        """Write the events that wait."""
        if self._waiting:
            lines, self._waiting = self._waiting, []
            self._write(CALLS, lines)

    def _write(self, name: str, lines: Sequence[bytes]) -> None:
        if self._failure is not None:
            # A flow may have survived the first one; nothing is written past a line that is missing.
            raise self._failure
        self.unseal()
        with self._writing(name):
            self._files[name].add(b"".join(_lines_without_secrets(lines)))
        self._read_anew()

    def _read_anew(self, *kept: str) -> None:
        """Of what was written since it was read."""
        self._held.clear()
        for name in ("ledger", *kept):
            self.__dict__.pop(name, None)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._failure = RunWriteError(self.path / name, problem.strerror or str(problem))
            raise self._failure from None

    def unseal(self) -> None:
        """What is written after the end makes a summary stale, and a kill would break its seal: it goes first."""
        self.is_sealed = False
        if not self._is_open:
            with self._writing("summary.json"):
                self.summary_file.unlink(missing_ok=True)
            self._is_open = True
            self._read_anew("summary")

    def repair(self) -> None:
        """Cut off a last line that a killed run left unfinished, and delete half-written files."""
        for name in ROWS:
            if (self.path / name).exists() or (self.path / name).is_symlink():
                with self._writing(name):
                    truncate_partial_line(self.path / name)
        with self._writing(""):
            remove_temp_files(self.path)
        self._read_anew()

    # Reading.

    def _sealed_files(self) -> list[HeldFile]:
        return [self._hold(self.path / "run.json"), *self.held(TURNS), *self.held(CALLS)]

    def check_seal(self, *, regrade: bool = False) -> bool:
        """Whether the run has ended and is sealed; raises RunError for a file that was edited since.

        With `regrade` the summary may have been: it is about to be made anew.
        """
        if not self.summary_file.exists():
            return False
        self.is_sealed = check_seal(self.path, self.summary, self.header, self._sealed_files(), regrade=regrade)
        return self.is_sealed

    @cached_property
    def header(self) -> Mapping[str, Any]:
        header: Mapping[str, Any] = self.read_json("run.json", " is not a run folder: there is no run.json")
        return header

    @cached_property
    def summary(self) -> Any:
        return self.read_json("summary.json", ": the run has not ended; continue it with --resume")

    def read_json(self, name: str, missing: str) -> Any:
        """The content of a file; raises RunError where it cannot be read, and with `missing` where it is not there."""
        try:
            return parse_json(self._hold(self.path / name, MAX_USER_FILE_BYTES).at().read(MAX_USER_FILE_BYTES))
        except (FileNotFoundError, NotADirectoryError):
            raise RunError(f"{self.path}{missing}") from None
        except OSError as problem:
            raise RunError(f"{self.path / name} cannot be read: {problem.strerror}") from None
        except ValueError as problem:
            raise RunError(f"{self.path / name} cannot be read: {problem}; {_DAMAGED}") from None

    def _hold(self, path: Path, most: int = MAX_STREAMED_FILE_BYTES) -> HeldFile:
        if path not in self._held:
            self._held[path] = HeldFile(path, most)
        return self._held[path]

    def files(self, name: str) -> list[Path]:
        """The files of rows called `name`: those of its shards, and the run's own. No other place lists them."""
        # What is graded anew stands in the run's own, and is read last.
        found = [file for file in (*sorted(self.path.glob(f"shards/*/{name}")), self.path / name) if file.exists()]
        for file in found:
            if file.is_symlink():
                raise RunError(f"{file} cannot be read: it is a link; put the file itself in its place")
        return found

    def held(self, name: str) -> list[HeldFile]:
        """The same, open: each is opened once until something is written."""
        try:
            return [self._hold(file) for file in self.files(name)]
        except OSError as problem:
            raise RunError(f"{self.path / name} cannot be read: {problem.strerror}") from None

    def turns(self) -> list[TurnRow]:
        """The turns of a run, by flow, conversation, epoch and number."""
        return [*self.latest_turns(TurnRow)]

    def latest_turns(self, kind: type[_Turn], wanted: Callable[[_Turn], bool] = lambda row: True) -> Iterator[_Turn]:
        """The turns, those that are `wanted`, in one order.

        Of a conversation that was begun again, the last take; of a turn that was graded anew, the last row.
        """
        found: dict[TrialKey, tuple[int, dict[int, _Turn]]] = {}
        for row in chain.from_iterable(iter_rows(file, kind) for file in self.held(TURNS)):
            if wanted(row):
                last = found.get(row.play)
                if last is None or row.take > last[0]:
                    last = found[row.play] = row.take, {}
                if row.take == last[0]:
                    last[1][row.turn] = row
        # Rows stand in the file as turns ended; in one order, sums and means of floats are the same to the bit.
        for play in sorted(found):
            _, turns = found.pop(play)
            yield from (turns[turn] for turn in sorted(turns) if turn != RESTART_MARKER)

    def secrets(self) -> int:
        """How many secrets were taken out of its rows."""
        mark = json.dumps(secrets.REDACTED)[1:-1].encode()
        files = (*self.held(TURNS), *self.held(CALLS))
        return sum(line.count(mark) for file in files for line in file.at())

    @cached_property
    def ledger(self) -> Ledger:
        """The traces, each decoded when it is asked for."""
        return Ledger(self.held(CALLS))


def _lines_without_secrets(lines: Sequence[bytes]) -> Sequence[bytes]:
    text = b"".join(lines).decode("utf-8", "surrogatepass")
    if secrets.redact(text) == text:
        return lines
    return [encode_line(secrets.redact_json(json.loads(line))[0]) for line in lines]


@contextlib.contextmanager
def lock_run_folder(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Keep every other run out of the folder; raises RunError where one is at work there for so long."""
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as held:
        try:
            path.mkdir(parents=True, exist_ok=True)
            held.enter_context(FileLock(path / LOCK, timeout=seconds))
        except Timeout:
            raise RunError(f"another run is at work in {path}; wait for it or choose another --out") from None
        except (FileExistsError, NotADirectoryError):
            raise RunError(f"{path} cannot be a run folder: a file is in the way") from None
        except OSError as problem:
            raise RunError(f"{path} cannot be a run folder: {problem.strerror}") from None
        yield
