"""A conversation as every flow answered it: question, what is expected, and the whole replies side by side.

run.show("laws-001")            # shows itself in a notebook and where it is printed
"""

from __future__ import annotations

import html
import io
from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.core.events import printable
from agentlab.core.trace import tokens
from agentlab.data.conversations import Turn
from agentlab.evals.results.rows import ScoreRow, TurnRow
from agentlab.evals.results.tables import print_line

if TYPE_CHECKING:
    from agentlab.evals.results.run import Run

NARROWEST = 34
"""Characters of a column in which a reply can still be read."""
PRINTED_WIDTH = 120
"""Of a conversation that is printed by Python, or shown in a notebook."""
HEADLINES = ("answer_f1", "tool_f1", "memory_recall", "lookup_accuracy")
"""The measure each kind of data set is about; between 0 and 1."""


class Shown:
    """One conversation of a run; raises RunError where the run has none of that name."""

    def __init__(self, run: Run, conversation: str) -> None:
        self._run = run
        self.conversation = conversation
        self._turns: dict[int, list[TurnRow]] = defaultdict(list)
        order = [flow["label"] or flow["flow"] for flow in run.folder.header["spec"]["flows"]]
        for row in sorted(run.folder.played.turns, key=lambda row: order.index(row.flow)):
            if row.conversation == conversation:
                self._turns[row.turn].append(row)
        if not self._turns:
            known = {row.conversation for row in run.folder.played.turns}
            raise RunError(plugins.unknown("conversation of this run", conversation, known))
        self._scores: dict[tuple[str, int, int], list[ScoreRow]] = defaultdict(list)
        for score in run.folder.scores():
            if score.conversation == conversation:
                self._scores[score.flow, score.turn, score.epoch].append(score)

    def print_to(self, console: Console) -> None:
        played = self._run.conversations.get(self.conversation)
        turns = dict(enumerate(played.turns)) if played else dict.fromkeys(sorted(self._turns))
        if not played:
            print_line(console, "(what is expected is not shown: the data set is not here, or has changed since)")
        for number, turn in turns.items():
            rows = self._turns.get(number, [])
            if not rows and turn and turn.scored:
                continue  # the run ended before
            print_line(console, f"turn {number} of {self.conversation}{'' if rows else ' (not asked)'}", "bold")
            print_line(console, f"asked: {rows[0].user if rows else turn.user if turn else ''}")
            for line in expected(turn):
                print_line(console, line, "cyan")
            self._print_answers(console, rows)
            console.print()

    def _print_answers(self, console: Console, rows: list[TurnRow]) -> None:
        answers = [(_title(row), _said(row), self._figures(row)) for row in rows]
        if not answers:
            return
        lines = [line for title, _, figures in answers for line in (title, *figures)]
        narrowest = max(NARROWEST, *map(cell_len, lines)) + 3
        beside = max(1, (console.width - 1) // narrowest)
        for begin in range(0, len(answers), beside):
            block = answers[begin : begin + beside]
            if beside == 1:
                for title, said, figures in block:
                    print_line(console, title, "bold")
                    print_line(console, said.plain, str(said.style))
                    for figure in figures:
                        print_line(console, f"  {figure}", "dim")
                continue
            table = Table(width=min(console.width, len(block) * narrowest * 2), show_lines=True)
            for title, _, _ in block:
                table.add_column(Text(title), ratio=1, overflow="fold")
            table.add_row(*(said for _, said, _ in block))
            table.add_row(*(Text("\n".join(figures), style="dim") for _, _, figures in block))
            console.print(table)

    def _figures(self, row: TurnRow) -> list[str]:
        scores = self._scores[row.flow, row.turn, row.epoch]
        costs = self._run.costs(row)
        spent = f"{tokens(costs['input_tokens'], costs['output_tokens'])}, {costs['latency_s']:.2f} s"
        return [*(f"{printable(score.metric)} {float(score.value):.2f}" for score in scores), spent]

    def __repr__(self) -> str:
        written = io.StringIO()
        self.print_to(Console(file=written, width=PRINTED_WIDTH, highlight=False, markup=False, emoji=False))
        return written.getvalue().rstrip()

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{html.escape(repr(self))}</pre>'


def expected(turn: Turn | None) -> Iterator[str]:
    """What a data set expects of a reply, a line each."""
    if turn is None:
        return
    if turn.reference_answers:
        yield f"reference: {' | '.join(turn.reference_answers)}"
    if turn.unanswerable:
        yield "expected: the reply declines, as the documents hold no answer"
    if turn.relevant_doc_ids:
        yield f"relevant: {', '.join(turn.relevant_doc_ids)}"
    if turn.no_call:
        yield "expected: no call"
    for call in turn.expected_calls or ():
        accepted = "; ".join(f"{name}: {values}" for name, values in call.accepted_arguments.items())
        yield f"expected: {call.name}({accepted})"
    for memory in turn.expected_memory or ():
        yield f"expected of memory: {memory.op} {memory.content or ''}".rstrip()


def worst_turn(run: Run) -> tuple[TurnRow, str] | None:
    """A turn that failed, or the one with the least of its headline score, and why; None where all went well."""
    rows = run.folder.played.turns
    for row in rows:
        if row.error is not None:
            return row, "failed"
    graded = [score for score in run.folder.scores() if score.metric in HEADLINES and score.value < 1]
    if not graded:
        return None
    first = next(metric for metric in HEADLINES if any(score.metric == metric for score in graded))
    of_turn: dict[tuple[str, int], list[float]] = defaultdict(list)
    for score in graded:
        of_turn[score.conversation, score.turn].append(float(score.value))

    def badness(score: ScoreRow) -> tuple[float, float]:
        shared = of_turn[score.conversation, score.turn]
        return float(score.value), sum(shared) / len(shared)

    worst = min((score for score in graded if score.metric == first), key=badness)
    where = (worst.flow, worst.conversation, worst.turn, worst.epoch)
    row = next(row for row in rows if (row.flow, row.conversation, row.turn, row.epoch) == where)
    return row, f"{worst.metric} {float(worst.value):.2f}"


def _title(row: TurnRow) -> str:
    return printable(row.flow + (f" (epoch {row.epoch})" if row.epoch else ""))


def _said(row: TurnRow) -> Text:
    if row.reply is None:
        return Text(printable(f"FAILED: {row.error}"), style="red")
    return Text(printable(row.reply.text) or "(an empty reply)")
