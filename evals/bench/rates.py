"""Frame of `error_rates.py`: sections of simulated cells, a file of finished cells, and the page.

A section is a table. Its rows simulate a sentence of the software in a world, its columns are sizes. A cell is the mean
of `Row.simulate` over all runs. Finished cells are lines of the state file, so an interrupted command continues.
"""

from __future__ import annotations

import ast
import hashlib
import json
import math
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np

JUDGED = "agentlab.evals.stats", "agentlab.evals.compare", "agentlab.evals.store.measures", "rates"
"""Prefixes of the modules that produce the rates; a change of their code invalidates the cells."""


class Row(NamedTuple):
    """Row of a table: a sentence of the software, simulated in one world."""

    names: tuple[str, ...]
    """First cells of the row, one for each of `Section.heads`: its world, its sentence."""
    simulate: Callable[[int, np.random.Generator], float]
    """Simulate one run of a size; return the strength of the sentence it prints, or a rate from 0 to 1."""
    high: float = 1.0
    """Largest promised rate."""
    low: float = 0.0
    """Smallest promised rate."""
    seed: str = ""
    """Name that seeds the random numbers; rows with the same name and `simulate` share their runs."""
    sizes: tuple[int, ...] = ()
    """Sizes to simulate; by default all of the section."""
    least: float | None = None
    """Smallest strength that counts; None for the mean of all runs."""


class Section(NamedTuple):
    """A table of the page."""

    title: str
    text: str
    """Explanation in front of the table: sentences, worlds, promises."""
    heads: tuple[str, ...]
    """Titles of the columns of `Row.names`."""
    sizes: tuple[int, ...]
    rows: Sequence[Row]


class Cell(NamedTuple):
    section: Section
    row: Row
    size: int
    runs: int

    @property
    def key(self) -> str:
        return json.dumps([code(), self.section.title, *self.row.names, self.size, self.runs])

    def simulate(self) -> float:
        name = self.row.seed or " ".join(self.row.names)
        outcomes, least = _outcomes(self.row.simulate, name, self.size, self.runs), self.row.least
        return float(np.mean(outcomes if least is None else outcomes >= least))

    def show(self, rate: float | None) -> str:
        """Return the rate, marked with `!` if it misses its promise by more than two standard errors."""
        if rate is None:
            return "-"
        limits = ((self.row.high, rate > self.row.high), (self.row.low, rate < self.row.low))
        misses = any(
            beyond and abs(rate - limit) > 2 * math.sqrt(limit * (1 - limit) / self.runs) for limit, beyond in limits
        )
        return f"{rate:.3f}{' !' if misses else ''}"


@lru_cache(maxsize=12)
def _outcomes(simulate: Callable[[int, np.random.Generator], float], name: str, size: int, runs: int) -> np.ndarray:
    random = np.random.default_rng([zlib.crc32(name.encode()), size])
    return np.array([simulate(size, random) for _ in range(runs)], dtype=float)


@cache
def code() -> str:
    """Return the checksum of the loaded code that makes the rates, without docstrings, comments and layout."""
    loaded = {name: module.__file__ for name, module in sys.modules.items() if name.startswith(JUDGED)}
    files = [Path(file) for _, file in sorted(loaded.items()) if file]
    return hashlib.sha256("".join(map(_statements, files)).encode()).hexdigest()[:12]


def _statements(file: Path) -> str:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(body := getattr(node, "body", None), list):
            node.body = [  # type: ignore[attr-defined]
                part for part in body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))
            ]
    return ast.dump(tree)


def cells_of(sections: Sequence[Section], runs: int) -> Iterator[Cell]:
    for section in sections:
        for row in section.rows:
            for size in section.sizes:
                if not row.sizes or size in row.sizes:
                    yield Cell(section, row, size, runs)


def simulate(sections: Sequence[Section], runs: int, state: Path) -> dict[str, float]:
    """Simulate the cells that `state` lacks, with progress and expected end; return the rates of all finished cells.

    Cells of older code do not count.
    """
    lines = state.read_text(encoding="utf-8").splitlines() if state.exists() else []
    rates: dict[str, float] = dict(map(json.loads, lines))
    cells = [cell for cell in cells_of(sections, runs) if cell.key not in rates]
    # Times grow about with the runs times the root of the size.
    weights = [cell.runs * math.sqrt(cell.size) for cell in cells]
    start, done = time.monotonic(), 0.0
    with state.open("a", encoding="utf-8") as file:
        for number, (cell, weight) in enumerate(zip(cells, weights, strict=True), start=1):
            rates[cell.key] = cell.simulate()
            file.write(json.dumps([cell.key, rates[cell.key]]) + "\n")
            file.flush()
            done += weight
            left = (time.monotonic() - start) * (sum(weights) / done - 1)
            name = " | ".join((*cell.row.names, str(cell.size)))
            print(f"{number}/{len(cells)} {name}: {cell.show(rates[cell.key])}; {left / 60:.0f} min left", flush=True)
    return rates


def page(sections: Sequence[Section], runs: int, rates: dict[str, float], head: str) -> str:
    """Return the page; a cell that this code never simulated with so many runs is `-`."""
    lines = [head]
    for section in sections:
        heads = [*section.heads, *map(str, section.sizes)]
        align = ["---" if index < len(section.heads) else "---:" for index in range(len(heads))]
        lines += ["", f"## {section.title}", "", section.text, ""]
        lines += [f"| {' | '.join(row)} |" for row in (heads, align)]
        for row in section.rows:
            one = section._replace(rows=[row])
            cells = {cell.size: cell.show(rates.get(cell.key)) for cell in cells_of([one], runs)}
            lines.append(f"| {' | '.join([*row.names, *(cells.get(size, '') for size in section.sizes)])} |")
    return "\n".join([*lines, ""])
