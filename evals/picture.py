"""Draws the page of the study as one picture: right answers of each flow on each set, with interval and price.

python evals/picture.py results/study.md > results/study.svg       # as `make study` does

It reads the tables of the page, so that page and picture say the same and the runs need not be at hand.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

RIGHT, PRICED = "answer_correctness", ("LLM calls / turn", "input tokens / turn")
"""Names of the rows of a table."""
WIDTH, ROW, GAP, TOP = 760, 20, 26, 62
"""Pixels; GAP is the height of a set's name."""
SCALE = (200, 560)
"""Positions of 0 and 1 of the measure."""
PRICES = (635, 735)
"""Right edges of the columns of prices."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#000000")
"""Colours of Okabe and Ito, which colour-blind readers can distinguish."""


@dataclass(frozen=True)
class Table:
    """Table of one set on the page."""

    name: str
    conversations: str
    cells: Mapping[str, Mapping[str, str]]
    """By flow and title of the row."""


def tables(page: str) -> Iterator[Table]:
    """Raises ValueError for a set without a table."""
    for section in re.split(r"^## ", page, flags=re.MULTILINE)[1:]:
        name = section.partition("\n")[0]
        first = re.search(r"(^\|.*\n)+", section, re.MULTILINE)
        rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in first[0].splitlines()] if first else []
        counted = re.search(r"(\d+) conversations", section)
        if len(rows) < 3 or counted is None:
            raise ValueError(f"{name} has no table")
        (_, *flows), _, *measures = rows
        # A title ends in how many turns have the measure.
        titled = {re.sub(r" \(n=\d+\)$", "", title): cells for title, *cells in measures}
        cells = {flow: {title: row[position] for title, row in titled.items()} for position, flow in enumerate(flows)}
        yield Table(name, counted[1], cells)


def picture(result: Sequence[Table]) -> Iterator[str]:
    """The lines of an SVG file."""
    flows = dict.fromkeys(flow for table in result for flow in table.cells)
    colours = {flow: COLOURS[position % len(COLOURS)] for position, flow in enumerate(flows)}
    height = TOP + sum(GAP + ROW * len(table.cells) for table in result) + 12
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#222222">'
    )
    yield f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    yield _text(SCALE[0], 20, "right answers, with the 95 % interval over conversations", "start")
    yield from (_text(x, 20, title, "end") for x, title in zip(PRICES, ("LLM calls", "input tokens"), strict=True))
    yield from (_text(x, 36, "a turn", "end") for x in PRICES)
    for tenth in range(0, 11, 2):
        x = _x_of(tenth / 10)
        yield _text(x, 40, f"{tenth / 10:.1f}", "middle")
        yield f'<line x1="{x}" y1="46" x2="{x}" y2="{height - 8}" stroke="#dddddd"/>'
    y = TOP
    for table in result:
        yield _text(14, y + 6, f"{table.name}: {table.conversations} conversations", "start", "bold")
        y += GAP
        for flow, cells in table.cells.items():
            yield from _row(flow, cells, y, colours[flow])
            y += ROW
    yield "</svg>"


def _row(flow: str, cells: Mapping[str, str], y: int, colour: str) -> Iterator[str]:
    yield _text(26, y + 4, flow, "start")
    marks = [_x_of(float(number)) for number in re.findall(r"\d+\.\d+", cells.get(RIGHT, ""))]
    if len(marks) == 3:
        yield f'<line x1="{marks[1]}" y1="{y}" x2="{marks[2]}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
    if marks:
        yield f'<circle cx="{marks[0]}" cy="{y}" r="5" fill="{colour}"/>'
    yield from (_text(x, y + 4, cells.get(title, "-"), "end") for x, title in zip(PRICES, PRICED, strict=True))


def _x_of(value: float) -> float:
    return round(SCALE[0] + value * (SCALE[1] - SCALE[0]), 1)


def _text(x: float, y: float, text: str, anchor: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(text)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("page", type=Path, help="a page of tables, as evals/publish.py prints it")
    print("\n".join(picture([*tables(parser.parse_args().page.read_text(encoding="utf-8"))])))


if __name__ == "__main__":
    main()
