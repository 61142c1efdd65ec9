"""The page's figures for a notebook, without a script: pictures as SVG, the verdict and the matrix as tables.

    run                     # as the last line of a cell: the verdict, the table, and the two pictures
    run.pareto(x="cost_usd", y="answer_f1")
    run.forest()
    run.matrix(only="flipped")

They need no kernel, no server and no network: a saved notebook, nbconvert and GitHub show them too. A picture has a
paper of its own, so it can be read in a dark theme. What is foreign is escaped.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

from agentlab.core.errors import ConfigError
from agentlab.core.escaping import as_html, as_markdown, escape_block, printable
from agentlab.core.plugins import unknown_name
from agentlab.evals.compare.pairs import Comparison
from agentlab.evals.compare.ship import recommend
from agentlab.evals.report.content import Content, Place, Played
from agentlab.evals.report.drawing import Picture, forest, pareto
from agentlab.evals.report.show import expected
from agentlab.evals.store.measures import measure, summary_rows
from agentlab.evals.store.run import StoredRun

TurnFilter = Literal["all", "failed", "flipped", "disagree"]
SHOWN_OF_A_REPLY = 400
APART = 0.5
"""How far two scores of a turn are from each other that disagree; and where a score flips."""
CELL = "min-width: 9em; text-align: left; vertical-align: top; white-space: pre-wrap; overflow-wrap: anywhere"


class Views:
    """Of one run that has ended."""

    def __init__(self, run: StoredRun) -> None:
        self.run = run

    @cached_property
    def content(self) -> Content:
        return Content([self.run])

    @cached_property
    def _decided(self) -> Any:
        return recommend(self.run)

    def markdown(self) -> str:
        """The verdict and what it rests on, then the table with intervals."""
        verdict, _ = self._decided
        result = self.run.result
        costs, scores = summary_rows(list(result.flows.values()))
        heads = ["", *result.flows]
        rows = [[title, *values] for _, title, values in (*costs, *scores) if re.search("[1-9]", " ".join(values))]
        notes = [f"* {as_markdown(note)}" for note in verdict.notes]
        return "\n".join([f"**{as_markdown(verdict.sentence)}**", "", *notes, "", *_table(heads, rows)])

    def text(self) -> str:
        from agentlab.evals.store.frames import run_table

        verdict, _ = self._decided
        told = (verdict.sentence, *(f"  {note}" for note in verdict.notes))
        return "\n".join([*map(escape_block, told), repr(run_table(self.run.result.flows))])

    def pareto(self, x: str = "", y: str = "") -> Picture:
        """Each flow's mean of `y` over its mean of `x`, with intervals; what it decides by if they are not named."""
        names = self.content.measures
        for name in (x, y):
            if name and name not in names:
                raise ConfigError(unknown_name("measure of this run", name, names))
        x = x or ("cost_usd" if all(means.get("cost_usd") for means in self.run.means.values()) else "input_tokens")
        y = y or self._informative_measure()
        points = [
            (side.name, line[names.index(x)], line[names.index(y)])
            for side, line in zip(self.content.sides, self.content.intervals, strict=True)
        ]
        return pareto(measure(x), measure(y), points)

    def forest(self) -> Picture | None:
        """The paired differences of what decides, with their intervals; None where there is nothing to compare."""
        _, comparison = self._decided
        return forest(comparison) if comparison else None

    def matrix(self, only: TurnFilter = "all", by: str = "", limit: int = 20) -> Matrix:
        """Turns as rows and flows as columns, worst first by the measure `by` (default: one that tells them apart)."""
        if only not in (kinds := ("all", "failed", "flipped", "disagree")):
            raise ConfigError(unknown_name("choice of turns", only, kinds))
        by = by or self._informative_measure()
        if by not in self.content.measures:
            raise ConfigError(unknown_name("measure of this run", by, self.content.measures))
        return Matrix(self.content, only, by, limit)

    def _informative_measure(self) -> str:
        """Of the qualities that decide the first that was shown to differ, else one that differs, else the first."""
        _, comparison = self._decided
        names = [
            n for n in (comparison.primary if comparison else self.content.measures) if measure(n).better == "higher"
        ]
        found = [d for pair in (comparison.pairs if comparison else ()) for d in pair.differences]
        shown = [d.measure.name for d in found if d.is_shown], [d.measure.name for d in found if d.changed]
        ranked = sorted(names, key=lambda name: [name not in each for each in shown])
        return ranked[0] if ranked else "failed"

    def display(self) -> None:
        """Show verdict, table and pictures as outputs of a cell, each in a form that needs no trust."""
        from IPython.display import display

        display({"text/markdown": self.markdown(), "text/plain": self.text()}, raw=True)  # type: ignore[no-untyped-call]
        for picture in (self.pareto(), self.forest()) if len(self.run.result.flows) > 1 else ():
            if picture is not None:
                display(picture)  # type: ignore[no-untyped-call]


class Matrix:
    """Turns by flows, as a table in a notebook and as lines elsewhere."""

    def __init__(self, content: Content, only: TurnFilter, by: str, limit: int) -> None:
        self._content, self._by, self._limit = content, by, limit
        sign = 1 if measure(by).better == "higher" else -1
        found = []
        for place in content.rows:
            values = [self._mean(flow, place, by) for flow in range(len(content.sides))]
            failed = any(self._mean(flow, place, "failed") for flow in range(len(content.sides)))
            known = [value for value in values if value is not None]
            apart = max(known, default=0.0) - min(known, default=0.0)
            flips = len({value < APART for value in known}) > 1
            if {"all": True, "failed": failed, "flipped": flips, "disagree": apart >= APART}[only]:
                worst = min((sign * value for value in known), default=float("inf"))
                found.append((not failed, worst, -apart, place))
        self.places = [place for *_, place in sorted(found)]

    def _plays(self, flow: int, place: Place) -> list[Played]:
        return [play for play in self._content.plays if play.flow == flow and place in play.turns]

    def _mean(self, flow: int, place: Place, name: str) -> float | None:
        values = [play.values[place].get(name) for play in self._plays(flow, place)]
        known = [value for value in values if value is not None]
        return sum(known) / len(known) if known else None

    def _lines(self) -> list[list[str]]:
        """Of each turn shown what was asked and expected, then what each flow said, with the measure."""
        lines = []
        for place in self.places[: self._limit]:
            cells, asked = [], ""
            for flow in range(len(self._content.sides)):
                said = []
                for play in self._plays(flow, place):
                    row, value = play.turns[place], play.values[place].get(self._by)
                    asked = row.user
                    score = "" if value is None else f"\n{self._by} {measure(self._by).show(value)}"
                    reply = row.reply.text or "(an empty reply)" if row.reply else f"FAILED: {row.error}"
                    said.append(_cut(reply) + score)
                cells.append("\n".join(said))
            told = [f"{place[0]} · turn {place[1]}", _cut(asked), *map(_cut, expected(self._content.turn(place)))]
            lines.append(["\n".join(told), *cells])
        return lines

    @property
    def _caption(self) -> str:
        shown = min(self._limit, len(self.places))
        return f"{shown} of {len(self.places)} turns, worst {self._by} first"

    def __repr__(self) -> str:
        names = ["asked", *(side.name for side in self._content.sides)]
        parts = [
            "\n".join(f"{name}: {cell}".replace("\n", "\n    ") for name, cell in zip(names, line, strict=True))
            for line in self._lines()
        ]
        return printable("\n\n".join([self._caption, *parts]))

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{as_html(name)}</th>" for name in ("", *(side.name for side in self._content.sides)))
        rows = "".join(
            f"<tr>{''.join(f'<td style={chr(34)}{CELL}{chr(34)}>{as_html(cell)}</td>' for cell in line)}</tr>"
            for line in self._lines()
        )
        return f"<p>{as_html(self._caption)}</p><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def comparison_markdown(comparison: Comparison) -> str:
    """Of each pair what it showed, then what decides: n, both means, the difference, its interval, p."""
    lines = []
    for pair in comparison.pairs:
        rows = [[d.measure.title, *d.cells] for d in pair.differences if d.primary]
        heads = ["", "n", pair.a, pair.b, "difference", "95 %", "p adjusted", ""]
        lines += [f"**{as_markdown(str(pair))}**", "", *_table(heads, rows), ""]
    advised = sum(not d.primary for pair in comparison.pairs[:1] for d in pair.differences)
    return "\n".join([*lines, f"{advised} more measures advise: `comparison.table`"])


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """A Markdown table whose first column stands left, the others right."""
    line = ["---", *("---:" for _ in heads[1:])]
    cells = [[*map(as_markdown, heads)], line, *([*map(as_markdown, row)] for row in rows)]
    return ["| " + " | ".join(row) + " |" for row in cells]


def _cut(text: str) -> str:
    return text if len(text) <= SHOWN_OF_A_REPLY else f"{text[:SHOWN_OF_A_REPLY]} …"
