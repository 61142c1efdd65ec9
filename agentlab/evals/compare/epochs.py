"""Reliability of a flow over repeated runs (epochs).

run.passing("answer_f1")      pass@k: right in at least one of k epochs; pass^k: right in all k
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from agentlab.core import plugins
from agentlab.core.errors import RunError
from agentlab.evals.stats.intervals import Column, mean_interval
from agentlab.evals.stats.statistics import Interval, by_cluster
from agentlab.evals.store.measures import TurnKey, Values, in_order
from agentlab.evals.store.run import StoredRun

if TYPE_CHECKING:
    import pandas as pd

PASS_THRESHOLD = 0.5
"""Smallest value of a right turn."""


def pass_at_k(tries: int, right: int, k: int) -> float:
    """Estimate P(at least one of k tries is right): 1 - C(n - c, k) / C(n, k) (Chen et al., arXiv 2107.03374)."""
    return 1 - math.comb(tries - right, k) / math.comb(tries, k)


def pass_hat_k(tries: int, right: int, k: int) -> float:
    """Estimate P(all of k tries are right): C(c, k) / C(n, k) (Yao et al., tau-bench, arXiv 2406.12045)."""
    return math.comb(right, k) / math.comb(tries, k)


ESTIMATORS: dict[str, Callable[[int, int, int], float]] = {"pass@k": pass_at_k, "pass^k": pass_hat_k}


def reliability(rows: Mapping[TurnKey, Values], metric: str, k: int) -> dict[str, tuple[float, Interval]]:
    """Return `pass@k` and `pass^k` over turns with k known epochs or more, with 95 % intervals over conversations."""
    tries: defaultdict[tuple[str, int], list[bool]] = defaultdict(list)
    for (conversation, turn, _), row in rows.items():
        if (value := row.get(metric)) is not None:
            tries[conversation, turn].append(value >= PASS_THRESHOLD)
    enough = {turn: results for turn, results in tries.items() if len(results) >= k}
    if not enough:
        return {}
    names = [conversation for conversation, _ in enough]
    return {
        name: mean_interval(Column(*by_cluster([estimate(len(r), sum(r), k) for r in enough.values()], names), (0, 1)))
        for name, estimate in ESTIMATORS.items()
    }


def passing(run: StoredRun, metric: str, k: int | None = None) -> pd.DataFrame:
    """Return pass@k and pass^k of turns with intervals, a row per flow and k (default: 1 to the number of epochs).

    A turn is right from .5 on. Raises RunError if the run has fewer epochs than k, or no turn has the metric.
    """
    import pandas as pd

    flows, epochs = run.turn_values, run.epochs
    names = in_order(name for rows in flows.values() for row in rows.values() for name in row)
    plugins.check_names("measure of this run", [metric], names, f"{run.path}: ", RunError)
    if k is not None and not 1 <= k <= epochs:
        raise RunError(f"{run.path}: k is {k}, the run has {epochs} epochs; run it again with --epochs {max(k, 1)}")
    rows = []
    for flow, turns in flows.items():
        for size in [k] if k is not None else range(1, epochs + 1):
            row: dict[str, float | str | int | None] = {"flow": flow, "k": size}
            for name, (mean, interval) in reliability(turns, metric, size).items():
                low, high = interval or (None, None)
                row |= {name: mean, f"{name} low": low, f"{name} high": high}
            rows.append(row)
    return pd.DataFrame(rows)
