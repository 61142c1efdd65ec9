"""View of a conversation: for each turn the question, the expectations, and all replies side by side.

run.show("laws-001")            # for a notebook or a terminal
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from agentlab.core.errors import RunError
from agentlab.core.escaping import as_html, one_line, printable
from agentlab.core.plugins import check_names
from agentlab.core.trace import Trace, seconds, tokens, turn_index
from agentlab.data.conversations import Conversation, Turn
from agentlab.evals.compare.causes import Cause
from agentlab.evals.report.tables import Terminal, print_line
from agentlab.evals.store.rows import TrialKey, TurnRow

MIN_COLUMN_WIDTH = 34
"""Smallest readable width of a reply column, in characters."""
PRINTED_WIDTH = 120
"""Width of a conversation in Python and in a notebook."""


@dataclass(frozen=True, repr=False)
class ConversationView:
    """One conversation: its played turns with costs and scores, and their expectations."""

    conversation: str
    played: Sequence[TurnRow]
    from_dataset: Conversation | None
    causes: Mapping[tuple[str, int, int], Cause]
    """(flow, turn, epoch) -> cause of a poor turn."""
    only_turn: int | None = None

    def narrowed(self, flows: Sequence[str] = (), turn: int | None = None) -> ConversationView:
        """Return the view of some flows, or of one turn, counted from 1; raise RunError if there is none."""
        names = {row.flow for row in self.played}
        check_names(f"flow of {self.conversation}", flows, names, kind=RunError)
        turns = len(self.from_dataset.turns) if self.from_dataset else 1 + max(row.turn for row in self.played)
        only = None if turn is None else turn_index(turn)
        if only is not None and only >= turns:
            raise RunError(f"turn {turn}: {self.conversation} has turns 1 to {turns}")
        return replace(self, played=[row for row in self.played if row.flow in (flows or names)], only_turn=only)

    def print_to(self, console: Console, traces: Mapping[TrialKey, Trace] | None = None, *, full: bool = False) -> None:
        """Print each turn with all replies side by side; with `traces`, with the steps that led to each reply."""
        numbers = {row.turn for row in self.played}
        turns = dict(enumerate(self.from_dataset.turns)) if self.from_dataset else dict.fromkeys(sorted(numbers))
        if not self.from_dataset:
            print_line(console, "(no expectations shown: the data set is missing or has changed)")
        for number, turn in turns.items():
            if self.only_turn not in (None, number):
                continue
            if turn and turn.scored and number not in numbers:
                continue  # the run stopped before this turn
            answers = [row for row in self.played if row.turn == number]
            print_line(console, f"turn {number + 1} of {self.conversation}{'' if answers else ' (not asked)'}", "bold")
            print_line(console, f"asked: {turn.user if turn else answers[0].user}")
            for line in expected(turn):
                print_line(console, line, "cyan")
            if traces is None:
                _print_beside(console, [(_title(row), _reply_text(row), self._figures(row)) for row in answers])
            for row in answers if traces is not None else ():
                self._print_steps(console, row, (traces or {}).get(row.trial), full)
            console.print()

    def _print_steps(self, console: Console, row: TurnRow, trace: Trace | None, full: bool) -> None:
        print_line(console, _title(row), "bold")
        if trace and (steps := trace.steps(row.turn + 1, full=full)):
            console.print(Text(steps), soft_wrap=True)
        print_line(console, f"reply: {row.reply.text}" if row.reply else f"FAILED: {row.error}")
        if cause := self.causes.get((row.flow, row.turn, row.epoch)):
            print_line(console, f"cause: {cause}", "cyan")
        for metric, score in (row.scores or {}).items():
            print_line(console, f"{metric} {score.text}  {score.reason}", "dim")

    def _figures(self, row: TurnRow) -> list[str]:
        totals = row.totals
        is_unknown = totals.input_tokens is None and totals.output_tokens is None
        spent = "tokens -" if is_unknown else tokens(totals.input_tokens, totals.output_tokens)
        costs = f"{spent}, {'time -' if row.latency_s is None else seconds(row.latency_s)}"
        scores = (row.scores or {}).items()
        cause = self.causes.get((row.flow, row.turn, row.epoch))
        cause_line = [f"cause: {cause.cause}"] if cause else []
        return [*(f"{one_line(metric)} {score.text}" for metric, score in scores), costs, *cause_line]

    def __repr__(self) -> str:
        buffer = io.StringIO()
        # In a notebook rich would show each line itself, and leave the file empty.
        console = Terminal(
            file=buffer, width=PRINTED_WIDTH, force_jupyter=False, force_terminal=False, color_system=None
        )
        self.print_to(console)
        return buffer.getvalue().rstrip()

    def _repr_html_(self) -> str:
        return f'<pre style="white-space: pre-wrap">{as_html(repr(self))}</pre>'


def _print_beside(console: Console, answers: Sequence[tuple[str, Text, list[str]]]) -> None:
    """Print replies with titles and figures, as many side by side as are readable, else one below the other."""
    widths = [cell_len(line) for title, _, figures in answers for line in (title, *figures)]
    min_width = max([MIN_COLUMN_WIDTH, *widths]) + 3
    columns = max(1, (console.width - 1) // min_width)
    for begin in range(0, len(answers), columns):
        block = answers[begin : begin + columns]
        table = Table(width=min(console.width, len(block) * min_width * 2), show_lines=True)
        for title, _, _ in block:
            table.add_column(Text(title), ratio=1, overflow="fold")
        table.add_row(*(reply for _, reply, _ in block))
        table.add_row(*(Text("\n".join(figures), style="dim") for _, _, figures in block))
        console.print(table)


def expected(turn: Turn | None) -> Iterator[str]:
    """Yield the expectations of a turn, one line each."""
    if turn is None:
        return
    if turn.reference_answers:
        yield f"reference: {' | '.join(turn.reference_answers)}"
    if turn.unanswerable:
        yield "expected: the reply declines"
    if turn.relevant_doc_ids:
        yield f"relevant: {', '.join(turn.relevant_doc_ids)}"
    if turn.no_call:
        yield "expected: no call"
    for call in turn.expected_calls or ():
        accepted = "; ".join(f"{name}: {values}" for name, values in call.accepted_arguments.items())
        yield f"expected: {call.name}({accepted})"
    for memory in turn.expected_memory or ():
        yield f"expected of memory: {memory.op} {memory.content or ''}".rstrip()


def worst_turn(turns: Iterable[TurnRow], measure: str) -> tuple[TurnRow, str] | None:
    """Return a failed turn, or the one with the lowest score of `measure`, and the reason; None if all are perfect."""

    def value(row: TurnRow) -> float:
        score = (row.scores or {}).get(measure)
        return -1.0 if row.error is not None else 1.0 if score is None or score.value is None else float(score.value)

    worst = min(turns, key=value, default=None)
    if worst is None or value(worst) >= 1:
        return None
    return worst, f"{measure} {value(worst):.2f}" if worst.error is None else "failed"


def _title(row: TurnRow) -> str:
    return one_line(row.flow + (f" (epoch {row.epoch})" if row.epoch else ""))


def _reply_text(row: TurnRow) -> Text:
    if row.reply is None:
        return Text(printable(f"FAILED: {row.error}"), style="red")
    return Text(printable(row.reply.text) or "(an empty reply)")
