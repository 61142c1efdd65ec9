"""Run folder: `run.json`, then `turns.jsonl` and `calls.jsonl`, written line by line during the run.

A line is written completely or not at all. So a killed run loses at most its running turns, and `--resume` continues
a run that stopped on a full disk. A live event is written at once, a replayed one with its turn's row. A turn's row
comes after all its events. The folder contains no running total. Tables and comparisons read turn rows only; traces
are read one at a time.

`run.log` has the messages of our loggers during a run; a chat writes a `chat.log` in the same way.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

from agentlab.core import secrets
from agentlab.core.errors import RunError, os_errors_as
from agentlab.core.escaping import LogFormatter
from agentlab.core.events import Event
from agentlab.core.files import (
    MAX_STREAMED_FILE_BYTES,
    MAX_USER_FILE_BYTES,
    AppendOnlyFile,
    ReadOnlyFile,
    open_log,
    remove_temp_files,
    truncate_partial_line,
    write_atomically,
)
from agentlab.core.messages import from_json
from agentlab.core.strict_json import parse_json
from agentlab.core.trace import Trace
from agentlab.data.conversations import Conversation
from agentlab.evals.store.checksums import RunWriteError, verify_checksums, with_checksums
from agentlab.evals.store.ledger import Ledger, LedgerEncoder, iter_rows
from agentlab.evals.store.rows import RESTART_MARKER, Header, TrialKey, TurnFigures, TurnRow, encode, encode_line

FORMAT = 4
"""Format of new runs; format 3 has no `conversations.json` and is read, too."""
EXPECTED = "conversations.json"
"""Conversations with their expectations, by name, so that a copy of the folder needs no data set."""
LOCK = ".lock"
_DAMAGED = "the file was damaged or edited; restore it from a copy, or run again"
TURNS, CALLS = ROWS = ("turns.jsonl", "calls.jsonl")


class RunFolder:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.summary_file = path / "summary.json"
        self._failure: RunError | None = None
        self._is_open = False
        """True if rows were written after the last summary."""
        self.has_checksums = False
        """True if the files match the checksums; False for a running run and for one from before checksums."""
        self._waiting: list[bytes] = []
        """Lines of replayed events, which are written before the next live event or turn row."""
        self._files = {name: AppendOnlyFile(path / name) for name in ROWS}
        self._open_files: dict[Path, ReadOnlyFile] = {}
        """Open files; cleared by every write."""

    # Writing.

    @classmethod
    def create(cls, path: Path, header: dict[str, Any]) -> RunFolder:
        """Create a folder with its `run.json`; raises RunError if `path` contains a run or anything else."""
        with os_errors_as(RunError, f"{path} cannot be a run folder: "):
            if (path / "run.json").exists():
                raise RunError(f"{path} already contains a run; continue it with --resume or choose another --out")
            path.mkdir(parents=True, exist_ok=True)
            remove_temp_files(path)
            if any(file.name != LOCK for file in path.iterdir()):
                raise RunError(f"{path} is not empty and contains no run; choose another --out")
        folder = cls(path)
        folder.write_json("run.json", {"format": FORMAT, "sealed": True, **header})
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """Open a run folder; raises RunError if it is none, or has a format that this version cannot read."""
        folder = cls(path)
        for subfolder in (path / "shards", path / "judges", *path.glob("shards/*"), *path.glob("judges/*")):
            if subfolder.is_symlink():
                raise RunError(f"{subfolder} cannot be used: it is a link; replace it with the folder")
        header = folder.header
        version = header.get("format") if isinstance(header, dict) else None
        if type(version) is int and version not in (3, FORMAT):
            reads = f"agentlab reads formats 3 and {FORMAT}"
            raise RunError(f"{path / 'run.json'}: this is run format {version}, {reads}; run it again")
        try:
            from_json(Header, header)
        except ValueError as problem:
            raise RunError(f"{path / 'run.json'} is not the header of a run: {problem}") from None
        return folder

    def write_expected(self, conversations: Mapping[str, Conversation]) -> None:
        """Store the conversations of the run with their expectations, by name."""
        fields = {*Conversation.model_fields}
        rows = {
            name: each.model_dump(mode="json", exclude_defaults=True, include=fields)
            for name, each in conversations.items()
        }
        self.write_json(EXPECTED, rows)

    @cached_property
    def expected(self) -> dict[str, Conversation] | None:
        """Stored conversations by name; None for a run of format 3. Raises RunError for a damaged file."""
        if not self.files(EXPECTED):
            return None
        try:
            rows = self.read_json(EXPECTED, ": its conversations are missing")
            return {name: Conversation.model_validate_json(json.dumps(row)) for name, row in rows.items()}
        except (AttributeError, ValueError):
            raise RunError(f"{self.path / EXPECTED} cannot be read; {_DAMAGED}") from None

    def write_json(self, name: str, content: Any) -> None:
        """Replace a file atomically; a summary gets the checksums of all files."""
        summary = self.read_json("summary.json", "") if name == "run.json" and self.summary_file.exists() else None
        if summary is not None:
            self.drop_summary()
        with self._writing(name):
            content, _ = secrets.redact_json(json.loads(encode(content)))
            if name == "summary.json":
                content = with_checksums(self.path, content, self._checksummed_files())
                self._is_open = False
            # People read header and summary; indented, a large file takes json's slow encoder.
            indent = 2 if name in ("run.json", "summary.json") else None
            write_atomically(self.path / name, encode(content, indent=indent) + "\n")
            self._drop_caches("header", "summary")
            if name == "summary.json":
                self.has_checksums = True
        if summary is not None:
            self.write_json("summary.json", summary)

    def replace_lines(self, name: str, lines: Iterable[bytes]) -> None:
        """Replace a file atomically."""
        self.drop_summary()
        with self._writing(name):
            write_atomically(self.path / name, b"".join(lines))
            self._drop_caches()

    def ledger_writer(self, trace: Trace) -> Callable[[Trace, Event], None]:
        """Return a listener that writes the events of a trace into the ledger, in their order.

        A paid event is written at once, after those before it. Others cost nothing, so they wait for the next one or
        for the row of their turn.
        """
        encoder = LedgerEncoder(trace)

        def write(_: Trace, event: Event) -> None:
            self._waiting += encoder.of(event)
            if event.is_billable and event.origin != "replay":
                self.flush()

        return write

    def append_turn(self, row: TurnRow) -> None:
        """Append a turn's row, after all events of the turn."""
        self.flush()
        self._write(TURNS, [encode_line(row)])

    def flush(self) -> None:
        """Write the waiting events."""
        if self._waiting:
            lines, self._waiting = self._waiting, []
            self._write(CALLS, lines)

    def _write(self, name: str, lines: Sequence[bytes]) -> None:
        if self._failure is not None:
            # A flow may have caught the first error; no line may follow a missing one.
            raise self._failure
        self.drop_summary()
        with self._writing(name):
            self._files[name].add(b"".join(_lines_without_secrets(lines)))
        self._drop_caches()

    def _drop_caches(self, *names: str) -> None:
        """Drop cached content, after a write."""
        self._open_files.clear()
        for name in ("ledger", *names):
            self.__dict__.pop(name, None)

    @contextlib.contextmanager
    def _writing(self, name: str) -> Iterator[None]:
        try:
            yield
        except OSError as problem:
            self._failure = RunWriteError(self.path / name, problem.strerror or str(problem))
            raise self._failure from None

    def drop_summary(self) -> None:
        """Delete summary.json before anything is appended: it would be stale, and its checksums wrong."""
        self.has_checksums = False
        if not self._is_open:
            with self._writing("summary.json"):
                self.summary_file.unlink(missing_ok=True)
            self._is_open = True
            self._drop_caches("summary")

    def repair(self) -> None:
        """Truncate a last line that a killed run left unfinished, and delete temporary files."""
        for name in ROWS:
            if (self.path / name).exists() or (self.path / name).is_symlink():
                with self._writing(name):
                    truncate_partial_line(self.path / name)
        with self._writing(""):
            remove_temp_files(self.path)
        self._drop_caches()

    # Reading.

    def _checksummed_files(self) -> list[ReadOnlyFile]:
        first = self._open_file(self.path / "run.json")
        return [first, *(file for name in (EXPECTED, TURNS, CALLS) for file in self.open_files(name))]

    def verify_checksums(self, *, regrade: bool = False) -> bool:
        """Return True if the run has ended and has checksums; raises RunError for an edited file.

        With `regrade` an edited summary is accepted, because regrading rewrites it.
        """
        if not self.summary_file.exists():
            return False
        self.has_checksums = verify_checksums(
            self.path, self.summary, self.header, self._checksummed_files(), regrade=regrade
        )
        return self.has_checksums

    @cached_property
    def header(self) -> Mapping[str, Any]:
        header: Mapping[str, Any] = self.read_json("run.json", " is not a run folder: run.json is missing")
        return header

    @cached_property
    def summary(self) -> Any:
        return self.read_json("summary.json", ": the run has not ended; continue it with --resume")

    def read_json(self, name: str, missing: str) -> Any:
        """Return the JSON of a file; raises RunError if it cannot be read, with `missing` if it does not exist."""
        with os_errors_as(RunError, f"{self.path / name} cannot be read: "):
            try:
                return parse_json(self._open_file(self.path / name, MAX_USER_FILE_BYTES).at().read(MAX_USER_FILE_BYTES))
            except (FileNotFoundError, NotADirectoryError):
                raise RunError(f"{self.path}{missing}") from None
            except ValueError as problem:
                raise RunError(f"{self.path / name} cannot be read: {problem}; {_DAMAGED}") from None

    def _open_file(self, path: Path, max_bytes: int = MAX_STREAMED_FILE_BYTES) -> ReadOnlyFile:
        if path not in self._open_files:
            self._open_files[path] = ReadOnlyFile(path, max_bytes)
        return self._open_files[path]

    def files(self, name: str) -> list[Path]:
        """Return the files of rows called `name`: those of the shards, then the run's own."""
        # Regraded rows are in the run's own file, so it is read last.
        existing = [file for file in (*sorted(self.path.glob(f"shards/*/{name}")), self.path / name) if file.exists()]
        for file in existing:
            if file.is_symlink():
                raise RunError(f"{file} cannot be read: it is a link; replace it with the file")
        return existing

    def open_files(self, name: str) -> list[ReadOnlyFile]:
        """Return the files of rows called `name`, open; each stays open until the next write."""
        with os_errors_as(RunError, f"{self.path / name} cannot be read: "):
            return [self._open_file(file) for file in self.files(name)]

    def turns(self) -> list[TurnRow]:
        """Return the turns of a run, by flow, conversation, epoch and number."""
        return [*self.latest_turns()]

    def latest_turns(
        self, wanted: Callable[[TurnRow], bool] = lambda row: True, *, texts: bool = True
    ) -> Iterator[TurnRow]:
        """Yield the turns that are `wanted`, by flow, conversation, epoch and number, perhaps without their `texts`.

        Only the last attempt of a trial counts, and only the last row of a regraded turn.
        """
        trials: dict[TrialKey, tuple[int, dict[int, TurnRow]]] = {}
        kind = TurnRow if texts else TurnFigures
        for row in chain.from_iterable(iter_rows(file, kind) for file in self.open_files(TURNS)):
            if wanted(row):
                last = trials.get(row.trial)
                if last is None or row.take > last[0]:
                    last = trials[row.trial] = row.take, {}
                if row.take == last[0]:
                    last[1][row.turn] = row
        # The file has rows in the order in which turns ended; sorted, sums of floats are equal to the bit.
        for trial in sorted(trials):
            _, turns = trials.pop(trial)
            yield from (turns[turn] for turn in sorted(turns) if turn != RESTART_MARKER)

    def secrets(self) -> int:
        """Return the number of redacted secrets in its rows."""
        mark = json.dumps(secrets.REDACTED)[1:-1].encode()
        files = (*self.open_files(TURNS), *self.open_files(CALLS))
        return sum(line.count(mark) for file in files for line in file.at())

    @cached_property
    def ledger(self) -> Ledger:
        """Traces, each decoded on access."""
        return Ledger(self.open_files(CALLS))


def _lines_without_secrets(lines: Sequence[bytes]) -> Sequence[bytes]:
    text = b"".join(lines).decode("utf-8", "surrogatepass")
    if secrets.redact(text) == text:
        return lines
    return [encode_line(secrets.redact_json(json.loads(line))[0]) for line in lines]


@contextlib.contextmanager
def lock_run_folder(path: Path, seconds: float = 0.0) -> Iterator[None]:
    """Lock the folder for this run; raises RunError if another run holds the lock for `seconds`."""
    from filelock import FileLock, Timeout

    with contextlib.ExitStack() as lock:
        with os_errors_as(RunError, f"{path} cannot be a run folder: "):
            try:
                path.mkdir(parents=True, exist_ok=True)
                lock.enter_context(FileLock(path / LOCK, timeout=seconds))
            except Timeout:
                raise RunError(f"another run uses {path}; wait for it or choose another --out") from None
            except (FileExistsError, NotADirectoryError):
                raise RunError(f"{path} cannot be a run folder: a file is in the way") from None
        yield


MAX_LOG_BYTES = 64 * 2**20
"""Largest size of a log."""


class _LogFile(logging.FileHandler):
    def _open(self) -> Any:
        return open_log(Path(self.baseFilename))

    def emit(self, record: logging.LogRecord) -> None:
        if self.stream is None or self.stream.tell() < MAX_LOG_BYTES:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - the library's name
        """Ignore a line that cannot be written; the run reports a full disk itself."""


@contextlib.contextmanager
def run_log(name: str = "run.log", level: int = logging.DEBUG) -> Iterator[Callable[[Path], None]]:
    """Buffer the messages of our loggers from `level` on; call the yielded function to write them to a folder."""
    buffer = MemoryHandler(capacity=1)
    logger = logging.getLogger("agentlab")
    level_before = logger.level

    def write_to(folder: Path) -> None:
        with os_errors_as(RunError, f"{folder / name} cannot be written: "):
            file = _LogFile(folder / name)
        file.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        buffer.setTarget(file)
        buffer.flush()

    logger.addHandler(buffer)
    logger.setLevel(level)
    try:
        yield write_to
    finally:
        logger.removeHandler(buffer)
        logger.setLevel(level_before)
        if buffer.target is not None:
            buffer.target.close()
        buffer.close()
