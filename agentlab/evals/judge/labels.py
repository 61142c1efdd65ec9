"""Labels that people give to replies: a CSV file with a row a reply, which a spreadsheet opens.

    conversation,turn,flow,epoch,label,question,reference,reply
    laws-001,0,tools,0,1,How long is half-time?,At most 15 minutes.,A quarter of an hour.

A label is a number from 0 (bad) to 1 (good), or empty where nobody has looked. Only the first five columns are read,
in whatever order, and `epoch` may be missing. A file is written to by its own header; its cells stay as they are.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.errors import DatasetError
from agentlab.core.files import LARGE, open_file, read_bytes, replace_file
from agentlab.core.shown import as_cell

KEYS = ("conversation", "turn", "flow", "epoch")
COLUMNS = (*KEYS, "label", "question", "reference", "reply")
NEEDED = (*KEYS[:3], "label")
Reply = tuple[str, int, str, int]
"""Conversation, turn, flow, epoch."""
_MARK = "\ufeff"
"""With which some programs begin a file in UTF-8."""


def read_labels(path: Path, known: Iterable[Reply]) -> dict[Reply, float]:
    """The labels of a file, without the empty ones; raises DatasetError with file and line."""
    replies = _by_cells(known)
    found: dict[Reply, float] = {}
    try:
        with _opened(path) as rows:
            if rows.fieldnames is None:
                return found  # nothing is written yet
            missing = [name for name in NEEDED if name not in rows.fieldnames]
            if missing:
                needed = f"it needs the columns {', '.join(NEEDED)}, separated by commas"
                raise DatasetError(f"there is no column {missing[0]!r}; {needed}", path)
            for row in rows:
                cells = _reply(row, path, rows.line_num)
                if (reply := replies.get(cells)) is None:
                    raise DatasetError(
                        f"the run has no reply to turn {cells[1]} of {cells[0]} by {cells[2]}", path, rows.line_num
                    )
                if reply in found:
                    raise DatasetError(f"turn {reply[1]} of {reply[0]} by {reply[2]} stands twice", path, rows.line_num)
                text = (row["label"] or "").strip()
                if text:
                    found[reply] = _number(text, path, rows.line_num)
    except OSError as problem:
        raise DatasetError(f"cannot be read: {problem.strerror or problem}", path) from None
    except (UnicodeDecodeError, csv.Error) as problem:
        raise DatasetError(f"cannot be read: {problem}", path) from None
    return found


def unlabelled(path: Path, known: Iterable[Reply]) -> set[Reply]:
    """The replies that a file has a row for, and no label; raises as `read_labels` does."""
    labels, replies = read_labels(path, known := list(known)), _by_cells(known)
    with _opened(path) as rows:
        return {replies[_reply(row, path, rows.line_num)] for row in rows} - labels.keys()


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[csv.DictReader[str]]:
    with open_file(path, LARGE) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        yield csv.DictReader(text)


def _by_cells(known: Iterable[Reply]) -> dict[Reply, Reply]:
    """By what a row may call it: a reply by its own name, as by hand, or by the cells that are written for it."""
    named = {reply: reply for reply in known}
    return {_in_cells(reply): reply for reply in named} | named


def _in_cells(reply: Reply) -> Reply:
    """A spreadsheet would run `-1`, so it is written as `'-1`."""
    return str(as_cell(reply[0])), reply[1], str(as_cell(reply[2])), reply[3]


def _reply(row: dict[str, str], path: Path, line: int) -> Reply:
    try:
        return row["conversation"], int(row["turn"]), row["flow"], int(row.get("epoch") or 0)
    except (KeyError, TypeError, ValueError):
        raise DatasetError("turn and epoch are whole numbers", path, line) from None


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
    text, table = _table(path)
    has = {reply for reply, _ in _rows_in(table, path)}
    fresh = [row for row in rows if has.isdisjoint(_names_of(row))]
    if not fresh:
        return 0
    needed = [name for name in COLUMNS if not table or any(row.get(name) for row in fresh)]
    table = table or [[]]
    missing = [name for name in needed if name not in table[0]]
    if missing:
        # A row may be longer than the header; what it has there is no cell of the new columns.
        table[0] += [""] * (max(map(len, table)) - len(table[0])) + missing
        text = _as_text(table, text)
    elif not text.endswith("\n"):
        text += _line_end(text)
    text += _as_text([[as_cell(row.get(name, "")) for name in table[0]] for row in fresh], text.removeprefix(_MARK))
    replace_file(path.resolve(), text)
    return len(fresh)


def set_label(path: Path, row: dict[str, Any]) -> None:
    """Write a label down: into the row of its reply, if the file has one, or else as a new one. Raises OSError."""
    add_rows(path, [row])
    text, table = _table(path)
    place = table[0].index("label")
    for reply, cells in _rows_in(table, path):
        if reply in _names_of(row):
            cells += [""] * (place + 1 - len(cells))
            cells[place] = str(row["label"])
    replace_file(path.resolve(), _as_text(table, text))


def _table(path: Path) -> tuple[str, list[list[str]]]:
    """A file's text and its cells, the header's first; nothing of one that is not there or empty."""
    if not path.exists():
        return "", []
    text = read_bytes(path, LARGE).decode()
    return text, list(csv.reader(io.StringIO(text.removeprefix(_MARK), newline="")))


def _rows_in(table: list[list[str]], path: Path) -> Iterator[tuple[Reply, list[str]]]:
    for line, cells in enumerate(table[1:], 2):
        if cells:
            yield _reply(dict(zip(table[0], cells, strict=False)), path, line), cells


def _names_of(row: dict[str, Any]) -> tuple[Reply, Reply]:
    reply = row["conversation"], row["turn"], row["flow"], row["epoch"]
    return reply, _in_cells(reply)


def _as_text(table: Iterable[Sequence[object]], old: str) -> str:
    """As CSV, with the first mark and the line ends of the old text."""
    written = io.StringIO(newline="")
    csv.writer(written, lineterminator=_line_end(old)).writerows(table)
    return _MARK * old.startswith(_MARK) + written.getvalue()


def _line_end(text: str) -> str:
    return "\n" if "\n" in text and "\r\n" not in text else "\r\n"
