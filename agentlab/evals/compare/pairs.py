"""Two flows, turn by turn on the same turns: what differs, how sure that is, and which answers turned.

    compare(run)                                  the first flow of a run against each other one
    compare(run, flows=["rag_only", "tools"])     these two
    compare(before, after)                        every flow of one name in two runs
    compare(before, after, flows=["tools", "tools_k8"])   one flow of each

The result shows itself in a notebook; `.table` is a data frame, `to_json()` plain data.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.evals.compare.measures import (
    COSTS,
    Key,
    Measure,
    Paired,
    Values,
    in_order,
    mean,
    measured,
    pair_up,
    turn_name,
)
from agentlab.evals.compare.statistics import (
    cohens_dz,
    holm,
    mean_with_interval,
    permutation_floor,
    permutation_p,
    smallest_visible_difference,
)
from agentlab.evals.results.graders import check_comparable, identity
from agentlab.evals.results.run import Run

if TYPE_CHECKING:
    import pandas as pd

ALPHA = 0.05


@dataclass(frozen=True, kw_only=True)
class PairedDifference:
    """One measure of a pair, B - A; what could not be known is None."""

    measure: Measure
    n: int
    """Pairs of turns, of `clusters` conversations."""
    clusters: int
    a: float | None
    b: float | None
    difference: float | None
    ci95: tuple[float, float] | None
    p: float | None
    """Two-sided, by flipping the signs of whole conversations."""
    p_holm: float | None
    """Adjusted for the measures of the pair that differ at all."""
    d_z: float | None
    visible: float | None
    """The smallest true difference that would be found in 80 % of such comparisons, after the adjustment."""

    @property
    def reading(self) -> str:
        """`B better`, `B worse`, `no difference shown` or `unknown`."""
        if self.p_holm is None or self.difference is None:
            return "unknown"
        if self.p_holm >= ALPHA:
            return "no difference shown"
        return "B better" if (self.difference > 0) == (self.measure.better == "higher") else "B worse"


@dataclass(frozen=True, kw_only=True)
class Flip:
    """A turn whose value of a quality metric crossed .5."""

    metric: str
    conversation: str
    turn: int
    epoch: int
    a: float
    b: float


@dataclass(frozen=True, kw_only=True)
class Pair:
    a: str
    b: str
    """`flow`, or `flow (run)` where two runs are compared."""
    differences: tuple[PairedDifference, ...]
    gained: tuple[Flip, ...]
    """From below .5 to .5 or more."""
    lost: tuple[Flip, ...]
    family: int
    """The number of tests Holm's correction is over."""
    floor: float
    """The least p-value that any of them could have had; two-sided."""

    @property
    def too_small(self) -> bool:
        """True where no difference could have been shown, however large: there are too few conversations."""
        return self.family > 0 and self.floor * self.family >= ALPHA


@dataclass(frozen=True, kw_only=True)
class Comparison:
    pairs: tuple[Pair, ...]

    def to_json(self) -> dict[str, Any]:
        content = dataclasses.asdict(self)
        for pair, shown in zip(self.pairs, content["pairs"], strict=True):
            for difference, row in zip(pair.differences, shown["differences"], strict=True):
                row |= {"measure": difference.measure.name, "better": difference.measure.better}
                row["reading"] = difference.reading
        return content

    @cached_property
    def table(self) -> pd.DataFrame:
        """One row a pair and measure."""
        import pandas as pd

        rows = []
        for pair in self.pairs:
            for d in pair.differences:
                low, high = d.ci95 or (None, None)
                row = {"A": pair.a, "B": pair.b, "measure": d.measure.name, "n": d.n, "conversations": d.clusters}
                row |= {"mean A": d.a, "mean B": d.b, "B - A": d.difference, "ci95 low": low, "ci95 high": high}
                row |= {"p": d.p, "p Holm": d.p_holm, "d_z": d.d_z, "smallest visible": d.visible}
                rows.append({**row, "better": d.measure.better, "reading": d.reading})
        return pd.DataFrame(rows)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(f'{pair.a} and {pair.b}' for pair in self.pairs)}>"

    def _repr_html_(self) -> str:
        frame: Any = self.table
        return str(frame.to_html(index=False, float_format=lambda value: f"{value:.3g}", na_rep="-"))


def compare(a: Run, b: Run | None = None, flows: Sequence[str] = ()) -> Comparison:
    """Compare flows of one run, or of two; the sides are named in `flows` as the file's first lines show.

    Raises RunError where two runs are not comparable (other data, graders or turns, or one is not complete), where a
    flow is not there, and where a turn of one side is missing on the other.
    """
    if a.result.recordings and a.result.recordings.missing:
        a.check_complete()
    mine = measured(a)
    if b is None:
        chosen = list(flows) or list(mine)
        if len(chosen) < 2:
            raise RunError(f"{a.path}: one flow cannot be compared with itself; name a second flow or a second run")
        sides = [(chosen[0], other) for other in chosen[1:]]
        return Comparison(pairs=tuple(_pair(x, _flow(mine, x, a), y, _flow(mine, y, a)) for x, y in sides))
    for run in (a, b):
        run.check_complete()
    check_comparable(identity(a.folder.header, str(a.path)), identity(b.folder.header, str(b.path)))
    theirs = measured(b)
    if len(flows) > 2:
        raise RunError("two runs are compared by the flows they share, by one flow, or by one flow of each")
    sides = [(flows[0], flows[-1])] if flows else [(flow, flow) for flow in mine if flow in theirs]
    if not sides:
        raise RunError(f"{a.path} and {b.path} share no flow; name one of each: --flow {next(iter(mine))} --flow ...")
    left, right = (run.run_id if a.run_id != b.run_id else str(run.path) for run in (a, b))
    return Comparison(
        pairs=tuple(_pair(f"{x} ({left})", _flow(mine, x, a), f"{y} ({right})", _flow(theirs, y, b)) for x, y in sides)
    )


def _flow(flows: Mapping[str, dict[Key, Values]], label: str, run: Run) -> dict[Key, Values]:
    try:
        return flows[label]
    except KeyError:
        raise RunError(f"{run.path}: {plugins.unknown('flow of this run', label, flows)}") from None


def _pair(a_name: str, a: dict[Key, Values], b_name: str, b: dict[Key, Values]) -> Pair:
    for key in sorted({*a} ^ {*b}):
        raise RunError(
            f"{turn_name(key)} is missing in {b_name if key in a else a_name}; "
            "compare runs of the same turns, and finish one that stopped early with --resume"
        )
    names = in_order(name for rows in (a, b) for row in rows.values() for name in row)
    measures = [pair_up(name, a, b) for name in names]
    # What is equal on every turn cannot be rejected and must not make the others pay.
    family = [paired for paired in measures if any(paired.differences)]
    p_values = [permutation_p(paired.differences, paired.clusters) for paired in family]
    tested = {
        paired.measure.name: (p, p_holm) for paired, p, p_holm in zip(family, p_values, holm(p_values), strict=True)
    }
    flips = [
        Flip(metric=paired.measure.name, conversation=key[0], turn=key[1], epoch=key[2], a=x, b=y)
        for paired in measures
        for key, x, y in zip(paired.keys, paired.a, paired.b, strict=True)
        if paired.measure not in COSTS and x is not None and y is not None and (x < 0.5) != (y < 0.5)
    ]
    return Pair(
        a=a_name,
        b=b_name,
        differences=tuple(_difference(p, *tested.get(p.measure.name, (1.0, 1.0)), len(family)) for p in measures),
        gained=tuple(flip for flip in flips if flip.b > flip.a),
        lost=tuple(flip for flip in flips if flip.b < flip.a),
        family=len(family),
        floor=2 * min((permutation_floor(p.differences, p.clusters) for p in family), default=0.5),
    )


def _difference(paired: Paired, p: float, p_holm: float, family: int) -> PairedDifference:
    differences, clusters = paired.differences, paired.clusters
    center, interval = mean_with_interval(differences, clusters) if differences else (None, None)
    # Where nothing varies, how much could vary is not known.
    varies = len(set(differences)) > 1
    return PairedDifference(
        measure=paired.measure,
        n=len(paired.keys),
        clusters=len(set(clusters)),
        a=mean(paired.a),
        b=mean(paired.b),
        difference=center,
        ci95=interval,
        p=p if differences else None,
        p_holm=p_holm if differences else None,
        d_z=cohens_dz(differences),
        visible=smallest_visible_difference(differences, clusters, ALPHA / family / 2) if varies else None,
    )
