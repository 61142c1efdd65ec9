"""Print a run: its table, the recommendation, failures and the next commands."""

from __future__ import annotations

import re
import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.text import Text

from agentlab.cli.comparing import reliabilities
from agentlab.core.constants import IMPORTED
from agentlab.evals.compare.causes import poor_turns
from agentlab.evals.compare.pairs import Comparison
from agentlab.evals.compare.ship import Verdict, recommend
from agentlab.evals.report.show import worst_turn
from agentlab.evals.report.tables import Cell, new_console, print_commands, print_line, print_table
from agentlab.evals.store.measures import summary_rows
from agentlab.evals.store.rows import TurnFigures, TurnRow
from agentlab.lab.run import Run

MAX_ERRORS = 3
MAX_COMPARED_TURNS = 1_000_000
"""A comparison holds every turn in memory; the table of a run does not."""
HEADLINE_COSTS = ("failed", "llm_calls", "input_tokens", "output_tokens", "cost_usd", "latency_s")
"""Rows that the table always has; lower is better."""
DETAILS = (
    *("exact_match", "semantic_similarity", "citation_precision", "citation_recall", "retrieval_mrr"),
    *("tool_precision", "tool_recall", "call_order", "valid_calls", "no_call_accuracy", "memory_write_precision"),
    *("memory_write_recall", "memory_restraint", "no_stale_fact", "duplicates_prevented"),
    *("rouge_l", "retrieval_ndcg", "context_precision"),
)
"""Scores that refine another one, shown with `--all`. Scores of the user's own scorers are always shown."""


def show_run(run: Run, show_all: bool = False, at_most: int = MAX_COMPARED_TURNS) -> None:
    """Print a run as a table: one row per measure, one column per flow, intervals at 95 %.

    With `show_all` it has every measure. A run of more than `at_most` turns is not compared.
    """
    console = new_console()
    result = run.result
    verdict, comparison = recommend(run) if result.turns <= at_most else (None, None)
    worse = _shown_worse(comparison) if comparison and console.color_system else set()
    rows, zero, hidden = _rows_of(run, worse, show_all)
    if run.all_turns_failed and verdict:
        _show_recommendation(console, verdict)
    else:
        print_table(console, f"{', '.join(result.datasets)} on {result.model}", ["", *result.flows], rows)
        if zero:
            print_line(console, f"0 everywhere: {'; '.join(zero)}")
        if verdict:
            _show_recommendation(console, verdict)
            for line in (*_unknown_scores(run), *reliabilities(run), *poor_turns(run)):
                print_line(console, line)
    print_line(console, f"run folder: {run.path}")
    if isinstance(result.secrets, int):
        print_line(console, f"{result.secrets} texts of this run contained a secret, now <secret>", "red")
    missing = sum(flow.memory_unavailable or 0 for flow in result.flows.values())
    if missing and run.header["spec"]["mode"] in ("record", "auto"):
        print_line(console, f"{missing} turns were recorded while memory was unavailable; run again with --mode auto")
    worst = None
    if verdict:
        worst = worst_turn(run.map_turns())
        if note := _queueing_note(run):
            print_line(console, note)
    else:
        print_line(console, f"comparison of {result.turns:,} turns skipped; run `agentlab compare {run.path}`")
    _show_failures(console, run, by_cause=verdict is not None)
    _show_next(console, run, worst, hidden)


def _rows_of(run: Run, worse: set[tuple[str, str]], show_all: bool) -> tuple[list[list[Cell]], list[str], int]:
    """Return the rows of the table, the measures that are 0 in every flow, and the number of rows left out."""
    costs, scores = summary_rows(list(run.result.flows.values()))
    rows: list[list[Cell]] = []
    zero, hidden = [], 0
    # If a run has no other scores, these are what it was graded for.
    details = DETAILS if any(name not in DETAILS for name, *_ in scores) else ()
    headlines = {name for name, *_ in scores if name not in details}
    for name, title, values in (*costs, *scores):
        if name not in headlines and re.search(r"\d", text := " ".join(values)) and not re.search(r"[1-9]", text):
            zero.append(title)
        elif name in headlines or show_all or name in HEADLINE_COSTS:
            rows.append([title, *_coloured(name, values, [(label, name) in worse for label in run.result.flows])])
        else:
            hidden += 1
    return rows, zero, hidden


def _unknown_scores(run: Run) -> Iterator[str]:
    """Yield a line for each score with a missing value, whose mean is unknown: its first turn and their number."""
    turns_by_score = defaultdict[str, list[str]](list)
    for row in run.map_turns() if run.result.mode != IMPORTED else ():
        for name, score in (row.scores or {}).items():
            if score.value is None:
                turns_by_score[name].append(f"turn {row.turn} of {row.conversation} by {row.flow}")
    for name, turns in turns_by_score.items():
        rest = f" and {len(turns) - 1} more" if len(turns) > 1 else ""
        yield f"{name} is unknown: its scorer gave no number for {turns[0]}{rest}"


def _queueing_note(run: Run) -> str:
    """Compare wall-clock time and latency of a turn; "" if they differ by less than half, or in a replay."""
    if run.result.mode not in ("live", "record"):
        return ""
    times = [(row.wall_seconds, row.latency_s) for row in run.map_turns()]
    pairs = [(wall, latency) for wall, latency in times if wall is not None and latency is not None]
    wall, latency = (sum(column) / len(pairs) for column in zip(*pairs, strict=True)) if pairs else (0.0, 0.0)
    if wall < max(1.5 * latency, latency + 0.1):
        return ""
    times_note = f"a turn took {wall:.1f} s of wall-clock time and {latency:.2f} s of latency"
    return f"{times_note}, which excludes waiting (busy model, retries) and background work"


def _show_failures(console: Console, run: Run, *, by_cause: bool) -> None:
    """Print how many turns failed; with `by_cause` also the most frequent errors."""
    result = run.result
    for each in result.quarantined or ():
        line = f"quarantined: {each.flow} {each.conversation}: {each.cause}; --resume runs it again"
        print_line(console, line, "red")
    if again := run.header.get("asked_again"):
        print_line(console, f"{again} turns were run again after a failure of the provider")
    failed = sum(flow.errors for flow in result.flows.values())
    causes = Counter[str]()
    if failed and by_cause:
        causes.update(row.error for row in run.map_turns() if row.error is not None)
    if failed:
        log = run.path / "run.log"
        hint = f"; {log} has more" if log.exists() else ""
        print_line(console, f"{failed} of {result.turns} turns failed and score 0{hint}{':' if causes else ''}", "red")
    for error, times in causes.most_common(MAX_ERRORS):
        print_line(console, f"  {times} x {' '.join(error[:300].split())}")


def _show_next(console: Console, run: Run, worst: tuple[TurnRow | TurnFigures, str] | None, hidden: int) -> None:
    """Print why the run stopped early, and commands that show more, the worst turn first."""
    result = run.result
    if result.status != "complete" and not result.quarantined and not (result.recordings and result.recordings.missing):
        reason = "a budget is spent (or replies report no tokens, see run.log); continue with --resume and a larger one"
        if "sequential" in run.header:
            reason = "the gate reached a verdict or a budget is spent; see gate.md"
        print_line(console, f"The run stopped early: {reason}")
    folder = shlex.quote(str(run.path))
    commands = []
    if worst:
        row, reason = worst
        flow, conversation = shlex.quote(row.flow), shlex.quote(row.conversation)
        commands.append((f"show {folder} {conversation}", f"the worst: turn {row.turn}, {reason} in {row.flow}"))
        if run.result.mode != IMPORTED:
            commands.append((f"show {folder} {conversation} --trace --flow {flow}", "every step of that flow"))
    if len(run.result.flows) > 1:
        commands.append((f"compare {folder}", "turn by turn, with p-values"))
    commands.append((f"report {folder} -o run.html", "one page for the browser"))
    if hidden:
        commands.append((f"show {folder} --all", f"{hidden} more measures"))
    print_commands(console, commands)


def _show_recommendation(console: Console, verdict: Verdict) -> None:
    """Print the recommendation and its reasons, a line per pair."""
    print_line(console, verdict.sentence, {"ship": "bold green", "undecided": "bold yellow"}.get(verdict.kind, "bold"))
    for note in verdict.notes:
        print_line(console, f"  {note}")


def _shown_worse(comparison: Comparison) -> set[tuple[str, str]]:
    """Return the flows that are significantly worse than the other of their pair, each with the measure."""
    loser = {"B worse": "b", "B better": "a"}
    return {
        (getattr(pair, loser[d.verdict]), d.measure.name)
        for pair in comparison.pairs
        for d in pair.differences
        if d.verdict in loser
    }


def _coloured(name: str, values: Sequence[str], worse: Sequence[bool]) -> list[Cell]:
    """Colour the best value green and significantly worse ones red; without colours the terminal drops them."""
    numbers = [float(match[0]) if (match := re.match(r"-?[\d.]+", value)) else None for value in values]
    present = [number for number in numbers if number is not None]
    is_cost = name in HEADLINE_COSTS
    best = None if len(set(present)) < 2 or name == "failed" else min(present) if is_cost else max(present)
    return [
        Text(value, style="red" if is_worse else "green" if best is not None and number == best else "")
        for value, number, is_worse in zip(values, numbers, worse, strict=True)
    ]
