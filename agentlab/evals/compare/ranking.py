"""Which of several flows: their ranks, how sure those are, and which of them another one dominates.

Everything comes from the same conversations at once: the ranks from all pairs of flows tested as one family by flipping
signs, the intervals and the front from resamples of conversations that all flows share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from agentlab.evals.compare.family import constant_p
from agentlab.evals.compare.paired import Sheet, pair_up
from agentlab.evals.stats.signs import Flips
from agentlab.evals.stats.statistics import LEVEL, NORMAL, resamples, students_t
from agentlab.evals.store.measures import COSTS, Measure, measure

ALPHA = 1 - LEVEL
LIKELY = 0.9
"""From this share of resamples on, a flow is called dominated in the sentence."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Of one flow."""

    flow: str
    mean: float
    """Of the measure that ranks."""
    interval: tuple[float, float] | None
    """At 95 % for all flows together; None with one conversation."""
    ranks: tuple[int, int]
    """The best and the worst that it may have, at 95 % for all flows together; 1 is the best."""
    dominated: float
    """In what share of resamples another flow is as good in all that decides and better in some of it."""
    by: str
    """The one that dominates it most often; "" where none ever does."""
    front: bool
    """Whether none dominates it on the turns that were played."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    measure: Measure
    decides: tuple[str, ...]
    """What a flow must be as good in to dominate another one."""
    places: tuple[Place, ...]
    """The best first."""
    shown: bool = False
    """Whether a quality is shown to differ between two flows by a smaller family, that of the comparison."""

    def __str__(self) -> str:
        show = self.measure.show
        first = [place for place in self.places if place.ranks[0] == 1]
        names = [f"{place.flow} ({show(place.mean)})" for place in first]
        many, name = len(self.places), self.measure.name
        if len(first) == many:
            told = f"no quality that decides tells the {many} flows apart"
            told += " once all pairs are tested together" if self.shown else ""
        elif len(first) == 1:
            told = f"best in {name} of {many} flows: {names[0]}"
        else:
            told = f"best in {name} of {many} flows: {' or '.join(names)}, not told apart"
        front = [place.flow for place in self.places if place.front]
        behind = [place for place in self.places if place.dominated >= LIKELY]
        beaten = f"nothing beats {', '.join(front)}" if len(front) < many else "none is beaten"
        said = f"{told}; {beaten} in all of {', '.join(self.decides)}"
        for place in behind:
            said += f"; {place.flow} is dominated by {place.by} (P = {place.dominated:.2f})"
        return said

    def to_json(self) -> dict[str, Any]:
        rows = [asdict(place) for place in self.places]
        return {"measure": self.measure.name, "decides": list(self.decides), "says": str(self), "flows": rows}


def rank(flows: Mapping[str, Sheet], decide: Sequence[str]) -> Ranking | None:
    """Of three flows and more on the same turns; None where no quality that decides is known of all.

    The first quality that tells any flows apart ranks them. Ranks count the flows that are shown to be better, and
    worse (Mogstad, Romano, Shaikh, Wilhelm, Inference for ranks, Review of Economic Studies 2024), by maxT over all
    pairs and all qualities that decide.
    """
    known = [name for name in decide if not any(_unknown(sheet, name) for sheet in flows.values())]
    qualities = [name for name in known if measure(name) not in COSTS]
    if not qualities:
        return None
    sums, counts = zip(*(_columns(sheet, known) for sheet in flows.values()), strict=True)
    signs = np.array([1.0 if measure(name).better == "higher" else -1.0 for name in known])
    total, turns = np.array([part.sum(axis=0) for part in sums]), np.array([part.sum(axis=0) for part in counts])
    means = total / turns * signs
    drawn = _drawn(np.stack(sums), np.stack(counts)) * signs
    places = [known.index(name) for name in qualities]
    shown = _shown_better(np.stack([part[:, places] for part in sums]), [*flows.values()], qualities)
    ranking = next((number for number, better in enumerate(shown) if better.any()), 0)
    better, place = shown[ranking], places[ranking]
    intervals = _simultaneous(drawn[:, :, place], means[:, place], int((counts[0][:, place] > 0).sum()))
    labels = list(flows)
    found = []
    for number, label in enumerate(labels):
        ranks = 1 + int(better[:, number].sum()), len(labels) - int(better[number].sum())
        share, by = _dominated(drawn, number)
        others = (np.delete(means, number, axis=0) >= means[number] - 1e-12).all(axis=1)
        above = (np.delete(means, number, axis=0) > means[number] + 1e-12).any(axis=1)
        found.append(
            Place(
                flow=label,
                mean=float(means[number, place]),
                interval=intervals[number] if intervals is not None else None,
                ranks=ranks,
                dominated=share,
                by=labels[by] if share else "",
                front=not bool((others & above).any()),
            )
        )
    ordered = sorted(found, key=lambda of: (-of.mean, of.ranks))
    return Ranking(measure=measure(qualities[ranking]), decides=tuple(known), places=tuple(ordered))


def _unknown(sheet: Sheet, name: str) -> bool:
    values, there = sheet.column(name)
    return not there.any() or bool(np.isnan(values[there]).any())


def _columns(sheet: Sheet, names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Sums and counts of each conversation, shape (C, M) each."""
    sums, counts = [], []
    for name in names:
        values, there = sheet.column(name)
        codes = sheet.codes[there]
        sums.append(np.bincount(codes, weights=values[there], minlength=sheet.conversations))
        counts.append(np.bincount(codes, minlength=sheet.conversations).astype(float))
    return np.column_stack(sums), np.column_stack(counts)


def _drawn(sums: np.ndarray, counts: np.ndarray) -> np.ndarray:
    """The means of resamples of conversations, the same for all flows, shape (flows, resamples, M).

    sums and counts (flows, C, M). NaN where no conversation that has a measure is in a resample.
    """
    size, conversations, many = sums.shape
    columns = np.concatenate([sums, counts]).transpose(1, 0, 2).reshape(conversations, -1)
    drawn = np.concatenate([weights @ columns for weights in resamples(conversations)]).reshape(-1, 2, size, many)
    tops, bottoms = drawn[:, 0], drawn[:, 1]
    means: np.ndarray = np.divide(tops, bottoms, out=np.full(tops.shape, np.nan), where=bottoms > 0)
    return means.transpose(1, 0, 2)


def _shown_better(sums: np.ndarray, flows: Sequence[Sheet], names: Sequence[str]) -> np.ndarray:
    """Whether flow i is shown to be better than flow j, shape (M, flows, flows); sums (flows, C, M)."""
    size, _, many = sums.shape
    pairs = [(m, one, other) for m in range(many) for one in range(size) for other in range(one + 1, size)]
    differences = np.round(np.column_stack([sums[one, :, m] - sums[other, :, m] for m, one, other in pairs]), 12)
    better = np.zeros((many, size, size), dtype=bool)
    if not differences.any():
        return better
    found = Flips(differences, two_sided=True).test()
    tests = int(differences.any(axis=0).sum())
    for (m, one, other), p, moved in zip(pairs, found.p_adjusted, differences.sum(axis=0), strict=True):
        paired = pair_up(names[m], flows[one], flows[other])
        if p < ALPHA or (paired.constant and constant_p(paired.conversations, two_sided=True) * tests < ALPHA):
            better[(m, one, other) if moved > 0 else (m, other, one)] = True
    return better


def _simultaneous(drawn: np.ndarray, means: np.ndarray, conversations: int) -> list[tuple[float, float]] | None:
    """Intervals of all means together, by the largest studentised deviation of a resample.

    drawn (flows, resamples). For few conversations they are widened as Student's t is wider than the normal.
    """
    if conversations < 2:
        return None
    errors = np.nanstd(drawn, axis=1)
    moved = np.abs(drawn - means[:, None]) / np.where(errors > 0, errors, np.inf)[:, None]
    wide = float(np.nanquantile(np.nanmax(moved, axis=0), LEVEL))
    level = (1 + LEVEL) / 2
    wide *= students_t(level, conversations - 1) / NORMAL.inv_cdf(level) * (conversations / (conversations - 1)) ** 0.5
    return [(float(mean - wide * error), float(mean + wide * error)) for mean, error in zip(means, errors, strict=True)]


def _dominated(drawn: np.ndarray, number: int) -> tuple[float, int]:
    """The share of resamples in which another flow dominates this one, and which of them does most often."""
    own = drawn[number]
    as_good = (drawn >= own - 1e-12).all(axis=2) & (drawn > own + 1e-12).any(axis=2)
    as_good[number] = False
    shares = as_good.mean(axis=1)
    # Of several that do so equally often, the one that dominates most of the others.
    strength = [(shares[other], (drawn[other] >= drawn - 1e-12).all(axis=2).mean()) for other in range(len(drawn))]
    return float(as_good.any(axis=0).mean()), max(range(len(drawn)), key=strength.__getitem__)
