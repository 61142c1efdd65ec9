"""What a judge's scores are worth, held against labels that people gave to some of the replies.

A unit is a turn: the judge has scored the reply of every flow to it, and people may have labelled all of these replies.
Scores and labels are numbers from 0 to 1, in arrays of shape (turns, flows); labels are NaN where nobody looked.
Means and differences are prediction-powered (Angelopoulos et al., arXiv 2301.09633; power tuning: PPI++, arXiv
2311.01453): the judge's mean over all turns, corrected by what the labels say of its error, so that the interval
carries that error. Turns are labelled at random.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

GOOD = 0.5
"""A score, or a label, from which a reply counts as good."""
MIN_LABELS_PER_STRATUM = 3
"""Labelled turns, below which there is no interval."""
UNSEEN = 1.0
"""How far from the mean an error may lie that no label showed: the whole scale of 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """A mean, or a difference of means, and its 95 % interval; None where too little is labelled for one."""

    value: float
    interval: tuple[float, float] | None
    share: float
    """How much of the judge is used, from 0 (labels alone) to 1."""

    def clipped(self, low: float, high: float) -> Estimate:
        """Without what lies beyond the scale: the interval holds what it held."""
        value, *ends = (min(max(end, low), high) for end in (self.value, *(self.interval or ())))
        return Estimate(value=value, interval=(ends[0], ends[1]) if ends else None, share=self.share)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How the judge agrees with people, over replies that are labelled."""

    n: int
    correlation: float | None
    """Pearson's; None where one side does not vary."""
    agreement: float
    """Share of replies that both call good (`GOOD` and more), or both do not."""
    kappa: float | None
    """Cohen's, of the same; None where chance alone explains all."""
    bias: float
    """Mean score of the judge, less the mean label."""


def agreement(scores: np.ndarray, labels: np.ndarray) -> Agreement:
    """Of all labelled replies; raises ValueError where nothing is labelled."""
    known = ~np.isnan(labels)
    if not known.any():
        raise ValueError("nothing is labelled")
    judged, told = scores[known], labels[known]
    good, liked = judged >= GOOD, told >= GOOD
    same = float((good == liked).mean())
    chance = float(good.mean() * liked.mean() + (1 - good.mean()) * (1 - liked.mean()))
    return Agreement(
        n=int(known.sum()),
        correlation=_correlation(judged, told),
        agreement=same,
        kappa=None if chance == 1 else (same - chance) / (1 - chance),
        bias=float((judged - told).mean()),
    )


def _correlation(one: np.ndarray, other: np.ndarray) -> float | None:
    if len(one) < 3 or not np.ptp(one) or not np.ptp(other):
        return None
    return float(np.corrcoef(one, other)[0, 1])


def estimate(
    judged: np.ndarray,
    told: np.ndarray,
    clusters: Sequence[str],
    level: float = 0.95,
    settled: np.ndarray | None = None,
) -> Estimate:
    """The mean of what people would say of all turns: a flow's mean, or of differences the difference of two.

    `judged` and `told` have shape (turns,), `told` NaN where nobody labelled. `settled` turns
    are a stratum of their own: nobody has to be asked what they are worth, so they say nothing about the judge. The
    interval is Student's, with the larger of two standard errors: of turns and of conversations.
    """
    from scipy.special import stdtrit

    settled = np.zeros(len(judged), dtype=bool) if settled is None else settled
    known = ~np.isnan(told) & ~settled
    if known.sum() < MIN_LABELS_PER_STRATUM:
        return Estimate(value=float(judged.mean()), interval=None, share=1.0)
    share = _judge_weight(judged[~settled], told[~settled], known[~settled])
    total, turns = 0.0, len(judged)
    # What each turn adds to the estimate's error: of the judge's mean, and of the correction by labels.
    influence = share * (judged - judged.mean())
    for here in (settled, ~settled) if settled.any() else (~settled,):
        labelled = here & (known | settled)
        residual = told[labelled] - share * judged[labelled]
        total += here.sum() / turns * (share * judged[here].mean() + residual.mean())
        influence[labelled] += here.sum() / labelled.sum() * (residual - residual.mean())
        # Between the two, people's means differ as well as the judge's.
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


def _judge_weight(judged: np.ndarray, told: np.ndarray, known: np.ndarray) -> float:
    """How much of the judge makes the interval narrowest (PPI++, section 6), from what is labelled."""
    spread = float(np.var(judged[known]))
    if not spread:
        return 0.0
    slope = float(np.cov(judged[known], told[known], ddof=0)[0, 1]) / spread
    return min(1.0, max(0.0, slope / (1 + int(known.sum()) / len(judged))))
