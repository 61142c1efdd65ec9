"""Labels that people give to replies: a CSV file with a row a reply, which a spreadsheet opens.

    conversation,turn,flow,epoch,label,question,reference,reply
    laws-001,0,tools,0,1,How long is half-time?,At most 15 minutes.,A quarter of an hour.

A label is a number from 0 (bad) to 1 (good), or empty where nobody has looked. Only the first five columns are read.
"""

from __future__ import annotations

import contextlib
import csv
import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agentlab.core.errors import DatasetError
from agentlab.core.files import append_whole, open_file, replace_file
from agentlab.core.shown import as_cell

KEYS = ("conversation", "turn", "flow", "epoch")
COLUMNS = (*KEYS, "label", "question", "reference", "reply")
Reply = tuple[str, int, str, int]
"""Conversation, turn, flow, epoch."""


def read_labels(path: Path, known: Iterable[Reply]) -> dict[Reply, float]:
    """The labels of a file, without the empty ones; raises DatasetError with file and line."""
    replies = set(known)
    found: dict[Reply, float] = {}
    try:
        with _opened(path) as rows:
            missing = [name for name in (*KEYS[:3], "label") if name not in (rows.fieldnames or ())]
            if missing:
                raise DatasetError(f"there is no column {missing[0]!r}; it has {', '.join(COLUMNS)}", path)
            for row in rows:
                reply = _reply(row, path, rows.line_num)
                if reply not in replies:
                    raise DatasetError(
                        f"the run has no reply to turn {reply[1]} of {reply[0]} by {reply[2]}", path, rows.line_num
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


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[csv.DictReader[str]]:
    with open_file(path) as file, io.TextIOWrapper(file, "utf-8-sig", newline="") as text:
        yield csv.DictReader(text)


def _reply(row: dict[str, str], path: Path, line: int) -> Reply:
    try:
        return row["conversation"], int(row["turn"]), row["flow"], int(row.get("epoch") or 0)
    except (TypeError, ValueError):
        raise DatasetError("turn and epoch are whole numbers", path, line) from None


def _number(text: str, path: Path, line: int) -> float:
    try:
        value = float(text.replace(",", "."))
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise DatasetError(f"a label is a number from 0 to 1, and this is {text!r}", path, line)
    return value


def add_rows(path: Path, rows: Sequence[dict[str, object]]) -> int:
    """Write those that the file does not have yet, for somebody to label; returns how many. Raises OSError."""
    has: set[tuple[str, ...]] = set()
    begun = path.exists() and path.stat().st_size > 0
    if begun:
        with _opened(path) as known:
            has = {tuple(str(row.get(name) or "") for name in KEYS) for row in known}
    fresh = [row for row in rows if tuple(str(row[name]) for name in KEYS) not in has]
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, COLUMNS)
    if not begun:
        writer.writeheader()
    for row in fresh:
        writer.writerow({name: as_cell(row.get(name, "")) for name in COLUMNS})
    append_whole(path, written.getvalue().encode("utf-8", "backslashreplace"))
    return len(fresh)


def rows_of(path: Path) -> list[Reply]:
    """The replies that a file has a row for, labelled or not; raises DatasetError."""
    with _opened(path) as rows:
        return [_reply(row, path, rows.line_num) for row in rows]


def set_label(path: Path, row: dict[str, object]) -> None:
    """Write a label down: into the row of its reply, if the file has one, or else as a new one. Raises OSError."""
    add_rows(path, [row])
    with _opened(path) as reader:
        names, rows = list(reader.fieldnames or COLUMNS), list(reader)
    for known in rows:
        if all(str(known.get(name) or "") == str(row[name]) for name in KEYS):
            known["label"] = str(row["label"])
    written = io.StringIO(newline="")
    writer = csv.DictWriter(written, names)
    writer.writeheader()
    writer.writerows(rows)
    replace_file(path, written.getvalue())
