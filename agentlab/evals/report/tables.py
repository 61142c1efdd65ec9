"""Tables and lines on a console of any width, without truncated names or numbers.

A table that is too wide is transposed, or split into parts that repeat its first column, whichever gives fewer parts.
A part with one column that is still too wide is printed as lines. Untrusted text loses its control characters.
"""

from __future__ import annotations

import os
import re
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from agentlab.core.escaping import as_markdown, escape_block, one_line, printable

JOINED = "\u00a0"
"""No-break space, which keeps a heading on one line."""
Cell: TypeAlias = str | Text
Grid: TypeAlias = list[list[Text]]
"""Rows of cells, all of the same length; the first row is the heading, the first column names the rows."""


class Terminal(Console):
    """Console that escapes untrusted control characters; only its own codes reach the terminal."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def new_console() -> Terminal:
    """Return a console of the terminal's width; without terminal and COLUMNS it is 140 wide."""
    # rich would take 80 columns, which split most tables in a log.
    width = None if Console().is_terminal or "COLUMNS" in os.environ else 140
    return Terminal(width=width)


def print_table(
    console: Console, title: str, columns: Sequence[Cell], rows: Sequence[Sequence[Cell]], *, plain: bool = False
) -> None:
    """Print a table under its title, in as many parts as the width needs; without borders if it is `plain`."""
    grid = [[_text(cell) for cell in row] for row in (columns, *rows)]
    if title:
        print_line(console, title, "italic")
    if plain and _width(grid) - len(columns) - 2 <= console.width:
        console.print(_table(grid, box=None, padding=(0, 2, 0, 0), pad_edge=False))
        return
    for part in _fitted(grid, console.width):
        if _width(part) <= console.width:
            console.print(_table(part))
        else:
            heading, *rest = part
            print_line(console, " ".join(heading[-1].plain.split()), "bold")
            for row in rest:
                print_line(console, "  " + ": ".join(cell.plain for cell in row))


def print_line(console: Console, line: str, style: str = "", joint: str = "") -> None:
    """Print a line; a terminal wraps it between words, with `joint` before each line end."""
    text = escape_block(line)
    if not console.is_terminal and "COLUMNS" not in os.environ:
        return console.print(Text(text, style=style), soft_wrap=True)
    for part in text.split("\n"):
        indent = re.match(r"[ *]*", part)
        lines = [""]
        for word in re.findall(r"\s*(?:'[^']*'|\S)+", part):
            if lines[-1] and cell_len(f"{lines[-1]}{word}{joint}") > console.width:
                lines.append(" " * len(indent[0] if indent else "") + word.lstrip())
            else:
                lines[-1] += word
        console.print(Text(f"{joint}\n".join(lines), style=style), soft_wrap=True)
    return None


def print_commands(console: Console, commands: Sequence[tuple[str, str]]) -> None:
    """Print (command, purpose) pairs to type next; a long command continues after a backslash."""
    if commands:
        print_line(console, "next:", "bold")
    for command, purpose in commands:
        line = f"  agentlab {command}  # {purpose}"
        if cell_len(line) <= console.width:
            print_line(console, line)
        else:
            print_line(console, f"  # {purpose}")
            print_line(console, f"  agentlab {command}", joint=" \\")


def _text(cell: Cell) -> Text:
    plain = cell.plain if isinstance(cell, Text) else cell
    return Text(one_line(plain), style=cell.style if isinstance(cell, Text) else "")


def _fitted(grid: Grid, width: int) -> list[Grid]:
    transposed = [list(column) for column in zip(*grid, strict=True)]
    for layout in (grid, _with_broken_headings(grid), transposed, _with_broken_headings(transposed)):
        if _width(layout) <= width:
            return [layout]

    def badness(parts: list[Grid]) -> tuple[bool, int, int]:
        return any(_width(part) > width for part in parts), len(parts), sum(map(len, parts))

    return min((_parts(_with_broken_headings(each), width) for each in (grid, transposed)), key=badness)


def _parts(grid: Grid, width: int) -> list[Grid]:
    """Return parts with the first column and as many of the others as fit."""
    parts: list[Grid] = []
    for column in range(1, len(grid[0])):
        last = parts[-1] if parts else [row[:1] for row in grid]
        wider = [[*cells, row[column]] for cells, row in zip(last, grid, strict=True)]
        if not parts or _width(wider) > width:
            parts.append([[row[0], row[column]] for row in grid])
        else:
            parts[-1] = wider
    return parts


def _with_broken_headings(grid: Grid) -> Grid:
    """Return the grid with wide headings broken into lines between words."""
    heading, *rows = grid
    broken = []
    for column, cell in enumerate(heading):
        widest = max((cell_len(row[column].plain) for row in rows), default=0)
        unbroken = re.sub("(?<=[/-]) | (?=-)", JOINED, cell.plain)  # "/ turn" and "B - A" stay together
        lines = textwrap.wrap(unbroken, max(widest, 1), break_long_words=False, break_on_hyphens=False)
        broken.append(Text("\n".join(lines).replace(JOINED, " "), style=cell.style))
    return [broken, *rows]


def _width(grid: Grid) -> int:
    """Return the width of the table, borders included."""
    columns = zip(*grid, strict=True)
    return 1 + sum(3 + max(cell_len(line) for cell in column for line in cell.plain.split("\n")) for column in columns)


def _table(grid: Grid, **options: Any) -> Table:
    table = Table(**options)
    heading, *rows = grid
    for column, cell in enumerate(heading):
        table.add_column(cell, justify="right" if column else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table with the first column left-aligned, the others right-aligned."""
    line = ["---", *("---:" for _ in heads[1:])]
    cells = [[*map(as_markdown, heads)], line, *([*map(as_markdown, row)] for row in rows)]
    return ["| " + " | ".join(row) + " |" for row in cells]
