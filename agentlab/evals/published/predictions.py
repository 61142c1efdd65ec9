"""Reads answers of other systems from JSON lines or CSV, one row per answer.

{"system": "single", "conversation": "nq_17", "turn": 0, "epoch": 0, "answer": "atoms", "llm_calls": 1,
 "retrieval_steps": 1, "passages": ["nq-4"],
 "published": {"em": 1, "automatic": {"RougeL": 0.4}, "human": {"faithful": {"r1": 4, "r2": 3}}}}

`system`, `conversation`, `turn` and `answer` are required; `epoch` is 0 by default. A null answer is a failed turn, and
`error` may give the reason. Other missing keys are unknown, never 0. `passages` are the ids of the documents that the
answer was made of. If every system had the same documents, `metadata.passages` of the turn names them once.

In CSV each part of `published` has its own column (`published.em`, `published.human.faithful.r1`), and passages are a
JSON list. An empty cell is unknown; an empty answer is a failed turn.
"""

from __future__ import annotations

import codecs
import csv
import io
import math
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from io import BufferedReader
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from agentlab.core.errors import DatasetError, os_errors_as
from agentlab.core.files import iter_lines, open_regular_file
from agentlab.core.jsonl import parse_line
from agentlab.core.messages import from_json
from agentlab.core.strict_json import load_json
from agentlab.evals.store.measures import MAX_VALUE
from agentlab.evals.store.progress import ROWS_BETWEEN_REPORTS

MAX_CELL_CHARS = 10_000_000
Name = Annotated[str, Meta(min_length=1)]
NonNegativeInt = Annotated[int, Meta(ge=0)]
Count = Annotated[int, Meta(ge=0, le=int(MAX_VALUE))] | None
Amount = Annotated[float, Meta(ge=0, le=MAX_VALUE)] | None


class Prediction(Struct, frozen=True, kw_only=True):
    """Row of a predictions file; None is unknown."""

    system: Name
    conversation: Name
    turn: NonNegativeInt
    epoch: NonNegativeInt = 0
    answer: str | None
    error: str | None = None
    llm_calls: Count = None
    embedding_calls: Count = None
    tool_calls: Count = None
    memory_ops: Count = None
    input_tokens: Count = None
    output_tokens: Count = None
    cached_tokens: Count = None
    cost_usd: Amount = None
    seconds: Amount = None
    retrieval_steps: Count = None
    passages: list[Name] | None = None
    published: dict[str, Any] = {}
    """Scores that came with this answer."""


KEYS = Prediction.__struct_fields__
REQUIRED = [field.name for field in msgspec.structs.fields(Prediction) if field.required]
TEXTS = ("system", "conversation", "answer", "error")
BOOLEANS = {"true": 1, "false": 0}
"""Words of a CSV cell that mean a number."""


def prediction_files(path: Path) -> list[Path]:
    """Return the file, or the `predictions*.jsonl` and `predictions*.csv` of a folder; raises DatasetError if none."""
    if not path.exists():
        raise DatasetError("there is no such file or folder", path)
    if path.is_file():
        return [path]
    files = sorted([*path.glob("predictions*.jsonl"), *path.glob("predictions*.csv")])
    if not files:
        raise DatasetError("the folder has no predictions; add predictions.jsonl or predictions.csv", path)
    return files


def read_predictions(
    file: Path,
    on_read: Callable[[int], None] = lambda position: None,
    note: Callable[[str], None] = lambda line: None,
) -> Iterator[tuple[int, Prediction]]:
    """Yield line numbers and rows of a file; raises DatasetError with file and line for a bad row.

    `on_read` receives the number of bytes read, from time to time, and `note` a line about unknown keys at the end.
    """
    unknown: dict[str, None] = {}
    failure = os_errors_as(partial(DatasetError, path=file), "cannot be read (", ")")
    with failure, open_regular_file(file) as lines:
        rows = _read_csv(file, lines) if file.suffix == ".csv" else _read_lines(file, lines)
        for count, (number, row) in enumerate(rows):
            if count % ROWS_BETWEEN_REPORTS == 0:
                on_read(lines.tell())
            yield number, _validated(row, file, number)
            unknown |= dict.fromkeys(key for key in row if key not in KEYS)
    if unknown:
        note(f"{file}: unknown keys are ignored: {', '.join(map(repr, [*unknown][:10]))}")


def _read_lines(file: Path, lines: BufferedReader) -> Iterator[tuple[int, Any]]:
    number = 0
    try:
        for number, line in enumerate(iter_lines(lines), 1):
            if line.removeprefix(codecs.BOM_UTF8).strip():
                yield number, parse_line(line, file, number)
    except ValueError as problem:
        raise DatasetError(str(problem), file, number + 1) from None


def _validated(row: Any, file: Path, number: int) -> Prediction:
    if not isinstance(row, dict):
        raise DatasetError("not a JSON object", file, number)
    if missing := [name for name in REQUIRED if name not in row]:
        raise DatasetError(f"{missing[0]} is missing; a row needs {', '.join(REQUIRED)}", file, number)
    try:
        return from_json(Prediction, row)
    except ValueError as problem:
        raise DatasetError(str(problem).replace("`", "").replace("$.", ""), file, number) from None


def _read_csv(file: Path, lines: BufferedReader) -> Iterator[tuple[int, Any]]:
    before = csv.field_size_limit(MAX_CELL_CHARS)
    try:
        with io.TextIOWrapper(lines, "utf-8-sig", newline="") as text:
            rows = csv.reader(iter_lines(text), strict=True)
            columns = next(rows, [])
            if missing := [name for name in REQUIRED if name not in columns]:
                raise DatasetError(f"the column {missing[0]} is missing; a row needs {', '.join(REQUIRED)}", file, 1)
            if duplicates := [name for name in columns if columns.count(name) > 1]:
                raise DatasetError(f"duplicate column {duplicates[0]!r}", file, 1)
            if wholes := [name for name in columns if any(_is_part(column, name) for column in columns)]:
                problem = f"the column {wholes[0]!r} has a value and also parts in other columns; remove one"
                raise DatasetError(problem, file, 1)
            for cells in rows:
                if not any(cells):
                    continue
                if len(cells) != len(columns):
                    problem = f"{len(cells)} cells in {len(columns)} columns"
                    raise DatasetError(problem, file, rows.line_num)
                yield rows.line_num, _from_cells(dict(zip(columns, cells, strict=True)), file, rows.line_num)
    except UnicodeDecodeError:
        raise DatasetError("the file is not UTF-8", file) from None
    except csv.Error as problem:
        raise DatasetError(f"not CSV: {problem}", file, rows.line_num) from None
    except ValueError as problem:
        raise DatasetError(str(problem), file, rows.line_num + 1) from None
    finally:
        csv.field_size_limit(before)


def _from_cells(cells: Mapping[str, str], file: Path, number: int) -> dict[str, Any]:
    row: dict[str, Any] = {}
    for name, cell in cells.items():
        if name in TEXTS and (cell or name == "answer"):
            row[name] = cell or None
        elif _is_part(name) and cell:
            first, *between, last = name.split(".")
            inner = row.setdefault(first, {})
            for part in between:
                inner = inner.setdefault(part, {})
            inner[last] = _value(name, cell, file, number)
        elif cell and name not in TEXTS:
            row[name] = _value(name, cell, file, number) if name in KEYS else cell
    return row


def _is_part(column: str, whole: str = "published") -> bool:
    """Return True if a column holds a part of `whole`; only `published` has parts."""
    return column.startswith(f"{whole}.") and column.startswith("published.") and all(column.split("."))


def _value(name: str, cell: str, file: Path, line: int) -> Any:
    """Return the number of a cell, a list of passages, or in a part of `published` its text."""
    kind = "a JSON list" if name == "passages" else "a number"
    try:
        if name == "passages":
            return load_json(cell.encode())
        number = float(cell)
        if math.isfinite(number):
            return int(number) if number.is_integer() else number
    except ValueError:
        if name not in KEYS:
            return BOOLEANS.get(cell.lower(), cell)
    raise DatasetError(f"{name}: {cell[:40]!r} is not {kind}", file, line)
