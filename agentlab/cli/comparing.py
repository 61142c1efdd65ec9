"""Print comparisons of flows, and the verdict of a gate."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from itertools import chain

from rich.console import Console
from rich.text import Text

from agentlab.evals.compare.claims import ClaimResult
from agentlab.evals.compare.epochs import PASS_THRESHOLD, reliability
from agentlab.evals.compare.family import TEST_ASSUMPTION
from agentlab.evals.compare.flips import Flip, RepliesByTurn, format_flips, largest_losses, replies_of
from agentlab.evals.compare.gate import GateVerdict
from agentlab.evals.compare.headline import Verdict, recommend
from agentlab.evals.compare.measure_verdict import ESTIMAND, MeasureVerdict, format_needed
from agentlab.evals.compare.pairs import Comparison, FlowPair
from agentlab.evals.report.gate_files import FILES, summary_lines
from agentlab.evals.report.tables import Cell, new_console, print_commands, print_line, print_table
from agentlab.evals.stats.planning import MARGIN
from agentlab.evals.store.measures import COSTS, format_number, measure, primary_family
from agentlab.evals.store.run import notes_on_judges
from agentlab.lab.run import Run

MAX_FLIPS = 10
MAX_FLIPS_IN_SHORT = 5
MAX_FLIPS_OF_A_MEASURE = 2
MAX_SLICES = 2
STYLES = {"ship": "bold green", "cheapest": "bold yellow", "undecided": "bold yellow"} | dict.fromkeys(
    ("failing", "unusable"), "bold red"
)
"""Style of a headline of each kind."""


def show_pairs(
    comparison: Comparison, runs: Sequence[Run], answers: Sequence[ClaimResult] = (), *, show_all: bool = False
) -> None:
    """Print the headline, the verdicts on claims, a line and a table of primary measures for each pair, and flips.

    With `show_all` print a row for every measure, and more flips.
    """
    console = new_console()
    runs = list(dict.fromkeys(runs))
    print_headline(console, recommend(*runs, comparison=comparison)[0])
    for line in (*answers, *([comparison.best] if comparison.best else []), *comparison.pairs):
        print_line(console, str(line))
    parts = [f"in a slice only: {slice_}" for slice_ in comparison.slices[:MAX_SLICES]]
    for line in (*parts, *chain.from_iterable(map(notes_on_judges, runs))):
        print_line(console, line)
    for pair in comparison.pairs:
        _show_pair(console, pair, show_all)
    legend = f"* primary measure; {ESTIMAND}; p: {TEST_ASSUMPTION}; two-sided; adjusted by maxT over"
    legend += f" {max(1, comparison.family)} tests of all pairs"
    legend += "; detectable: the difference found in 80 % of such comparisons" if show_all else ""
    print_line(console, legend, "dim")
    pairs = [(pair, _flips_to_show(pair, comparison.primary)) for pair in comparison.pairs]
    turns = {(flow, flip.key) for pair, flips in pairs for _, flip in flips for flow in pair.flows}
    rows = [replies_of(run, turns) for run in runs]
    left = MAX_FLIPS if show_all else MAX_FLIPS_IN_SHORT
    for pair, flips in pairs:
        flips = flips if show_all else flips[:left]
        left -= len(flips)
        for line in _flip_lines(pair, flips, rows, MAX_FLIPS if show_all else 0):
            print_line(console, line)
    if not show_all:
        secondary = max(sum(not d.primary for d in pair.differences) for pair in comparison.pairs)
        folders = " ".join(shlex.quote(str(run.path)) for run in runs)
        commands = [(f"compare {folders} --all", f"{secondary} more measures, and more turns")]
        print_commands(console, [*commands, (f"report {folders} -o run.html", "one page for the browser")])


def print_headline(console: Console, verdict: Verdict) -> None:
    """Print the sentence that every surface opens with."""
    print_line(console, verdict.sentence, STYLES.get(verdict.kind, "bold"))


def _show_pair(console: Console, pair: FlowPair, show_all: bool) -> None:
    names = ["", "n", "A", "B", "B - A", "95 %", "p adj.", "verdict"]
    columns = [*names, *(("p", "d_z", "detectable") if show_all else ())]
    measures = [d for d in pair.differences if d.primary or show_all]
    unknown = [d.measure.title for d in measures if d.kind == "unknown"]
    rows = [_row(d)[: len(columns)] for d in sorted(measures, key=lambda d: not d.primary) if d.kind != "unknown"]
    print_table(console, f"A: {pair.a}   B: {pair.b}", columns, rows)
    if unknown:
        print_line(console, f"unknown for A or B: {', '.join(unknown)}")
    for d in pair.differences:
        if needed := d.conversations_needed:
            print_line(console, f"{d.measure.name}: no difference shown; {format_needed(needed, MARGIN)}")


def _row(d: MeasureVerdict) -> list[Cell]:
    """Return the row of a measure; a significant verdict is green or red."""
    *cells, text = d.cells
    verdict = Text(text, style={"better": "green", "worse": "red"}.get(d.kind, ""))
    p = "-" if d.p is None else f"{d.p:.2g}"
    d_z = "-" if d.d_z is None else f"{d.d_z:.2f}"
    return [d.measure.title + (" *" if d.primary else ""), *cells, verdict, p, d_z, format_number(d.detectable_loss)]


def _flips_to_show(pair: FlowPair, primary: Sequence[str]) -> list[tuple[str, Flip]]:
    """Return the largest flips of primary measures, lost or gained; for costs the turns that cost most more."""
    chosen = []
    for name in (name for name in primary if name in pair.paired):
        for direction, flips in (("lost", pair.lost), ("gained", pair.gained)):
            own = [flip for flip in flips if flip.metric == name]
            if direction == "lost" and pair[name].measure in COSTS:
                own = largest_losses(pair.paired[name], MAX_FLIPS_OF_A_MEASURE)
            chosen += [(direction, flip) for flip in own[:MAX_FLIPS_OF_A_MEASURE]]
    return chosen


def _flip_lines(
    pair: FlowPair, chosen: Sequence[tuple[str, Flip]], rows: Sequence[RepliesByTurn], max_more: int
) -> Iterator[str]:
    """Yield the replies of the chosen flips, worst first, with the reasons; then at most `most` other flips."""
    sides = [(pair.a, rows[0], pair.flows[0]), (pair.b, rows[-1], pair.flows[1])]
    for direction, flips in (("lost", pair.lost), ("gained", pair.gained)):
        own = [flip for each, flip in chosen if each == direction]
        yield from (line if line.startswith(" ") else f"{direction}: {line}" for line in format_flips(own, sides))
        rest = [flip for flip in flips if flip not in own] if max_more else []
        yield from (f"{direction}: {flip}" for flip in rest[:max_more])
        if len(rest) > max_more:
            yield f"... and {len(rest) - max_more} more {direction} (--json has all)"


def show_verdict(verdict: GateVerdict, run: Run, *, explain: bool) -> None:
    """Print the verdict in at most 20 lines; with `explain` also the replies of the turns that lost most."""
    console = new_console()
    print_headline(console, recommend(run)[0])
    style = {"regression": "red", "inconclusive": "yellow"}.get(verdict.result, "")
    first, *rest = summary_lines(verdict)
    print_line(console, first, style)
    for line in rest:
        print_line(console, line)
    changed = [each for each in verdict.measure_verdicts if each.paired.changed]
    changed = [each for each in changed if each.kind == "worse" or (each.verdict == "undecided" and each.primary)]
    if explain:
        lost = [(each, largest_losses(each.paired, MAX_FLIPS)) for each in changed]
        rows = replies_of(run, {(each.flow, flip.key) for each, flips in lost for flip in flips})
        for each, flips in lost:
            for line in format_flips(flips, [(verdict.run_id, rows, each.flow)]):
                print_line(console, f"    {line}" if line.startswith(" ") else f"{each.flow}: {line}")
    elif changed and (flips := largest_losses(changed[0].paired, MAX_FLIPS_OF_A_MEASURE)):
        examples = "; ".join(map(str, flips))
        print_line(console, f"worst turns of {changed[0].flow} (--explain has more): {examples}")
    print_line(console, f"all measures: {', '.join(FILES)} in {run.path}")


def reliabilities(run: Run) -> list[str]:
    """Return pass@k and pass^k of each primary quality, if the run has several epochs."""
    epochs = run.epochs
    if epochs < 2:
        return []
    flows, lines = run.turn_values, []
    for name in primary_family(flows.values(), run.header["spec"].get("primary", ())):
        for label, rows in flows.items() if measure(name) not in COSTS else ():
            estimates = reliability(rows, name, epochs)
            parts = [
                f"{estimator[:-1]}{epochs} {mean:.2f}" + (" [{:.2f}, {:.2f}]".format(*interval) if interval else "")
                for estimator, (mean, interval) in estimates.items()
            ]
            # None where no turn of imported answers has all epochs.
            lines += [f"{name} of {label} from {PASS_THRESHOLD:g} on: {', '.join(parts)}"] if parts else []
    return lines
