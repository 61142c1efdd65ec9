"""Compares a judge's scores with human labels of some of the replies, and estimates means from both.

A unit is a turn: the judge has scored the reply of every flow, and readers may have labelled all of these replies.
Scores and labels are numbers from 0 to 1, in arrays of shape (turns, flows); a missing label is NaN. Turns are labelled
at random.

Means and differences are prediction-powered (Angelopoulos et al., arXiv 2301.09633; power tuning: PPI++, arXiv
2311.01453). The judge's mean over all turns is corrected by its mean error on the labelled turns. The interval contains
the uncertainty of that error.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from agentlab.evals.stats.statistics import CONFIDENCE

GOOD = 0.5
"""The lowest score or label of a good reply."""
MIN_LABELS_PER_STRATUM = 3
"""With fewer labelled turns there is no interval."""
MAX_UNSEEN_ERROR = 1.0
"""The largest deviation of an error that no label shows: the whole scale from 0 to 1."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Mean, or difference of means, with its 95 % interval; the interval is None with too few labels."""

    value: float
    interval: tuple[float, float] | None
    error: float = math.inf
    """Standard error of the value; infinite with too few labels."""
    freedom: int = 1
    """Degrees of freedom of Student's t."""

    def p_value(self, value: float = 0.0, *, two_sided: bool = False) -> float:
        """Return the p-value of "the mean is `value` or less", with `two_sided` of "the mean is `value`"."""
        from scipy.special import stdtr

        p = float(stdtr(self.freedom, (value - self.value) / self.error))
        return 2 * min(p, 1 - p) if two_sided else p

    def bound(self, level: float) -> float:
        """Return the upper bound of the mean at `level`, or for a level below .5 the lower bound."""
        from scipy.special import stdtrit

        return self.value + float(stdtrit(self.freedom, level)) * self.error

    def clipped(self, low: float, high: float) -> Estimate:
        """Return the estimate limited to the scale; the coverage of the interval stays the same."""
        value, *ends = (min(max(end, low), high) for end in (self.value, *(self.interval or ())))
        return replace(self, value=value, interval=(ends[0], ends[1]) if ends else None)


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """Agreement of the judge with human labels, over the labelled replies."""

    n: int
    correlation: float | None
    """Pearson's correlation; None if one side does not vary."""
    agreement: float
    """Share of replies that both sides call good (at least `GOOD`), or both call not good."""
    kappa: float | None
    """Cohen's kappa of the same two classes; None if chance alone explains the agreement."""
    bias: float
    """Mean score of the judge minus the mean label."""


def agreement(scores: np.ndarray, labels: np.ndarray) -> Agreement:
    """Return the agreement over all labelled replies; raises ValueError without labels."""
    labelled = ~np.isnan(labels)
    if not labelled.any():
        raise ValueError("there is no label")
    scores, labels = scores[labelled], labels[labelled]
    judge_good, human_good = scores >= GOOD, labels >= GOOD
    same = float((judge_good == human_good).mean())
    chance = float(judge_good.mean() * human_good.mean() + (1 - judge_good.mean()) * (1 - human_good.mean()))
    varies = len(scores) > 2 and np.ptp(scores) > 0 and np.ptp(labels) > 0
    return Agreement(
        n=int(labelled.sum()),
        correlation=float(np.corrcoef(scores, labels)[0, 1]) if varies else None,
        agreement=same,
        kappa=None if chance == 1 else (same - chance) / (1 - chance),
        bias=float((scores - labels).mean()),
    )


def estimate(
    scores: np.ndarray,
    labels: np.ndarray,
    clusters: Sequence[str],
    needs_no_label: np.ndarray | None = None,
) -> Estimate:
    """Estimate the mean label of all turns: a flow's mean, or the difference of two flows.

    `scores` and `labels` have shape (turns,); a missing label is NaN. `clusters` names the conversation of each turn.
    `needs_no_label` marks turns with a certain value, such as failed ones; they are a stratum of their own and do not
    count for the judge's error. The interval is Student's, with the larger of two standard errors: over turns and over
    conversations.
    """
    certain = np.zeros(len(scores), dtype=bool) if needs_no_label is None else needs_no_label
    usable = ~np.isnan(labels) & ~certain
    if usable.sum() < MIN_LABELS_PER_STRATUM:
        return Estimate(value=float(scores.mean()), interval=None)
    weight = _judge_weight(scores[~certain], labels[~certain], usable[~certain])
    total, turns = 0.0, len(scores)
    # Each turn adds to the error of the judge's mean, and each labelled turn to the error of the correction.
    influence = weight * (scores - scores.mean())
    for stratum in (certain, ~certain) if certain.any() else (~certain,):
        labelled = stratum & (usable | certain)
        residual = labels[labelled] - weight * scores[labelled]
        total += stratum.sum() / turns * (weight * scores[stratum].mean() + residual.mean())
        influence[labelled] += stratum.sum() / labelled.sum() * (residual - residual.mean())
        # The mean label differs between the strata, too.
        influence[stratum] += residual.mean()
    influence -= influence.mean()
    turn_error = math.sqrt(float((influence**2).sum()) / turns / (turns - 1)) if turns > 1 else math.inf
    _, numbers = np.unique(np.asarray(clusters), return_inverse=True)
    sums = np.bincount(numbers, weights=influence)
    # CR3: the jackknife's factor for few conversations.
    conversation_error = math.sqrt(float((sums**2).sum())) * len(sums) / max(1, len(sums) - 1) / turns
    n_labelled = len(np.unique(numbers[usable]))
    # Equal labels show no spread, so one more label is assumed at the other end of the scale.
    unseen = MAX_UNSEEN_ERROR / float(usable.sum()) * float(np.mean(~certain))
    error = math.hypot(max(turn_error, conversation_error) * math.sqrt(usable.sum() / (usable.sum() - 1)), unseen)
    freedom = max(1, n_labelled - 1)
    whole = Estimate(value=float(total), interval=None, error=error, freedom=freedom)
    return replace(whole, interval=(whole.bound((1 - CONFIDENCE) / 2), whole.bound((1 + CONFIDENCE) / 2)))


def _judge_weight(scores: np.ndarray, labels: np.ndarray, labelled: np.ndarray) -> float:
    """Return the weight of the judge that makes the interval narrowest (PPI++, section 6), from the labelled turns."""
    spread = float(np.var(scores[labelled]))
    if not spread:
        return 0.0
    slope = float(np.cov(scores[labelled], labels[labelled], ddof=0)[0, 1]) / spread
    return min(1.0, max(0.0, slope / (1 + int(labelled.sum()) / len(scores))))
