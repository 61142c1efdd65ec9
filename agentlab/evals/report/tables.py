"""Tables and lines on a console of any width: no name and no number is ever cut.

A table that is too wide is turned on its side, or comes in parts that repeat its first column, whichever takes fewer
parts; where a single column does not fit, in lines. What is foreign reaches the console without control characters.
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

from agentlab.core.escaping import escape_block, one_line, printable

JOINED = "\u00a0"
"""A space at which no heading is broken."""
Cell: TypeAlias = str | Text
Grid: TypeAlias = list[list[Text]]
"""Rows of cells, all of one length; the first row is the heading, the first column names the rows."""


class Terminal(Console):
    """A console that nothing foreign can steer, whoever prints: only its own codes reach the terminal as they are."""

    def __init__(self, **options: Any) -> None:
        super().__init__(highlight=False, markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else printable(text), style, control)


def new_console() -> Terminal:
    """Of the terminal's width; where there is no terminal and COLUMNS does not say one, tables may be 140 wide."""
    # Cut to 80 columns a table would be unreadable in a log, where nobody asked for 80.
    width = None if Console().is_terminal or "COLUMNS" in os.environ else 140
    return Terminal(width=width)


def print_table(console: Console, title: str, columns: Sequence[Cell], rows: Sequence[Sequence[Cell]]) -> None:
    """A table under its title, in as many parts as the console's width asks for."""
    grid = [[_text(cell) for cell in row] for row in (columns, *rows)]
    if title:
        print_line(console, title, "italic")
    for part in _fitted(grid, console.width):
        if _width(part) <= console.width:
            console.print(_table(part))
        else:
            heading, *rest = part
            print_line(console, " ".join(heading[-1].plain.split()), "bold")
            for row in rest:
                print_line(console, "  " + ": ".join(cell.plain for cell in row))


def print_line(console: Console, line: str, style: str = "") -> None:
    """A line; on a terminal wrapped between words, elsewhere as it is."""
    text = Text(escape_block(line), style=style)
    whole = not console.is_terminal or any(cell_len(word) > console.width for word in text.plain.split())
    console.print(text, soft_wrap=whole)


def print_commands(console: Console, commands: Sequence[tuple[str, str]]) -> None:
    """What to type next, each with what it does; a command is never broken into lines."""
    if commands:
        print_line(console, "next:", "bold")
    for command, does in commands:
        console.print(Text(f"  {escape_block(f'agentlab {command}  # {does}')}"), soft_wrap=True)


def _text(cell: Cell) -> Text:
    plain = cell.plain if isinstance(cell, Text) else cell
    return Text(one_line(plain), style=cell.style if isinstance(cell, Text) else "")


def _fitted(grid: Grid, width: int) -> list[Grid]:
    turned = [list(column) for column in zip(*grid, strict=True)]
    for whole in (grid, _with_broken_headings(grid), turned, _with_broken_headings(turned)):
        if _width(whole) <= width:
            return [whole]

    def badness(parts: list[Grid]) -> tuple[bool, int, int]:
        return any(_width(part) > width for part in parts), len(parts), sum(map(len, parts))

    return min(([*_parts(_with_broken_headings(each), width)] for each in (grid, turned)), key=badness)


def _parts(grid: Grid, width: int) -> Iterator[Grid]:
    """The first column with as many of the others as fit, until all were there."""
    columns = range(1, len(grid[0]))
    taken: list[int] = []
    for column in columns:
        if taken and _width(_of(grid, [*taken, column])) > width:
            yield _of(grid, taken)
            taken = []
        taken.append(column)
    if taken:
        yield _of(grid, taken)


def _of(grid: Grid, columns: Sequence[int]) -> Grid:
    return [[row[0], *(row[column] for column in columns)] for row in grid]


def _with_broken_headings(grid: Grid) -> Grid:
    """A heading wider than its column stands in several lines, broken between words."""
    heading, *rows = grid
    broken = []
    for place, cell in enumerate(heading):
        widest = max((cell_len(row[place].plain) for row in rows), default=0)
        joined = re.sub("(?<=[/-]) | (?=-)", JOINED, cell.plain)  # "/ turn" and "B - A" stay together
        lines = textwrap.wrap(joined, max(widest, 1), break_long_words=False, break_on_hyphens=False)
        broken.append(Text("\n".join(lines).replace(JOINED, " "), style=cell.style))
    return [broken, *rows]


def _width(grid: Grid) -> int:
    """Of the table, with its borders."""
    columns = zip(*grid, strict=True)
    return 1 + sum(3 + max(cell_len(line) for cell in column for line in cell.plain.split("\n")) for column in columns)


def _table(grid: Grid) -> Table:
    table = Table()
    heading, *rows = grid
    for place, cell in enumerate(heading):
        table.add_column(cell, justify="right" if place else "left", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    return table
