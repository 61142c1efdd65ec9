"""What a judge's scores are worth, held against labels that people gave to some of the replies.

A unit is a turn: the judge has scored the reply of every flow to it, and people may have labelled all of these replies.
Scores and labels are numbers from 0 to 1, in arrays of shape (turns, flows); labels are NaN where nobody looked.
Means and differences are prediction-powered (Angelopoulos et al., arXiv 2301.09633; power tuning: PPI++, arXiv
2311.01453): the judge's mean over all turns, corrected by what the labels say of its error, so that the interval
carries that error. Turns are in strata by what the judge said of them, and are labelled at random within a stratum
(stratified PPI, Fisch et al., arXiv 2406.04291), which is what `next_to_label` does.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

GOOD = 0.5
"""A score, or a label, from which a reply counts as good."""
STRATA = 3
LEAST_LABELLED = 3
"""Labelled turns in a stratum below which it is not told apart from its neighbour."""
UNSEEN = 1.0
"""How far from the mean an error may lie that no label showed: the whole scale of 0 to 1."""
FIRST = 10
"""Turns that are labelled at random before the choice follows the judge's errors."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean, or a difference of means, and its 95 % interval; None where too little is labelled for one."""

    value: float
    interval: tuple[float, float] | None
    share: float
    """How much of the judge is used, from 0 (labels alone) to 1."""

    def within(self, low: float, high: float) -> Estimate:
        """Without what lies beyond the scale: the interval holds what it held."""
        value, *ends = (min(max(end, low), high) for end in (self.value, *(self.interval or ())))
        return Estimate(value=value, interval=(ends[0], ends[1]) if ends else None, share=self.share)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How the judge agrees with people, over replies that are labelled."""

    n: int
    correlation: float | None
    """Pearson's; None where one side does not vary."""
    correlation_interval: tuple[float, float] | None
    agreement: float
    """Share of replies that both call good (`GOOD` and more), or both do not."""
    kappa: float | None
    """Cohen's, of the same; None where chance alone explains all."""
    bias: float
    """Mean score of the judge, less the mean label."""


def agreement(scores: np.ndarray, labels: np.ndarray, clusters: Sequence[str]) -> Agreement:
    """Of all labelled replies; the interval resamples conversations. Raises ValueError where nothing is labelled."""
    known = ~np.isnan(labels)
    if not known.any():
        raise ValueError("nothing is labelled")
    judged, told = scores[known], labels[known]
    names = np.broadcast_to(np.asarray(clusters)[:, None], labels.shape)[known]
    good, liked = judged >= GOOD, told >= GOOD
    same = float((good == liked).mean())
    chance = float(good.mean() * liked.mean() + (1 - good.mean()) * (1 - liked.mean()))
    return Agreement(
        n=int(known.sum()),
        correlation=_correlation(judged, told),
        correlation_interval=_resampled_correlation(judged, told, names),
        agreement=same,
        kappa=None if chance == 1 else (same - chance) / (1 - chance),
        bias=float((judged - told).mean()),
    )


def _correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    if len(one) < 3 or not np.ptp(one) or not np.ptp(other):
        return None
    return float(np.corrcoef(one, other)[0, 1])


def _resampled_correlation(one: np.ndarray, other: np.ndarray, names: np.ndarray) -> tuple[float, float] | None:
    groups = [np.flatnonzero(names == name) for name in dict.fromkeys(names)]
    if len(groups) < 5:
        return None
    random = np.random.default_rng(0)
    drawn = []
    for _ in range(1000):
        rows = np.concatenate([groups[place] for place in random.integers(0, len(groups), len(groups))])
        found = _correlation(one[rows], other[rows])
        drawn += [] if found is None else [found]
    if len(drawn) < 900:
        return None
    low, high = np.quantile(drawn, [0.025, 0.975])
    return float(low), float(high)


def strata(scores: np.ndarray) -> np.ndarray:
    """Which stratum each turn is in, shape (turns,): by what the judge said of its replies on the whole."""
    means = scores.mean(axis=1)
    cuts = np.unique(np.quantile(means, np.arange(1, STRATA) / STRATA))
    found: np.ndarray = np.searchsorted(cuts, means, side="left")
    return found


def estimate(
    judged: np.ndarray,
    told: np.ndarray,
    groups: np.ndarray,
    clusters: Sequence[str],
    level: float = 0.95,
    settled: np.ndarray | None = None,
) -> Estimate:
    """The mean of what people would say of all turns: a flow's mean, or of differences the difference of two.

    `judged` and `told` have shape (turns,), `told` NaN where nobody labelled; `groups` are the strata. `settled` turns
    are a stratum of their own: nobody has to be asked what they are worth, so they say nothing about the judge. The
    interval is Student's, with the larger of two standard errors: of turns and of conversations.
    """
    from scipy.special import stdtrit

    settled = np.zeros(len(judged), dtype=bool) if settled is None else settled
    known = ~np.isnan(told) & ~settled
    if known.sum() < LEAST_LABELLED:
        return Estimate(value=float(judged.mean()), interval=None, share=1.0)
    groups = groups.copy()
    groups[settled] = -1
    groups[~settled] = _merged(groups[~settled], known[~settled])
    share = _share(judged[~settled], told[~settled], known[~settled])
    total, turns = 0.0, len(judged)
    # What each turn adds to the estimate's error: of the judge's mean, and of the correction by labels.
    influence = share * (judged - judged.mean())
    for group in np.unique(groups):
        here = groups == group
        labelled = here & (known | settled)
        residual = told[labelled] - share * judged[labelled]
        total += here.sum() / turns * (share * judged[here].mean() + residual.mean())
        influence[labelled] += here.sum() / labelled.sum() * (residual - residual.mean())
        # Between strata, people's means differ as well as the judge's.
        influence[here] += residual.mean()
    influence -= influence.mean()
    alone = math.sqrt(float((influence**2).sum()) / turns / (turns - 1)) if turns > 1 else math.inf
    _, codes = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(codes, weights=influence)
    # The jackknife's factor for few conversations (CR3).
    together = math.sqrt(float((sums**2).sum())) * len(sums) / max(1, len(sums) - 1) / turns
    told_of = len(np.unique(codes[known]))
    # Labels that happen to be alike show no spread: one more, the whole scale away, is counted with them.
    unseen = UNSEEN / float(known.sum()) * float(np.mean(~settled))
    error = math.hypot(max(alone, together) * math.sqrt(known.sum() / (known.sum() - 1)), unseen)
    reach = float(stdtrit(max(1, told_of - 1), (1 + level) / 2)) * error
    return Estimate(value=float(total), interval=(float(total - reach), float(total + reach)), share=share)


def _share(judged: np.ndarray, told: np.ndarray, known: np.ndarray) -> float:
    """How much of the judge makes the interval narrowest (PPI++, section 6), from what is labelled."""
    spread = float(np.var(judged[known]))
    if not spread:
        return 0.0
    slope = float(np.cov(judged[known], told[known], ddof=0)[0, 1]) / spread
    return min(1.0, max(0.0, slope / (1 + int(known.sum()) / len(judged))))


def _merged(groups: np.ndarray, known: np.ndarray) -> np.ndarray:
    """Strata in which enough is labelled; another one joins the one below it, or above."""
    merged = groups.copy()
    for group in sorted(np.unique(groups), reverse=True):
        if (known & (merged == group)).sum() < LEAST_LABELLED and len(left := np.unique(merged)) > 1:
            lower = [other for other in left if other < group]
            merged[merged == group] = max(lower) if lower else min(other for other in left if other > group)
    return merged


def next_to_label(scores: np.ndarray, labels: np.ndarray, count: int, seed: int = 0) -> list[int]:
    """The turns to label next, by their places: at random within strata, more where labels narrow the interval more.

    That is where a stratum is large and the judge's error in it varies (Neyman, JRSS 1934); until `FIRST` turns are
    labelled its size alone says how many.
    """
    groups = strata(scores)
    known = ~np.isnan(labels).any(axis=1)
    random = np.random.default_rng(seed)
    spread = _spreads(scores, labels, groups, known)
    has = {group: int((known & (groups == group)).sum()) for group in spread}
    left = {group: list(random.permutation(np.flatnonzero(~known & (groups == group)))) for group in spread}
    sizes = {group: int((groups == group).sum()) for group in spread}
    chosen: list[int] = []
    while len(chosen) < count and any(left.values()):
        # One more label in a stratum takes this much off the variance of the estimate.
        gains = {
            group: (sizes[group] * spread[group]) ** 2 / ((has[group] + 0.5) * (has[group] + 1.5))
            for group in spread
            if left[group]
        }
        best = max(gains, key=lambda group: (gains[group], -group))
        chosen.append(int(left[best].pop()))
        has[best] += 1
    return chosen


def _spreads(scores: np.ndarray, labels: np.ndarray, groups: np.ndarray, known: np.ndarray) -> dict[int, float]:
    """The standard deviation of the judge's error by stratum; where little is labelled, drawn to that of all."""
    error = labels - scores
    of_all = float(np.nanstd(error)) if known.sum() >= FIRST else 0.0
    if not of_all:
        return dict.fromkeys(map(int, np.unique(groups)), 1.0)
    found = {}
    for group in np.unique(groups):
        here = error[known & (groups == group)]
        own = float(here.var()) if here.size else of_all**2
        found[int(group)] = math.sqrt((here.size * own + FIRST / 2 * of_all**2) / (here.size + FIRST / 2))
    return found
