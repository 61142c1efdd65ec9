"""What playing everything several times says: where a mean's error comes from, and how reliable a flow is.

A value is that of one turn in one epoch; the conversations are a sample, and so are the epochs of each.

    run.variance("answer_f1")     conversations or epochs: of which would more be worth the money
    run.passing("answer_f1")      pass@k: right in one of k epochs at least; pass^k: right in all of k
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.evals.stats.statistics import Interval, by_cluster, mean_intervals
from agentlab.evals.store.measures import Key, Values, in_order, measured
from agentlab.evals.store.run import Run

if TYPE_CHECKING:
    import pandas as pd

SOLVED = 0.5
"""From this value on a turn counts as right."""


class Components(NamedTuple):
    """Of the values of turns; None where it cannot be told, as epochs from one of them."""

    conversations: float | None
    """Variance of what conversations have in common."""
    turns: float | None
    """Of turns within a conversation."""
    epochs: float | None
    """Of one turn over epochs."""
    error: float | None
    """The standard error of the mean over conversations."""
    twice_conversations: float | None
    """The error with twice the conversations."""
    twice_epochs: float | None
    """With as many turns played, but on the conversations that are there."""

    @property
    def advice(self) -> str:
        """What more of each would do to the error; "" where that is not known."""
        if not self.error or self.twice_conversations is None or self.twice_epochs is None:
            return ""
        kept = [1 - other / self.error for other in (self.twice_conversations, self.twice_epochs)]
        parts = [part or 0.0 for part in self[:3]]
        whole = sum(parts) or 1.0
        named = zip(parts, ("between conversations", "turns of one", "epochs"), strict=True)
        shares = ", ".join(f"{part / whole:.0%} {name}" for part, name in named)
        told = f"twice the conversations take {kept[0]:.0%} off the error, twice the epochs {kept[1]:.0%}"
        worth = "more epochs cost as much and are worth it" if kept[1] > 0.8 * kept[0] else "more conversations"
        return f"{shares}; {told}: {worth}"


def components(values: Mapping[Key, float]) -> Components:
    """Variance components by the analysis of unweighted means (Searle, Casella, McCulloch, Variance Components, 1992).

    A mean over C conversations of E epochs has the variance (between + within / E) / C, where `within` is that of one
    conversation's mean over epochs (so Miller, arXiv 2411.00640, section 3.1, for one question). Where an estimate
    falls below 0, it is 0.
    """
    plays: defaultdict[str, defaultdict[int, dict[int, float]]] = defaultdict(lambda: defaultdict(dict))
    for (conversation, turn, epoch), value in values.items():
        plays[conversation][turn][epoch] = value
    repeated = [np.var(list(of.values()), ddof=1) for turns in plays.values() for of in turns.values() if len(of) > 1]
    epochs = float(np.mean(repeated)) if repeated else None
    spreads, means, within, counts = [], [], [], []
    for turns in plays.values():
        middles = [np.mean(list(of.values())) for of in turns.values()]
        means.append(np.mean(middles))
        if len(middles) > 1:
            spreads.append((np.var(middles, ddof=1), len(middles)))
        of_epoch = [np.mean([of[e] for of in turns.values() if e in of]) for e in sorted({*chain(*turns.values())})]
        counts.append(len(of_epoch))
        if len(of_epoch) > 1:
            within.append(np.var(of_epoch, ddof=1))
    size, several = len(means), float(np.mean(counts)) if counts else 1.0
    if size < 2:
        return Components(None, None, epochs, None, None, None)
    total = float(np.var(means, ddof=1))
    turn_noise = float(np.mean([spread / many for spread, many in spreads])) if spreads else 0.0
    turns_own = float(np.mean([spread for spread, _ in spreads])) - (epochs or 0.0) / several if spreads else None
    # With one turn each, what epochs add is all that can be told from what conversations differ by.
    between = total - (turn_noise if spreads else (epochs or 0.0) / several)
    noise = float(np.mean(within)) if within else None
    half = None if noise is None else math.sqrt(max(0.0, total - noise / several / 2) / size)
    error = math.sqrt(total / size)
    return Components(
        max(0.0, between),
        None if turns_own is None else max(0.0, turns_own),
        epochs,
        error,
        error / math.sqrt(2),
        half,
    )


def pass_at_k(tries: int, right: int, k: int) -> float:
    """One of k tries at least is right: 1 - C(n - c, k) / C(n, k), unbiased (Chen et al., arXiv 2107.03374)."""
    return 1 - math.comb(tries - right, k) / math.comb(tries, k)


def pass_hat_k(tries: int, right: int, k: int) -> float:
    """All of k tries are right: C(c, k) / C(n, k), unbiased (Yao et al., tau-bench, arXiv 2406.12045)."""
    return math.comb(right, k) / math.comb(tries, k)


ESTIMATORS: dict[str, Callable[[int, int, int], float]] = {"pass@k": pass_at_k, "pass^k": pass_hat_k}


def reliability(values: Mapping[Key, float], k: int) -> dict[str, tuple[float, Interval]]:
    """`pass@k` and `pass^k` over turns that were played k times, with 95 % intervals over conversations."""
    tries: defaultdict[tuple[str, int], list[bool]] = defaultdict(list)
    for (conversation, turn, _), value in values.items():
        tries[conversation, turn].append(value >= SOLVED)
    enough = {place: of for place, of in tries.items() if len(of) >= k}
    if not enough:
        return {}
    names = [conversation for conversation, _ in enough]
    found = ([estimate(len(of), sum(of), k) for of in enough.values()] for estimate in ESTIMATORS.values())
    return dict(zip(ESTIMATORS, mean_intervals([by_cluster(column, names) for column in found]), strict=True))


def variance(run: Run, metric: str) -> pd.DataFrame:
    """A row a flow: variance components of a metric, and its error with more of either; None where unknown."""
    import pandas as pd

    columns = [name.replace("_", " ") for name in Components._fields]
    rows = {flow: dict(zip(columns, components(of), strict=True)) for flow, of in _values(run, metric).items()}
    return pd.DataFrame(rows).T


def passing(run: Run, metric: str, k: int | None = None) -> pd.DataFrame:
    """A row a flow and k (by default all up to the number of epochs): pass@k and pass^k of turns, and their intervals.

    A turn is right from .5 on. Raises RunError where the run has fewer epochs than k.
    """
    import pandas as pd

    values = _values(run, metric)
    epochs = epochs_of(run)
    if k is not None and not 1 <= k <= epochs:
        raise RunError(f"{run.path}: k is {k}, the run has {epochs} epochs; play it again with --epochs {max(k, 1)}")
    rows = []
    for flow, of in values.items():
        for size in [k] if k is not None else range(1, epochs + 1):
            row: dict[str, float | str | int | None] = {"flow": flow, "k": size}
            for name, (mean, interval) in reliability(of, size).items():
                low, high = interval or (None, None)
                row |= {name: mean, f"{name} low": low, f"{name} high": high}
            rows.append(row)
    return pd.DataFrame(rows)


def epochs_of(run: Run) -> int:
    return int(run.folder.header["spec"].get("epochs", 1))


def _values(run: Run, metric: str) -> dict[str, dict[Key, float]]:
    """Of each flow the metric of every turn that has one and knows it; raises RunError where no turn has."""
    flows = measured(run)
    known = in_order(name for rows in flows.values() for row in rows.values() for name in row)
    if metric not in known:
        raise RunError(f"{run.path}: {plugins.unknown('measure of this run', metric, known)}")
    return {flow: known_of(rows, metric) for flow, rows in flows.items()}


def known_of(rows: Mapping[Key, Values], metric: str) -> dict[Key, float]:
    """The metric of each turn that has one and knows it."""
    found = {key: row.get(metric) for key, row in rows.items()}
    return {key: float(value) for key, value in found.items() if value is not None}
