"""Tests the differences between the systems of a pack, which publications often leave out.

Each pair of systems is compared on the questions that both answered, per category and in total, in the published
metrics. Each category uses its own grader. All comparisons are one family of tests, with conversations as clusters.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations

from agentlab.evals.compare.judgement import Judgement
from agentlab.evals.compare.pairs import FlowSides, compare_turns
from agentlab.evals.published.reproduce import ALL, GradedAnswer, NotReproducible, Pack, PublishedFigure
from agentlab.evals.store.measures import TurnKey, Values

PARTS_OF_F1 = ("precision", "recall")
MAX_PRIMARY = 5
MIN_CONVERSATIONS = 2
"""Conversations that a category needs; one conversation can show nothing."""


@dataclass(frozen=True, kw_only=True)
class SystemDifference:
    """Difference of two systems in one metric on the questions of one category."""

    category: str
    a: str
    b: str
    judgement: Judgement


def analyse_significance(pack: Pack) -> list[SystemDifference]:
    """Return the differences of all pairs of systems in the primary metrics; empty if nothing can be compared."""
    metrics = _metrics(pack)
    categories = [*(pack.categories if len(pack.categories) > 1 else ()), ALL]
    sides, labels = [], []
    for category in categories:
        columns = {system: _column(pack, system, category, metrics) for system in pack.systems}
        for a, b in combinations(pack.systems, 2):
            shared = columns[a].keys() & columns[b].keys()
            if len({key[0] for key in shared}) >= MIN_CONVERSATIONS:
                rows = [{key: columns[system][key] for key in shared} for system in (a, b)]
                sides.append(FlowSides(f"{a}, {category}", rows[0], f"{b}, {category}", rows[1], (a, b)))
                labels.append((category, a, b))
    graded = [name for name in metrics if any(row.get(name) is not None for s in sides for row in s.a.values())]
    if not sides or not graded:
        return []
    comparison = compare_turns(sides, _primary(graded), latency_decides=False)
    return [
        SystemDifference(category=category, a=a, b=b, judgement=judgement)
        for (category, a, b), pair in zip(labels, comparison.pairs, strict=True)
        for judgement in pair.differences
        if judgement.difference is not None and judgement.measure.name in comparison.primary
    ]


def _metrics(pack: Pack) -> dict[str, dict[str, PublishedFigure]]:
    """Map metric and category to a figure that names the grader; without figures return all stored metrics."""
    figures: dict[str, dict[str, PublishedFigure]] = {}
    for claim in pack.claims:
        if claim.metric not in PARTS_OF_F1:
            try:
                pack.measure(claim)
            except NotReproducible:
                continue
            figures.setdefault(claim.metric, {}).setdefault(claim.category, claim)
    if not figures:
        stored = dict.fromkeys(name for answer in pack.answers for name in answer.published_values)
        figures = {name: {} for name in stored}
    return figures


def _primary(names: list[str]) -> list[str]:
    """Return the human ratings if there are any, otherwise the first published metrics."""
    return ([name for name in names if name.startswith("human_")] or names)[:MAX_PRIMARY]


def _column(
    pack: Pack, system: str, category: str, metrics: dict[str, dict[str, PublishedFigure]]
) -> dict[TurnKey, Values]:
    """Return the value of each metric for each answer of a system; None if no grader gives it."""

    def value(answer: GradedAnswer, metric: str, claims: dict[str, PublishedFigure]) -> float | None:
        claim = claims.get(answer.category) or claims.get(ALL)
        try:
            if claim is None:
                return answer.stored.get(metric)
            grade: Callable[[GradedAnswer], float] = pack.measure(claim)
            return grade(answer)
        except NotReproducible:
            return None

    return {
        answer.row.key: {metric: value(answer, metric, claims) for metric, claims in metrics.items()}
        for answer in pack.answers_of(system, category)
    }
