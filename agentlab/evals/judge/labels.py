"""Human labels of replies: a CSV file with one row per reply, which a spreadsheet opens.

    conversation,turn,flow,epoch,label,question,reference,reply
    laws-001,0,tools,0,1,How long is half-time?,At most 15 minutes.,A quarter of an hour.

A label is a number from 0 (bad) to 1 (good), or empty. Only the first five columns are read, in any order, and `epoch`
may be missing. Writing keeps the file's own header and the other cells.
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
"""Byte order mark that some programs write at the start of a UTF-8 file."""


class _Table:
    """Columns of a label file and its rows, as line numbers and cells; empty if there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._text = read_bytes(path, MAX_GENERATED_FILE_BYTES).decode() if path.exists() else ""
        reader = csv.reader(io.StringIO(self._text.removeprefix(_MARK), newline=""))
        rows = [(reader.line_num, cells) for cells in reader if cells]
        self.columns = rows[0][1] if rows else []
        self.rows = rows[1:]

    def replies(self) -> list[tuple[ReplyKey, int, dict[str, Any]]]:
        """Return key, line and cells by column of each row; raises DatasetError for a bad turn or epoch."""
        rows = []
        for line, cells in self.rows:
            row: dict[str, Any] = {**dict.fromkeys(self.columns), **dict(zip(self.columns, cells, strict=False))}
            try:
                key = row["flow"], row["conversation"], int(row["turn"]), int(row.get("epoch") or 0)
            except (KeyError, TypeError, ValueError):
                raise DatasetError("turn and epoch must be whole numbers", self._path, line) from None
            rows.append((key, line, row))
        return rows

    def write(self) -> None:
        """Replace the file; rows keep extra and missing cells. Raises OSError."""
        written = io.StringIO(newline="")
        is_unix = "\n" in self._text and "\r\n" not in self._text
        writer = csv.writer(written, lineterminator="\n" if is_unix else "\r\n")
        writer.writerows([self.columns, *(cells for _, cells in self.rows)])
        write_atomically(self._path.resolve(), _MARK * self._text.startswith(_MARK) + written.getvalue())


def read_labels(path: Path, keys: Iterable[ReplyKey]) -> dict[ReplyKey, float | None]:
    """Return the label of each reply in the file, None for an empty one; raises DatasetError with file and line.

    `keys` are the replies of the run. A row may name a reply by its key, or as `_in_cells` escapes it.
    """
    by_cells = {reply: reply for reply in keys}
    by_cells = {_in_cells(reply): reply for reply in by_cells} | by_cells
    labels: dict[ReplyKey, float | None] = {}
    try:
        table = _Table(path)
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        raise DatasetError(f"cannot be read: {getattr(problem, 'strerror', None) or problem}", path) from None
    if table.columns and (missing := [name for name in NEEDED if name not in table.columns]):
        needed = f"the file needs the columns {', '.join(NEEDED)}, separated by commas"
        raise DatasetError(f"there is no column {missing[0]!r}; {needed}", path)
    for cells, line, row in table.replies():
        flow, conversation, turn, _ = cells
        if (reply := by_cells.get(cells)) is None:
            raise DatasetError(f"the run has no reply to turn {turn} of {conversation} by {flow}", path, line)
        if labels.get(reply) is not None:
            raise DatasetError(f"duplicate label of turn {turn} of {reply[1]} by {reply[0]}; remove one", path, line)
        text = (row["label"] or "").strip()
        labels[reply] = _number(text, path, line) if text else None
    return labels


def _in_cells(reply: ReplyKey) -> ReplyKey:
    """Return the key as cells: names that a spreadsheet would run as a formula, such as `-1`, are escaped."""
    return str(as_csv_cell(reply[0])), str(as_csv_cell(reply[1])), *reply[2:]


def _number(text: str, path: Path, line: int) -> float:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise DatasetError(f"expected a label from 0 to 1, not {text!r}", path, line)
    return value


def add_rows(path: Path, rows: Sequence[dict[str, Any]]) -> int:
    """Append the rows that the file does not have yet, to be labelled; return their number. Raises OSError."""
    table = _Table(path)
    present = {key for key, *_ in table.replies()}
    fresh = [row for row in rows if present.isdisjoint(_keys_of(row))]
    if fresh:
        columns = [name for name in COLUMNS if not table.columns or any(row.get(name) for row in fresh)]
        table.columns += [name for name in columns if name not in table.columns]
        table.rows += [(0, [str(as_csv_cell(row.get(name, ""))) for name in table.columns]) for row in fresh]
        table.write()
    return len(fresh)


def set_label(path: Path, row: dict[str, Any]) -> None:
    """Write a label into the row of its reply, or append a row for it. Raises OSError."""
    add_rows(path, [row])
    table = _Table(path)
    column = table.columns.index("label")
    for (key, *_), (_, cells) in zip(table.replies(), table.rows, strict=True):
        if key in _keys_of(row):
            cells += [""] * (column - len(cells))
            cells[column : column + 1] = [str(row["label"])]
    table.write()


def _keys_of(row: dict[str, Any]) -> tuple[ReplyKey, ReplyKey]:
    reply = row["flow"], row["conversation"], row["turn"], row["epoch"]
    return reply, _in_cells(reply)
