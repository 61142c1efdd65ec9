"""Reads tables of any program as text: CSV, TSV, XLSX, JSON and JSON lines.

Cells stay as the program shows them (007, 1.50, dates). Rows have the numbers that spreadsheets show. Notes say how the
file was read: encoding, separator, sheet.
"""

from __future__ import annotations

import ast
import csv
import io
import itertools
import json
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from agentlab.core.errors import needs
from agentlab.core.files import read_bytes
from agentlab.data.cell_formats import as_displayed
from agentlab.data.columns import find_header, names_of_columns, plain
from agentlab.data.encodings import decode
from agentlab.data.office_files import open_office_file

_MAX_XML_BYTES = 16 * 2**20
_MAX_CELLS = 1_000_000
_MAX_ROWS = 100_000
_MAX_COLUMNS = 1_000
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars"}
_SNIFFED_CHARS = 100_000
_END = "end of the table"
"""Row added after the last one; a quote that is never closed makes it part of a cell."""
_MAX_LITERAL_CHARS = 100_000


class Table(NamedTuple):
    header: list[str]
    rows: list[tuple[int, dict[str, Any]]]
    """Number of each row and its cells by column; a cell is text, or a list or mapping from JSON."""
    notes: list[str]


def read_table(path: Path, sheet: str | None = None) -> Table:
    """Read a table; `sheet` names a sheet of a workbook (default: the one whose header has most known names).

    Raises OSError, and ValueError in one line, with the row if one is to blame.
    """
    data = read_bytes(path)
    if data.startswith((b"PK\x03\x04", b"\xd0\xcf\x11\xe0")) or path.suffix.lower() == ".xlsx":
        return _with_header(*_read_workbook(path, sheet))
    if sheet is not None:
        raise ValueError("it has no sheets; remove --sheet")
    text, encoding = decode(data)
    if text.lstrip()[:1] == "<":
        raise ValueError("it is HTML or XML, whatever its name; save it as CSV or XLSX")
    notes = [] if encoding == "utf-8" else [f"encoding {encoding}, if letters are wrong save it as UTF-8"]
    if "json" in path.suffix.lower() or text.lstrip()[:1] in ("{", "["):
        return _table_of_objects(_objects(text, is_whole=path.suffix.lower() == ".json"), notes)
    # Lines of Excel and Anki about the file count as rows.
    text = re.sub(r'\A(?:"?sep=.*\n|(?:#[\w ]+:.*\n)+)', lambda about: "\n" * about[0].count("\n"), text)
    rows = _rows(text, separator := _separator(text))
    return _with_header(
        rows, [*notes, f"separated by {_SEPARATORS[separator]}"][: 9 if max(map(len, rows)) > 1 else -1]
    )


def _with_header(rows: Sequence[Sequence[str]], notes: list[str]) -> Table:
    """Return the table below the header; columns without a name are called after their number."""
    top = find_header(rows)
    first = 0 if top is None else top + 1
    width = min(max(map(len, rows), default=0), _MAX_COLUMNS + 1)
    names = [" ".join(name.split()) for name in rows[first - 1][:width]] if first else []
    header = [
        name if name and name not in names[:index] else f"{name or 'column'} {index + 1}"
        for index, name in enumerate([*names, *[""] * (width - len(names))])
    ]
    for number, row in enumerate(rows[first:], first + 1):
        if first and any(row[len(rows[first - 1]) :]):
            raise ValueError(f"row {number} has more cells than the header; put a cell with a separator into quotes")
    notes = [*notes, *(["no header"] if not first else [f"header in row {first}"] if first > 1 else [])]
    objects = (
        (n, dict(zip(header, map(str.strip, row), strict=False))) for n, row in enumerate(rows[first:], first + 1)
    )
    # Cells that are JSON objects become columns of their keys.
    parsed = ((n, {k: literal(v) or v if v[:1] == "{" else v for k, v in row.items()}) for n, row in objects)
    return _table_of_objects(parsed, notes)


def _separator(text: str) -> str:
    def fit(separator: str) -> tuple[float, ...]:
        rows = [row for row in csv.reader(io.StringIO(text[:_SNIFFED_CHARS]), delimiter=separator) if any(row)]
        widths = [len(row) for row in rows]
        usual = max(set(widths), key=lambda width: (widths.count(width), width), default=1)
        named = max(map(names_of_columns, rows[:10]), default=0)
        return usual > 1, named if named > 1 else 0, round(widths.count(usual) / max(len(widths), 1), 1), usual

    return max(_SEPARATORS, key=fit)


def _rows(text: str, separator: str) -> list[list[str]]:
    """Return all rows, blank ones too; raises ValueError with the row of a quote that is never closed."""
    rows: list[list[str]] = []
    try:
        reader = csv.reader(io.StringIO(f"{text}\n{_END}", newline=""), delimiter=separator)
        rows.extend(itertools.islice(reader, _MAX_ROWS))
        if rows.pop() == [_END]:
            return [*rows, []]
    except csv.Error:
        pass  # of a cell of more than 128 KB
    if len(rows) > _MAX_ROWS - 2:
        raise ValueError(f"more than {_MAX_ROWS:,} rows; split it")
    raise ValueError(f'row {len(rows) + 1}: a quote is not closed (write "" inside a cell), or a cell has over 128 KB')


def _read_workbook(path: Path, sheet: str | None) -> tuple[Sequence[Sequence[str]], list[str]]:
    with needs("An XLSX file", "documents"):
        import openpyxl
    file = open_office_file(path, "xl", _MAX_XML_BYTES)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of parts that a table of text does not need
            visible = [s for s in openpyxl.load_workbook(file, data_only=True).worksheets if s.sheet_state == "visible"]
    except Exception as problem:  # the library raises errors of many types for damaged XML
        raise ValueError(f"damaged ({' '.join(str(problem).split())[:200]}); open it and save it again") from None
    sheets = {each.title: _sheet_rows(each) for each in visible}
    if sheet is not None and sheet not in sheets:
        raise ValueError(f"there is no sheet {sheet!r}; it has {', '.join(map(repr, sheets))}")
    if not sheets:
        raise ValueError("it has no visible sheet")

    def fit(name: str) -> tuple[int, int]:
        return max(map(names_of_columns, sheets[name][:30]), default=0), len(sheets[name])

    name = sheet or max(sheets, key=fit)
    others = ", ".join(repr(other) for other, rows in sheets.items() if other != name and any(map(any, rows)))
    return sheets[name], [f"sheet {name!r}" + (f", not {others} (--sheet NAME)" if others else "")]


def _sheet_rows(sheet: Any) -> Sequence[Sequence[str]]:
    # One cell far outside the table would make a row of each number and a cell of each column.
    if sheet.max_row * sheet.max_column > _MAX_CELLS:
        size = f"{sheet.max_row:,} rows and {sheet.max_column:,} columns"
        raise ValueError(f"sheet {sheet.title!r} spans {size}; delete what is outside the table")
    rows = [[as_displayed(c.value, getattr(c, "number_format", "General")) for c in row] for row in sheet.iter_rows()]
    for merged in sheet.merged_cells.ranges:
        for row in rows[merged.min_row : merged.max_row]:  # a merged cell counts for each row that it spans
            row[merged.min_col - 1] = rows[merged.min_row - 1][merged.min_col - 1]
    return rows


def _objects(text: str, *, is_whole: bool) -> Iterator[tuple[int, Any]]:
    """Yield row number and value of JSON or JSON lines; numbers in a value stay text, as written."""
    decoder = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=lambda name: None, strict=False)
    if is_whole or text.lstrip().startswith("["):
        value = _transposed(decoder.decode(text.strip()))
        while isinstance(value, dict):
            # Files wrap the list of rows in various keys.
            value = max(reversed([v for v in value.values() if isinstance(v, (list, dict))]), key=len, default=[value])
        rows = value if isinstance(value, list) else [value]
        keys = {plain(key.rpartition(".")[2]) for row in rows[:1] if isinstance(row, dict) for key in _flat(row)}
        nested = _questions_within(rows) if "question" not in keys else []
        yield from enumerate(nested if len(nested) >= len(rows) else rows, 1)
        return
    for number, line in enumerate(text.split("\n"), 1):
        try:
            yield number, decoder.decode(line) if line.strip() else {}
        except ValueError as problem:
            raise ValueError(f"row {number} is not JSON: {str(problem)[:200]}") from None


def _transposed(value: Any) -> Any:
    """Return the rows of an object that has a list or object of equal length for each column, as pandas writes it."""
    columns = list(value.values()) if isinstance(value, dict) and names_of_columns(value) > 1 else []
    if isinstance(value, dict) and all(isinstance(value.get(key), list) for key in ("columns", "data")):
        value, rows = [str(c.get("name", c) if isinstance(c, dict) else c) for c in value["columns"]], value["data"]
    elif columns and all(isinstance(each, (list, dict)) and len(each) == len(columns[0]) for each in columns):
        rows = list(zip(*(each.values() if isinstance(each, dict) else each for each in columns), strict=True))
    else:
        return value
    return [dict(zip(value, row, strict=False)) for row in rows if isinstance(row, (list, tuple))]


def _questions_within(value: Any) -> list[dict[str, Any]]:
    """Return the objects with a key `question` in nested lists and objects, as SQuAD has them."""
    if isinstance(value, dict):
        if "question" in map(plain, value):
            return [value]
        value = list(value.values())
    return [row for each in value for row in _questions_within(each)] if isinstance(value, list) else []


def _flat(row: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return a row with nested objects as columns such as `inputs.question`."""
    flat: dict[str, Any] = {}
    for key, value in row.items():
        is_nested = isinstance(value, dict) and not isinstance(value.get("text"), list) and prefix.count(".") < 3
        flat |= _flat(value, f"{prefix}{key}.") if is_nested else {f"{prefix}{key}": value}
    return flat


def _table_of_objects(objects: Iterable[tuple[int, Any]], notes: list[str]) -> Table:
    """Return a table of the rows and columns that are not empty. Lists and objects stay values; others become text."""
    rows = []
    for number, row in objects:
        if not isinstance(row, dict) or len(row) > _MAX_COLUMNS:
            size = f"has more than {_MAX_COLUMNS:,} columns" if isinstance(row, dict) else "is not a JSON object"
            raise ValueError(f"row {number} {size}")
        cells = {k: v if isinstance(v, (list, dict)) else str(v or "") for k, v in _flat(row).items()}
        if any(cell != "" for cell in cells.values()):
            rows.append((number, cells))
    return Table(list(dict.fromkeys(key for _, row in rows for key, value in row.items() if value != "")), rows, notes)


def literal(text: str) -> Any:
    """Return the list, object or quoted text that a cell holds as JSON or as Python writes it; None for plain text."""
    is_literal = re.match(r'[\[{].*[\]}]$|".*"$', text[:_MAX_LITERAL_CHARS], re.DOTALL)
    # Python would join two quoted texts.
    for parse in (json.loads, ast.literal_eval)[: 1 if text[0] == '"' else 2] if is_literal else ():
        try:
            return value if isinstance(value := parse(text), (list, dict, str)) else None
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
    return None
