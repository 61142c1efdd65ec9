"""What the command line shows of pairs of flows, and of a gate's verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console

from agentlab.evals.compare.epochs import SOLVED, epochs_of, known_of, reliability
from agentlab.evals.compare.family import ASSUMED
from agentlab.evals.compare.flips import told, worst
from agentlab.evals.compare.gate import Verdict
from agentlab.evals.compare.measures import COSTS, brief, measure, measured, primary_family
from agentlab.evals.compare.pairs import Comparison, Pair
from agentlab.evals.compare.questions import Answer
from agentlab.evals.compare.ranking import Ranking
from agentlab.evals.compare.report import FILES, lines
from agentlab.evals.compare.verdicts import WORSE
from agentlab.evals.results.run import Run
from agentlab.evals.results.tables import new_console, print_line, print_table

FLIPS_SHOWN = 10
FLIPS_OF_A_MEASURE = 2
PAIRS_CALLED, SLICES_CALLED = 3, 2


def show_pairs(
    comparison: Comparison, runs: Sequence[Run], answers: Sequence[Answer] = (), *, everything: bool = False
) -> None:
    """The answers first; a table a pair: one row a measure; then the turns whose answers crossed .5.

    `everything`: also the ranks of more than two flows, which are otherwise one sentence.
    """
    console = new_console()
    for answer in answers:
        print_line(console, str(answer))
    if comparison.ranking is not None:
        print_line(console, str(comparison.ranking))
        if everything:
            _show_ranking(console, comparison.ranking)
    for line in _called(comparison):
        print_line(console, line)
    for pair in comparison.pairs:
        columns = ["", "n", "A", "B", "B - A", "95 %", "p", "p adj.", "d_z", "visible", ""]
        rows = []
        unknown = [d.measure.title for d in pair.differences if d.reading == "unknown"]
        for d in sorted((d for d in pair.differences if d.reading != "unknown"), key=lambda d: not d.primary):
            show = d.measure.show
            interval = f"[{brief(d.ci95[0])}, {brief(d.ci95[1])}]" if d.ci95 else "-"
            p, adjusted = ("-" if value is None else f"{value:.2g}" for value in (d.p, d.p_adjusted))
            d_z = "-" if d.d_z is None else f"{d.d_z:.2f}"
            means = (show(d.a), show(d.b), brief(d.difference, "+"))
            title = d.measure.title + (" *" if d.primary else "")
            rows.append([title, str(d.n), *means, interval, p, adjusted, d_z, brief(d.visible), d.reading])
        print_table(console, f"A: {pair.a}   B: {pair.b}", columns, rows)
        if unknown:
            print_line(console, f"not known of both: {', '.join(unknown)}")
        for line in _flipped(pair, comparison.primary, runs):
            print_line(console, line)
        for line in _worth(pair, comparison.primary):
            print_line(console, line)
    print_line(
        console,
        f"* decides, a family of {max(1, comparison.family)} over all pairs; the rest advises, a family of its own."
        f" 95 %: bootstrap over conversations; p: {ASSUMED}; two-sided; adjusted by maxT; visible: the difference found"
        " in 80 % of such comparisons",
    )


def _called(comparison: Comparison) -> Iterator[str]:
    """What is shown, first of the pairs and then of slices: a few lines that call it by name."""
    told = [pair for pair in comparison.pairs if any(d.primary and d.is_shown for d in pair.differences)]
    yield from map(str, told[:PAIRS_CALLED])
    if len(told) > PAIRS_CALLED:
        yield f"... and {len(told) - PAIRS_CALLED} more pairs that differ"
    if not told:
        yield f"no difference shown in {', '.join(comparison.primary)}"
    for part in comparison.slices[:SLICES_CALLED]:
        yield f"only in a part of the turns: {part}"


def _worth(pair: Pair, primary: Sequence[str]) -> Iterator[str]:
    """What more would tell: conversations or epochs, and how many conversations."""
    for name in primary if pair.epochs > 1 else ():
        if name in pair.paired and pair[name].changed and (advice := pair.components(name).advice):
            yield f"where the error of {name} comes from: {advice}"
    for d in pair.differences:
        if d.more:
            yield f"{d.measure.name}: not shown; {d.more} more conversations like these would show it"


def _show_ranking(console: Console, ranking: Ranking) -> None:
    show, rows = ranking.measure.show, []
    for place in ranking.places:
        interval = "-" if place.interval is None else f"[{show(place.interval[0])}, {show(place.interval[1])}]"
        low, high = place.ranks
        ranks = str(low) if low == high else f"{low} to {high}"
        dominated = f"{place.dominated:.2f}" + (f" by {place.by}" if place.by else "")
        rows.append([place.flow, show(place.mean), interval, ranks, "yes" if place.front else "", dominated])
    columns = ["", ranking.measure.name, "95 %, all together", "rank", "on the front", "P(dominated)"]
    print_table(console, f"ranks in {ranking.measure.name}; the front: {', '.join(ranking.decides)}", columns, rows)


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


def reliabilities(run: Run) -> list[str]:
    """Of a run of several epochs, for each quality that decides, how often a turn is right in all, or in one."""
    epochs = epochs_of(run)
    if epochs < 2:
        return []
    flows, lines = measured(run), []
    for name in primary_family(flows.values(), run.folder.header["spec"].get("primary", ())):
        for label, rows in flows.items() if measure(name) not in COSTS else ():
            found = reliability(known_of(rows, name), epochs)
            parts = [
                f"{estimator[:-1]}{epochs} {mean:.2f}" + (" [{:.2f}, {:.2f}]".format(*interval) if interval else "")
                for estimator, (mean, interval) in found.items()
            ]
            lines.append(f"{name} of {label} from {SOLVED:g} on: {', '.join(parts)}")
    return lines


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
