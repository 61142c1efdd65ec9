"""Labels that people give to replies: a CSV file with a row a reply, which a spreadsheet opens.

    conversation,turn,flow,epoch,label,question,reference,reply
    laws-001,0,tools,0,1,How long is half-time?,At most 15 minutes.,A quarter of an hour.

A label is a number from 0 (bad) to 1 (good), or empty where nobody has looked. Only the first five columns are read,
in whatever order, and `epoch` may be missing. A file is written to by its own header; its cells stay as they are.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.errors import DatasetError
from agentlab.core.escaping import as_csv_cell
from agentlab.core.files import MAX_GENERATED_FILE_BYTES, read_bytes, write_atomically

KEYS = ("conversation", "turn", "flow", "epoch")
COLUMNS = (*KEYS, "label", "question", "reference", "reply")
NEEDED = (*KEYS[:3], "label")
ReplyKey = tuple[str, str, int, int]
"""Flow, conversation, turn, epoch."""
_MARK = "\ufeff"
"""The byte order mark with which some programs begin a file in UTF-8."""


class _Table:
    """A file as it is: its columns and, with their lines, its rows; empty if there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = read_bytes(path, MAX_GENERATED_FILE_BYTES).decode() if path.exists() else ""
        reader = csv.DictReader(io.StringIO(self._text.removeprefix(_MARK), newline=""))
        self.rows: list[tuple[int, dict[Any, Any]]] = [(reader.line_num, row) for row in reader]
        self.columns = [*(reader.fieldnames or ())]

    def replies(self) -> list[tuple[ReplyKey, int, dict[Any, Any]]]:
        """The rows by the cells that name their replies; raises DatasetError where one names none."""
        found = []
        for line, row in self.rows:
            try:
                key = row["flow"], row["conversation"], int(row["turn"]), int(row.get("epoch") or 0)
            except (KeyError, TypeError, ValueError):
                raise DatasetError("turn and epoch are whole numbers", self._path, line) from None
            found.append((key, line, row))
        return found

    def write(self) -> None:
        """Replace the file; what a row has beyond the columns, or lacks of them, stays so. Raises OSError."""
        written = io.StringIO(newline="")
        is_unix = "\n" in self._text and "\r\n" not in self._text
        writer = csv.writer(written, lineterminator="\n" if is_unix else "\r\n")
        writer.writerow(self.columns)
        for _, row in self.rows:
            cells = [*map(row.get, self.columns), *row.get(None, [])]
            while cells[-1] is None:
                cells.pop()
            writer.writerow(cells)
        write_atomically(self._path.resolve(), _MARK * self._text.startswith(_MARK) + written.getvalue())


def read_labels(path: Path, known: Iterable[ReplyKey]) -> dict[ReplyKey, float | None]:
    """Return the label of each reply that the file names, None if it is empty; raises DatasetError with file and line.

    A row calls a reply by its own name, as by hand, or by the cells that are written for it.
    """
    named = {reply: reply for reply in known}
    named = {_in_cells(reply): reply for reply in named} | named
    found: dict[ReplyKey, float | None] = {}
    try:
        table = _Table(path)
    except OSError as problem:
        raise DatasetError(f"cannot be read: {problem.strerror or problem}", path) from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise DatasetError(f"cannot be read: {problem}", path) from None
    if table.columns and (missing := [name for name in NEEDED if name not in table.columns]):
        needed = f"it needs the columns {', '.join(NEEDED)}, separated by commas"
        raise DatasetError(f"there is no column {missing[0]!r}; {needed}", path)
    for cells, line, row in table.replies():
        flow, conversation, turn, _ = cells
        if (reply := named.get(cells)) is None:
            raise DatasetError(f"the run has no reply to turn {turn} of {conversation} by {flow}", path, line)
        if found.get(reply) is not None:
            raise DatasetError(f"turn {turn} of {reply[1]} by {reply[0]} stands twice", path, line)
        text = (row["label"] or "").strip()
        found[reply] = _number(text, path, line) if text else None
    return found


def _in_cells(reply: ReplyKey) -> ReplyKey:
    """A spreadsheet would run `-1`, so it is written as `'-1`."""
    return str(as_csv_cell(reply[0])), str(as_csv_cell(reply[1])), *reply[2:]


def _number(text: str, path: Path, line: int) -> float:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise DatasetError(f"a label is a number from 0 to 1, and this is {text!r}", path, line)
    return value


def add_rows(path: Path, rows: Sequence[dict[str, Any]]) -> int:
    """Write those that the file does not have yet, for somebody to label; returns how many. Raises OSError."""
    table = _Table(path)
    has = {key for key, *_ in table.replies()}
    fresh = [row for row in rows if has.isdisjoint(_keys_of(row))]
    if fresh:
        wanted = [name for name in COLUMNS if not table.columns or any(row.get(name) for row in fresh)]
        table.columns += [name for name in wanted if name not in table.columns]
        table.rows += [(0, {name: as_csv_cell(row.get(name, "")) for name in table.columns}) for row in fresh]
        table.write()
    return len(fresh)


def set_label(path: Path, row: dict[str, Any]) -> None:
    """Write a label down: into the row of its reply, if the file has one, or else as a new one. Raises OSError."""
    add_rows(path, [row])
    table = _Table(path)
    for key, _, cells in table.replies():
        if key in _keys_of(row):
            cells["label"] = str(row["label"])
    table.write()


def _keys_of(row: dict[str, Any]) -> tuple[ReplyKey, ReplyKey]:
    reply = row["flow"], row["conversation"], row["turn"], row["epoch"]
    return reply, _in_cells(reply)
