"""Compares flows turn by turn on the same turns: differences, intervals, p-values and flipped answers.

    compare(run)                                          the first flow of a run with each other one
    compare(run, flows=["rag_only", "tools"])             two flows of a run
    compare(before, after)                                each flow of two runs with itself
    compare(before, after, flows=["tools", "tools_k8"])   one flow of each run

The primary measures of all pairs are tested as one family: `primary` of the spec, by default those that the data can
grade. The secondary measures are another family.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.core.escaping import one_line
from agentlab.evals.compare.best import Best, best
from agentlab.evals.compare.family import run_family_test
from agentlab.evals.compare.flips import Flip, flips
from agentlab.evals.compare.measure_verdict import MeasureVerdict
from agentlab.evals.compare.paired import PairedMeasure, TurnTable, make_turn_tables, pair_measure
from agentlab.evals.compare.slices import Slice, TurnId, hidden_in_overall, significant_slices, slices_by_turn
from agentlab.evals.store.measures import (
    LATENCY,
    TurnKey,
    Values,
    in_order,
    is_one_sided,
    latency_is_comparable,
    primary_family,
    turn_name,
)
from agentlab.evals.store.run import StoredRun, check_comparable

ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class FlowPair:
    """Comparison of two flows, A and B; `pair["answer_f1"]` is the verdict of one measure."""

    a: str
    b: str
    """`flow`, or `flow (run)` if two runs are compared."""
    flows: tuple[str, str]
    differences: tuple[MeasureVerdict, ...]

    @cached_property
    def paired(self) -> dict[str, PairedMeasure]:
        """Paired values of each measure."""
        return {d.measure.name: d.paired for d in self.differences}

    @cached_property
    def gained(self) -> tuple[Flip, ...]:
        """Turns whose score is below .5 in A, and .5 or more in B."""
        return tuple(flip for flip in flips(self.paired.values()) if flip.b > flip.a)

    @cached_property
    def lost(self) -> tuple[Flip, ...]:
        """Turns whose score is .5 or more in A, and below .5 in B."""
        return tuple(flip for flip in flips(self.paired.values()) if flip.b < flip.a)

    def __str__(self) -> str:
        """Return the verdicts of the primary measures as a sentence."""
        primary = [d for d in self.differences if d.primary]
        parts = [str(d) for d in primary if d.is_shown]
        for label, unknown in (("no difference shown in", False), ("unknown for one side:", True)):
            rest = [d.measure.name for d in primary if not d.is_shown and (d.kind == "unknown") == unknown]
            parts += [f"{label} {', '.join(rest)}"] if rest else []
        return f"{self.b} against {self.a}: {'; '.join(parts)}"

    def __getitem__(self, name: str) -> MeasureVerdict:
        for difference in self.differences:
            if difference.measure.name == name:
                return difference
        raise RunError(plugins.unknown_name("measure of this comparison", name, self.paired))


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Verdicts on pairs of flows, as data; `report.comparison` prints them."""

    pairs: tuple[FlowPair, ...]
    """Pairs of flows, each with a verdict for every measure."""
    primary: tuple[str, ...]
    """Primary measures, tested as one family over all pairs."""
    family: int
    """Number of tests in the family."""
    tables: Mapping[str, TurnTable]
    """Turns of each flow, by its name."""
    best: Best | None = None
    """Best flows of a run with more than two."""
    slices: tuple[Slice, ...] = ()
    """Slices in which a primary quality differs although the total does not show it."""

    def __repr__(self) -> str:
        return one_line(f"<Comparison of {', '.join(f'{pair.a} and {pair.b}' for pair in self.pairs)}>")


def compare(a: StoredRun, b: StoredRun | None = None, flows: Sequence[str] = ()) -> Comparison:
    """Compare flows of one run, or of two; the file's first lines show the four forms of `flows`.

    Raises RunError for an unknown flow, a turn that one side lacks, an incomplete run, and two runs with different
    data, graders or primary measures.
    """
    if a.result.recordings and a.result.recordings.missing:
        a.check_complete()
    mine = a.turn_values
    declared = _primary(a)
    if b is None:
        chosen = list(flows) or list(mine)
        if len(chosen) < 2:
            raise RunError(f"{a.path}: one flow cannot be compared with itself; name a second flow or a second run")
        sides = [(chosen[0], other) for other in chosen[1:]]
        named = [FlowSides(x, _flow(mine, x, a), y, _flow(mine, y, a), (x, y)) for x, y in sides]
        return compare_turns(
            named, declared, slices_by_turn(a), latency_is_primary=True, stops=a.identity["stops"], longest=a.longest
        )
    for run in (a, b):
        run.check_complete()
    check_comparable(a.identity, b.identity)
    if _primary(b) and declared and {*_primary(b)} != {*declared}:
        raise RunError(
            f"{', '.join(declared)} decide in {a.path}, {', '.join(_primary(b))} in {b.path}; let both specs name the"
            " same `primary`"
        )
    theirs = b.turn_values
    # The turns before a fork are the same in both runs.
    since = max(run.header.get("fork", {}).get("turn", 0) for run in (a, b))
    mine, theirs = (
        {flow: {key: row for key, row in rows.items() if key[1] >= since} for flow, rows in side.items()}
        for side in (mine, theirs)
    )
    if len(flows) > 2:
        raise RunError("two runs are compared by the flows they share, by one flow, or by one flow of each")
    sides = [(flows[0], flows[-1])] if flows else [(flow, flow) for flow in mine if flow in theirs]
    if not sides:
        raise RunError(f"{a.path} and {b.path} share no flow; name one of each: --flow {next(iter(mine))} --flow ...")
    left, right = (run.run_id if a.run_id != b.run_id else str(run.path) for run in (a, b))
    named = [
        FlowSides(f"{x} ({left})", _flow(mine, x, a), f"{y} ({right})", _flow(theirs, y, b), (x, y)) for x, y in sides
    ]
    return compare_turns(
        named,
        declared or _primary(b),
        slices_by_turn(b),
        latency_is_primary=latency_is_comparable(a.result.mode, b.result.mode),
        stops=b.identity["stops"],
        longest=max(a.longest, b.longest),
    )


class FlowSides(NamedTuple):
    """Turns of two sides to compare, with the names to show."""

    a_name: str
    a: dict[TurnKey, Values]
    b_name: str
    b: dict[TurnKey, Values]
    flows: tuple[str, str]


def _primary(run: StoredRun) -> tuple[str, ...]:
    return tuple(run.header["spec"].get("primary", ()))


def _flow(flows: Mapping[str, dict[TurnKey, Values]], label: str, run: StoredRun) -> dict[TurnKey, Values]:
    plugins.check_names("flow of this run", [label], flows, f"{run.path}: ", RunError)
    return flows[label]


def compare_turns(
    named: Sequence[FlowSides],
    declared: Sequence[str],
    slices_by_turn: Mapping[TurnId, set[str]] = MappingProxyType({}),
    *,
    latency_is_primary: bool,
    stops: Mapping[str, Mapping[str, float]] = MappingProxyType({}),
    longest: int = 0,
) -> Comparison:
    """Compare all pairs as one family; each pair has the same turns on both sides.

    `declared` names the primary measures. Without `latency_is_primary` latency is secondary, since seconds of two live
    runs are not comparable. `slices_by_turn` maps each turn to its slices, `stops` a flow of B to its declared stops.
    `longest` is the number of turns of the longest conversation that was left out, over all epochs.

    Raises RunError if a turn is missing on one side.
    """
    for pair in named:
        for key in sorted({*pair.a} ^ {*pair.b}):
            raise RunError(
                f"{turn_name(key)} is missing in {pair.b_name if key in pair.a else pair.a_name}; compare runs of the"
                " same turns: finish one that stopped early with --resume, or import answers to all the turns"
            )
    sides = {id(rows): rows for pair in named for rows in (pair.a, pair.b)}
    laid_out = dict(zip(sides, make_turn_tables(sides.values(), longest=longest), strict=True))
    primary = [name for name in primary_family(sides.values(), declared) if name != LATENCY or latency_is_primary]
    columns: dict[tuple[int, str], PairedMeasure] = {}
    for number, pair in enumerate(named):
        for name in in_order(name for rows in (pair.a, pair.b) for row in rows.values() for name in row):
            if not is_one_sided(name, pair.a, pair.b):
                tables = laid_out[id(pair.a)], laid_out[id(pair.b)]
                columns[number, name] = pair_measure(name, *tables, stops.get(pair.flows[1], {}))
    secondary = {name for (_, name), paired in columns.items() if not paired.may_be_primary}
    primary = [name for name in primary if name not in secondary]
    # Primary and secondary measures are two families over all pairs.
    families = [name in primary for _, name in columns]
    outcomes = run_family_test([*columns.values()], ALPHA, two_sided=True, families=families)
    verdicts: list[list[MeasureVerdict]] = [[] for _ in named]
    for ((number, name), paired), outcome in zip(columns.items(), outcomes, strict=True):
        tested = {"paired": paired, **outcome._asdict(), "secondary_reason": "" if name in primary else "secondary"}
        verdicts[number].append(MeasureVerdict(flow=named[number].b_name, alpha=ALPHA, **tested))
    pairs = [
        FlowPair(a=pair.a_name, b=pair.b_name, flows=pair.flows, differences=tuple(own))
        for pair, own in zip(named, verdicts, strict=True)
    ]
    flows = {name: rows for pair in named for name, rows in ((pair.a_name, pair.a), (pair.b_name, pair.b))}
    by_name = {name: laid_out[id(rows)] for name, rows in flows.items()}
    return Comparison(
        pairs=tuple(pairs),
        primary=tuple(primary),
        family=max((d.family for own in verdicts for d in own if d.primary), default=0),
        best=best(by_name, primary) if len(by_name) == len(named) + 1 > 2 else None,
        slices=_slices(pairs, primary, slices_by_turn),
        tables=by_name,
    )


def _slices(
    pairs: Sequence[FlowPair], primary: Sequence[str], slices_by_turn: Mapping[TurnId, set[str]]
) -> tuple[Slice, ...]:
    """Return the slices in which a primary measure differs although the total does not show it."""
    sided = {f"{pair.b} against {pair.a}": pair for pair in pairs}
    members = [(side, pair.paired[name]) for side, pair in sided.items() for name in primary if name in pair.paired]
    members = [(side, paired) for side, paired in members if paired.corrected is None]
    differing = [(sides, d.measure.name) for sides, pair in sided.items() for d in pair.differences if d.is_shown]
    return tuple(hidden_in_overall(significant_slices(members, slices_by_turn, ALPHA, two_sided=True), differing))
