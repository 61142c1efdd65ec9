"""Views of a run for notebooks, without a script: pictures as SVG, headline and matrix as tables.

    run                     # as the last line of a cell: headline, table and two pictures
    run.pareto(x="cost_usd", y="answer_f1")
    run.forest()
    run.matrix(only="flipped")

They need no kernel, no server and no network, so a saved notebook, nbconvert and GitHub show them too. Pictures follow
a dark theme. Untrusted text is escaped.
"""

from __future__ import annotations

import re
from typing import Literal

from agentlab.core.escaping import as_html, as_markdown, printable
from agentlab.core.plugins import check_names
from agentlab.evals.compare.flow_numbers import NUMBERS
from agentlab.evals.report.content import Content, FlowSeries, RowKey
from agentlab.evals.report.drawing import Picture, forest, pareto
from agentlab.evals.report.show import expected
from agentlab.evals.report.tables import markdown_table
from agentlab.evals.store.measures import measure, summary_rows
from agentlab.evals.store.run import StoredRun

TurnFilter = Literal["all", "failed", "flipped", "disagree"]
MAX_REPLY_CHARS = 400
FLIP_SCORE = 0.5
"""Score at which a turn flips, and smallest difference of two scores that disagree."""
CELL = "min-width: 9em; text-align: left; vertical-align: top; white-space: pre-wrap; overflow-wrap: anywhere"


class Views(Content):
    """Views of one ended run."""

    def __init__(self, run: StoredRun) -> None:
        super().__init__([run])
        self.run = run

    def markdown(self) -> str:
        """Return the headline, its notes, the numbers of each flow and the table with intervals, as Markdown."""
        result = self.run.result
        costs, scores = summary_rows(list(result.flows.values()))
        heads = ["", *result.flows]
        rows = [[title, *values] for _, title, values in (*costs, *scores) if re.search("[1-9]", " ".join(values))]
        notes = [f"* {as_markdown(note)}" for note in self.verdict.notes]
        sentence, legend = as_markdown(self.verdict.sentence), as_markdown(self.verdict.legend)
        numbers, table = markdown_table(NUMBERS, self.verdict.numbers), markdown_table(heads, rows)
        return "\n".join([f"**{sentence}**", "", *numbers, "", legend, "", *notes, "", *table])

    def pareto(self, x: str = "", y: str = "") -> Picture:
        """Draw each flow's mean of `y` over its mean of `x`, with intervals.

        By default `x` is the cost and `y` the measure behind `right`. Raises ConfigError.
        """
        check_names("measure of this run", filter(None, (x, y)), self.measures)
        return pareto(self, x or self.axes[0], y or self.axes[1])

    def forest(self) -> Picture | None:
        """Draw the paired differences of primary measures; None if the run has one flow."""
        return forest(self, self.pairs) if self.pairs else None

    def matrix(self, only: TurnFilter = "all", by: str = "", limit: int = 20) -> Matrix:
        """Return turns as rows and flows as columns, worst first by the measure `by`; raises ConfigError."""
        check_names("choice of turns", [only], ("all", "failed", "flipped", "disagree"))
        pairs = self.comparison.pairs if self.comparison else ()
        tests = [d for pair in pairs for d in pair.differences if d.primary]
        ranks = [(not d.is_shown, not d.changed, d.measure.name) for d in tests if d.measure.better == "higher"]
        by = by or min(ranks, key=lambda rank: rank[:2], default=(True, True, self.axes[1]))[2]
        check_names("measure of this run", [by], self.measures)
        return Matrix(self, only, by, limit)

    def display(self) -> None:
        """Show headline, table and pictures as outputs of a cell that need no trusted notebook."""
        from IPython.display import display

        text = dict.fromkeys(("text/markdown", "text/plain"), self.markdown())
        display(text, raw=True)  # type: ignore[no-untyped-call]
        for picture in filter(None, (self.pareto(), self.forest())) if len(self.run.result.flows) > 1 else ():
            display(picture)  # type: ignore[no-untyped-call]


class Matrix:
    """Turns by flows: a table in a notebook, lines in a terminal."""

    def __init__(self, content: Content, only: TurnFilter, by: str, limit: int) -> None:
        self._content, self._by, self._limit = content, by, limit
        sign = 1 if measure(by).better == "higher" else -1
        rows = []
        for key in content.rows:
            values = [self._mean(flow, key, by) for flow in range(len(content.sides))]
            failed = any(self._mean(flow, key, "failed") for flow in range(len(content.sides)))
            scores = [value for value in values if value is not None]
            spread = max(scores, default=0.0) - min(scores, default=0.0)
            flips = len({value < FLIP_SCORE for value in scores}) > 1
            if {"all": True, "failed": failed, "flipped": flips, "disagree": spread >= FLIP_SCORE}[only]:
                worst = min((sign * value for value in scores), default=float("inf"))
                rows.append((not failed, worst, -spread, key))
        self.keys = [key for *_, key in sorted(rows)]

    def _series_of(self, flow: int, key: RowKey) -> list[FlowSeries]:
        return [series for series in self._content.series if series.flow == flow and key in series.turns]

    def _mean(self, flow: int, key: RowKey, name: str) -> float | None:
        values = [series.values[key].get(name) for series in self._series_of(flow, key)]
        numbers = [value for value in values if value is not None]
        return sum(numbers) / len(numbers) if numbers else None

    def _lines(self) -> list[list[str]]:
        """Return one row per turn: question and expectations, then the reply and measure of each flow."""
        lines = []
        for key in self.keys[: self._limit]:
            cells, question = [], ""
            for flow in range(len(self._content.sides)):
                replies = []
                for series in self._series_of(flow, key):
                    row, value = series.turns[key], series.values[key].get(self._by)
                    question = row.user
                    score = "" if value is None else f"\n{self._by} {measure(self._by).show(value)}"
                    reply = row.reply.text or "(an empty reply)" if row.reply else f"FAILED: {row.error}"
                    replies.append(_truncated(reply) + score)
                cells.append("\n".join(replies))
            heading = [
                f"{key[0]} · turn {key[1] + 1}",
                *map(_truncated, (question, *expected(self._content.turn(key)))),
            ]
            lines.append(["\n".join(heading), *cells])
        return lines

    @property
    def _caption(self) -> str:
        return f"{min(self._limit, len(self.keys))} of {len(self.keys)} turns, worst {self._by} first"

    def __repr__(self) -> str:
        names = ["asked", *(side.name for side in self._content.sides)]
        parts = [
            "\n".join(f"{name}: {cell}".replace("\n", "\n    ") for name, cell in zip(names, line, strict=True))
            for line in self._lines()
        ]
        return printable("\n\n".join([self._caption, *parts]))

    def _repr_html_(self) -> str:
        heads = "".join(f"<th>{as_html(name)}</th>" for name in ("", *(side.name for side in self._content.sides)))
        cells = ("".join(f'<td style="{CELL}">{as_html(cell)}</td>' for cell in line) for line in self._lines())
        # JupyterLab would colour a whole row under the mouse.
        rows = "".join(f'<tr style="background: none">{each}</tr>' for each in cells)
        return f"<p>{as_html(self._caption)}</p><table><thead><tr>{heads}</tr></thead><tbody>{rows}</tbody></table>"


def _truncated(text: str) -> str:
    return text if len(text) <= MAX_REPLY_CHARS else f"{text[:MAX_REPLY_CHARS]} …"
