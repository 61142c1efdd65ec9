"""Print a run: its headline, numbers, failures and the next commands."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import chain

from rich.cells import cell_len
from rich.console import Console

from agentlab.cli.comparing import print_headline, reliabilities
from agentlab.core.constants import IMPORTED
from agentlab.evals.compare.causes import poor_turns
from agentlab.evals.compare.flow_numbers import NUMBERS
from agentlab.evals.compare.headline import Verdict, recommend
from agentlab.evals.compare.measure_verdict import ESTIMAND
from agentlab.evals.report.show import worst_turn
from agentlab.evals.report.tables import new_console, print_commands, print_line, print_table
from agentlab.evals.store.measures import ABSTAINING, stops_of, summary_rows
from agentlab.evals.store.rows import TurnRow
from agentlab.lab.run import Run

MAX_ERRORS = 3
MAX_BULLETS = 3
MAX_COMPARED_TURNS = 1_000_000
"""A comparison holds every turn in memory; the table of a run does not."""


def show_run(run: Run, show_all: bool = False, max_turns: int = MAX_COMPARED_TURNS) -> None:
    """Print the headline of a run, a row of numbers for each flow, and the most important evidence.

    With `show_all` print every bullet, every measure with its interval at 95 %, and causes. A run of more than
    `max_turns` turns is not compared.
    """
    console = new_console()
    result = run.result
    title = f"{', '.join(result.datasets)} on {result.model}"
    turns = max((each.turns for each in result.flows.values()), default=0)
    verdict = recommend(run)[0] if result.turns <= max_turns else None
    if verdict:
        print_headline(console, verdict)
        flows = f" x {len(result.flows)} flows" if len(result.flows) > 1 else ""
        print_line(console, f"{title}, {turns} turns{flows}", "italic")
        _print_numbers(console, verdict)
        bullets = verdict.notes if show_all else verdict.notes[:MAX_BULLETS]
        for line in (*bullets, *_unknown_scores(run)):
            print_line(console, f"* {line}")
    if show_all or not verdict:
        rows = [[row, *values] for _, row, values in chain(*summary_rows(list(result.flows.values())))]
        print_table(console, title, ["", *result.flows], rows)
        print_line(console, ESTIMAND, "dim")
    if show_all and verdict:
        for line in (*reliabilities(run), *poor_turns(run)):
            print_line(console, line)
    print_line(console, f"run folder: {run.path}{'' if show_all else ' (show --all: every measure, pair and cause)'}")
    if isinstance(result.secrets, int):
        print_line(console, f"{result.secrets} texts of this run contained a secret, now <secret>", "red")
    missing = sum(flow.memory_unavailable or 0 for flow in result.flows.values())
    if missing and run.header["spec"]["mode"] in ("record", "auto"):
        print_line(console, f"{missing} turns were recorded while memory was unavailable; run again with --mode auto")
    worst = None
    if verdict:
        worst = worst_turn(run.map_turns(), verdict.measure)
        if note := _queueing_note(run):
            print_line(console, note)
    else:
        print_line(console, f"comparison of {result.turns:,} turns skipped; run `agentlab compare {run.path}`")
    _show_failures(console, run, by_cause=verdict is not None)
    _show_next(console, run, worst, show_all)


def _print_numbers(console: Console, verdict: Verdict) -> None:
    """Print a row of numbers for each flow; the reasons move below the rows if the width does not hold them."""
    if not verdict.numbers:
        return
    priced = any(each.cost.startswith("$") for each in verdict.numbers)
    rows = [list(NUMBERS), *map(list, verdict.numbers)]
    for row in rows:
        del row[4 : 4 if priced else 5]
    is_narrow = sum(map(max, ([cell_len(row[i]) + 2 for row in rows] for i in range(len(rows[0]))))) > console.width
    heads, *cells = [row[:-1] if is_narrow else row for row in rows]
    print_table(console, "", heads, cells, plain=True)
    reasons: dict[str, list[str]] = {}
    for each in verdict.numbers if is_narrow else ():
        reasons.setdefault(each.decides, []).append(each.flow)
    for reason, flows in reasons.items():
        print_line(console, f"{reason}: {', '.join(flows)}" if reason else "")
    if verdict.legend:
        print_line(console, f"{verdict.legend}; costs: per turn", "dim")


def _unknown_scores(run: Run) -> Iterator[str]:
    """Yield a line for each score with missing values: the first turn without a value, and their number."""
    turns_by_score = defaultdict[str, list[str]](list)
    for row in run.map_turns() if run.result.mode != IMPORTED else ():
        for name, score in (row.scores or {}).items():
            if score.value is None and name not in ABSTAINING:
                turns_by_score[name].append(f"turn {row.turn + 1} of {row.conversation} by {row.flow}")
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
    if cut := "; ".join(f"{flow} {stops_of(each)}" for flow, each in result.flows.items() if each.stopped):
        print_line(console, f"replies cut short: {cut}")
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


def _show_next(console: Console, run: Run, worst: tuple[TurnRow, str] | None, show_all: bool) -> None:
    """Print why the run stopped early, then the next commands; the first one shows the worst turn."""
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
        purpose = f"the worst: turn {row.turn + 1}, {reason} in {row.flow}"
        commands.append((f"show {folder} {shlex.quote(row.conversation)}", purpose))
    if len(run.result.flows) > 1 and show_all:
        commands.append((f"compare {folder}", "turn by turn, with p-values"))
    commands.append((f"report {folder} -o run.html", "one page for the browser"))
    print_commands(console, commands)
