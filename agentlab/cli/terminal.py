"""What the command line shows of runs, pairs of flows and verdicts, as tables and lines."""

from __future__ import annotations

import os
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from agentlab.core.errors import RunError
from agentlab.core.shown import paragraph
from agentlab.evals.compare.family import ASSUMED
from agentlab.evals.compare.flips import told, worst
from agentlab.evals.compare.gate import Verdict
from agentlab.evals.compare.measures import COSTS, brief, summary_rows
from agentlab.evals.compare.pairs import Comparison, Pair, compare
from agentlab.evals.compare.questions import Answer
from agentlab.evals.compare.report import FILES, lines
from agentlab.evals.compare.verdicts import WORSE
from agentlab.evals.results.rows import Play
from agentlab.evals.results.run import Run
from agentlab.evals.results.show import expected, worst_turn
from agentlab.evals.results.tables import Cell, Terminal, print_line, print_table

FLIPS_SHOWN = 10
FLIPS_OF_A_MEASURE = 2
ERRORS_SHOWN = 3
HEADLINE_COSTS = ("failed", "llm_calls", "input_tokens", "output_tokens", "cost_usd", "latency_s")
"""Rows of a run's table that are always shown; of these, less is better."""
DETAILS = (
    *("exact_match", "semantic_similarity", "citation_precision", "citation_recall", "retrieval_mrr"),
    *("tool_precision", "tool_recall", "call_order", "valid_calls", "no_call_accuracy", "memory_write_precision"),
    *("memory_write_recall", "memory_restraint", "no_stale_fact", "duplicates_prevented"),
)
"""Scores that refine another one; `--all` shows them. What a scorer of the user's gives is shown always."""
_NAMES = {measure.title: measure.name for measure in COSTS} | {
    "turns (failed)": "failed",
    "cost USD": "cost_usd",
    "latency s, mean (p95)": "latency_s",
}


def show_comparison(run: Run, everything: bool = False) -> None:
    """The table of a run: one row a measure, one column a flow, intervals at 95 %; the headline, or `everything`."""
    console = new_console()
    result = run.result
    costs, scores = summary_rows(list(result.flows.values()))
    comparison = compared(run)
    worse = _shown_worse(comparison) if comparison and console.color_system else set()
    rows: list[list[Cell]] = []
    zero, more = [], 0
    for title, values in (*costs, *scores):
        name = _NAMES.get(title) or title.partition(" (n=")[0]
        finding = (title, values) in scores and name not in DETAILS
        if not finding and re.search(r"\d", told := " ".join(values)) and not re.search(r"[1-9]", told):
            zero.append(title)
        elif finding or everything or name in HEADLINE_COSTS:
            rows.append([title, *_coloured(name, values, [(label, name) in worse for label in result.flows])])
        else:
            more += 1
    print_table(console, f"{', '.join(result.datasets)} on {result.model}", ["", *result.flows], rows)
    if zero:
        print_line(console, f"0 everywhere: {', '.join(zero)}")
    for line in visible_differences(comparison):
        print_line(console, line)
    print_line(console, f"run folder: {run.path}")
    if isinstance(result.secrets, int):
        print_line(console, f"{result.secrets} texts of this run held a secret; it was taken out (<secret>)", "red")
    away = sum(flow.memory_unavailable for flow in result.flows.values())
    if away and run.folder.header["spec"]["mode"] in ("record", "auto"):
        print_line(
            console,
            f"{away} turns were recorded without their memory, which a replay will have: --mode auto, once memory is"
            " back, asks for what then differs.",
        )
    _show_failures(console, run)
    _show_next(console, run, more)


def _show_failures(console: Console, run: Run) -> None:
    result = run.result
    failed = Counter(row.error for row in run.played() if row.error is not None)
    if failed:
        count = f"{failed.total()} of {result.turns} turns failed and score 0"
        print_line(console, f"{count}; {run.path / 'run.log'} has more:", "red")
    for error, times in failed.most_common(ERRORS_SHOWN):
        print_line(console, f"  {times} x {' '.join(error[:300].split())}")
    if result.status != "complete" and not (result.recordings and result.recordings.missing):
        print_line(console, "The run stopped early: the budget is spent. Go on with --resume and a larger one.")


def _show_next(console: Console, run: Run, more: int) -> None:
    """Commands that look closer, the worst turn first."""
    folder = shlex.quote(str(run.path))
    steps = []
    if found := worst_turn(run.folder.played.turns, run.folder.scores()):
        row, why = found
        conversation, flow = shlex.quote(row.conversation), shlex.quote(row.flow)
        steps.append((f"show {folder} {conversation}", f"the worst: turn {row.turn}, {why} in {row.flow}"))
        steps.append((f"trace {folder} {conversation} --flow {flow}", "what that flow did, step by step"))
    if len(run.result.flows) > 1:
        steps.append((f"compare {folder}", "turn by turn, with p-values"))
    if more:
        steps.append((f"show {folder} --all", f"{more} more measures"))
    if steps:
        print_line(console, "next:", "bold")
    for command, does in steps:
        console.print(Text(f"  {paragraph(f'agentlab {command}  # {does}')}"), soft_wrap=True)


def compared(run: Run) -> Comparison | None:
    """The first flow with each other one; None for a single flow, or turns that are not there yet."""
    try:
        return compare(run)
    except RunError:
        return None


def _shown_worse(comparison: Comparison) -> set[tuple[str, str]]:
    """Flows that were shown to be worse than the first one, or the first one than them, each with the measure."""
    loser = {"B worse": "b", "B better": "a"}
    return {
        (getattr(pair, loser[d.reading]), d.measure.name)
        for pair in comparison.pairs
        for d in pair.differences
        if d.reading in loser
    }


def _coloured(name: str, values: Sequence[str], worse: Sequence[bool]) -> list[Cell]:
    """The best value green, what was shown to be worse red; terminals that show no colours leave them out."""
    numbers = [float(found[0]) if (found := re.match(r"-?[\d.]+", value)) else None for value in values]
    known = [number for number in numbers if number is not None]
    cost = name in HEADLINE_COSTS
    best = None if len(set(known)) < 2 or name == "failed" else min(known) if cost else max(known)
    return [
        Text(value, style="red" if is_worse else "green" if best is not None and number == best else "")
        for value, number, is_worse in zip(values, numbers, worse, strict=True)
    ]


def show_trace(run: Run, play: Play, full: bool) -> None:
    """A conversation in one flow: each turn's question, its steps as a tree, and what came of it."""
    console = new_console()
    flow, conversation, epoch = play
    print_line(console, f"{flow} · {conversation}" + (f" · epoch {epoch}" if epoch else ""), "bold")
    trace, gold = run.traces.get(play), run.conversations.get(conversation)
    rows = {row.turn: row for row in run.folder.played.turns if row.play == play}
    scores = [score for score in run.folder.scores() if (score.flow, score.conversation, score.epoch) == play]
    for turn in sorted({*rows, *(trace.turns() if trace else ())}):
        row = rows.get(turn)
        print_line(console, f"turn {turn}" + (f"  asked: {row.user}" if row else ""), "bold")
        if trace and (steps := trace.steps(turn, full=full)):
            console.print(Text(steps), soft_wrap=True)
        if row:
            print_line(console, f"reply: {row.reply.text}" if row.reply else f"FAILED: {row.error}")
        for line in expected(gold.turns[turn]) if gold and row else ():
            print_line(console, line, "cyan")
        for score in scores:
            if score.turn == turn:
                print_line(console, f"{score.metric} {float(score.value):.2f}  {score.reason}", "dim")
    console.print()


def show_pairs(comparison: Comparison, runs: Sequence[Run], answers: Sequence[Answer] = ()) -> None:
    """The answers first; a table a pair: one row a measure; then the turns whose answers crossed .5."""
    console = new_console()
    for answer in answers:
        print_line(console, str(answer))
    for pair in comparison.pairs:
        columns = ["", "n", "A", "B", "B - A", "95 %", "p", "p adj.", "d_z", "visible", ""]
        rows = []
        for d in sorted(pair.differences, key=lambda d: not d.primary):
            show = d.measure.show
            interval = f"[{brief(d.ci95[0])}, {brief(d.ci95[1])}]" if d.ci95 else "-"
            p, adjusted = ("-" if value is None else f"{value:.2g}" for value in (d.p, d.p_adjusted))
            d_z = "-" if d.d_z is None else f"{d.d_z:.2f}"
            means = (show(d.a), show(d.b), brief(d.difference, "+"))
            title = d.measure.title + (" *" if d.primary else "")
            rows.append([title, str(d.n), *means, interval, p, adjusted, d_z, brief(d.visible), d.reading])
        print_table(console, f"A: {pair.a}   B: {pair.b}", columns, rows)
        for line in _flipped(pair, comparison.primary, runs):
            print_line(console, line)
        for d in pair.differences:
            if d.more:
                print_line(
                    console, f"{d.measure.name}: not shown; {d.more} more conversations like these would show it"
                )
    print_line(
        console,
        f"* decides, a family of {max(1, comparison.family)} over all pairs; the rest advises, a family of its own."
        f" 95 %: bootstrap over conversations; p: {ASSUMED}; two-sided; adjusted by maxT; visible: the difference found"
        " in 80 % of such comparisons",
    )


def _flipped(pair: Pair, primary: Sequence[str], runs: Sequence[Run]) -> Iterator[str]:
    """The turns whose answers crossed .5 and those that cost most more, worst first, and why, of what decides."""
    sides = [(pair.a, runs[0], pair.flows[0]), (pair.b, runs[-1], pair.flows[1])]
    primary = [name for name in primary if name in pair.paired]
    dearer = [name for name in primary if pair[name].measure in COSTS]
    for word, flips in (("lost", pair.lost), ("gained", pair.gained)):
        by_metric = [[flip for flip in flips if flip.metric == name] for name in primary]
        if word == "lost":
            by_metric += [worst(pair.paired[name], FLIPS_OF_A_MEASURE) for name in dearer]
        shown = [flip for found in by_metric for flip in found[:FLIPS_OF_A_MEASURE]]
        for line in told(shown, sides) if shown else ():
            yield line if line.startswith(" ") else f"{word}: {line}"
        rest = [flip for flip in flips if flip not in shown]
        yield from (f"{word}: {flip}" for flip in rest[:FLIPS_SHOWN])
        if len(rest) > FLIPS_SHOWN:
            yield f"... and {len(rest) - FLIPS_SHOWN} more {word} (--json has all)"


def show_prefixes(shares: Sequence[Mapping[str, Any]], breaks: Sequence[Mapping[str, Any]]) -> None:
    """What a prefix cache could serve and did, a flow; then where prompts leave what was sent before."""
    console = new_console()
    measures = [name for name in shares[0] if name != "flow"] if shares else []
    by_flow = [{"": name, **{row["flow"]: row[name] for row in shares}} for name in measures]
    for title, rows in (
        ("prompt tokens that repeat the beginning of an earlier prompt", by_flow),
        ("where prompts leave what was sent before", breaks),
    ):
        if rows:
            print_table(console, title, list(rows[0]), [[*map(_cell_text, row.values())] for row in rows])


def _cell_text(cell: Any) -> str:
    if cell is None:
        return "-"
    return f"{cell:.4g}" if isinstance(cell, float) else f"{cell:,}" if isinstance(cell, int) else str(cell)


def show_verdict(verdict: Verdict, run: Run, *, explain: bool) -> None:
    """At most 20 lines: the verdict, what decided it, what lost most, what to do. `explain`: what was replied there."""
    console = new_console()
    style = {"regression": "red", "inconclusive": "yellow"}.get(verdict.result, "")
    first, *rest = lines(verdict)
    print_line(console, first, style)
    for line in rest:
        print_line(console, line)
    moved = [judged for judged in verdict.judged if judged.verdict in (*WORSE, "undecided") and judged.paired.changed]
    if explain:
        for judged in moved:
            flips = worst(judged.paired, FLIPS_SHOWN)
            for line in told(flips, [(verdict.run_id, run, judged.flow)]):
                print_line(console, f"    {line}" if line.startswith(" ") else f"{judged.flow}: {line}")
    elif moved and (flips := worst(moved[0].paired, FLIPS_OF_A_MEASURE)):
        shown = "; ".join(map(str, flips))
        print_line(console, f"worst turns of {moved[0].flow} (--explain has more): {shown}")
    print_line(console, f"all measures: {', '.join(FILES)} in {run.path}")


def new_console() -> Terminal:
    """Of the terminal's width; where there is no terminal and COLUMNS does not say one, tables may be 140 wide."""
    # Cut to 80 columns a table would be unreadable in a log, where nobody asked for 80.
    width = None if Console().is_terminal or "COLUMNS" in os.environ else 140
    return Terminal(width=width)


def visible_differences(comparison: Comparison | None) -> list[str]:
    """For each pair the smallest difference in what decides that could have been shown with so few turns."""
    if comparison is None:
        return []
    lines, equal = [], []
    for pair in comparison.pairs:
        for d in pair.differences:
            if not d.primary or d.measure in COSTS:
                continue
            if not d.changed:
                equal.append(d.measure.name)
                continue
            shown = f"none, {d.clusters} conversations are too few"
            if d.visible is not None:
                shown = f"{d.visible:.2f} (80 % power, in a family of {max(1, comparison.family)})"
            lines.append(f"smallest visible difference in {d.measure.name}, {pair.b} against {pair.a}: {shown}")
    if equal and not lines:
        names = ", ".join(dict.fromkeys(equal))
        lines = [f"smallest visible difference in {names}: unknown, as it does not differ"]
    return lines
