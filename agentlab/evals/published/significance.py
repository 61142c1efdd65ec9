"""What the authors of published answers did not say: how sure the differences are.

Every two systems on the questions both answered, each set of questions (category) by itself and all together, in the
metrics that were published, each set by its own grader. All of it is one family of tests; conversations are what is
drawn and flipped.
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
"""Of a category; on one conversation nothing can be shown."""


@dataclass(frozen=True, kw_only=True)
class SystemDifference:
    """Of two systems in one metric on the questions of one category."""

    category: str
    a: str
    b: str
    found: Judgement


def analyse_significance(pack: Pack) -> list[SystemDifference]:
    metrics = _metrics(pack)
    categories = [*(pack.categories if len(pack.categories) > 1 else ()), ALL]
    sides, placed = [], []
    for category in categories:
        columns = {system: _column(pack, system, category, metrics) for system in pack.systems}
        for a, b in combinations(pack.systems, 2):
            shared = columns[a].keys() & columns[b].keys()
            if len({key[0] for key in shared}) >= MIN_CONVERSATIONS:
                rows = [{key: columns[system][key] for key in shared} for system in (a, b)]
                sides.append(FlowSides(f"{a}, {category}", rows[0], f"{b}, {category}", rows[1], (a, b)))
                placed.append((category, a, b))
    known = [name for name in metrics if any(row.get(name) is not None for s in sides for row in s.a.values())]
    if not sides or not known:
        return []
    comparison = compare_turns(sides, _deciding(known), latency_decides=False)
    return [
        SystemDifference(category=category, a=a, b=b, found=found)
        for (category, a, b), pair in zip(placed, comparison.pairs, strict=True)
        for found in pair.differences
        if found.difference is not None and found.measure.name in comparison.primary
    ]


def _metrics(pack: Pack) -> dict[str, dict[str, PublishedFigure]]:
    """Metric -> category -> a figure that says how it is graded there; without figures, all that is stored."""
    found: dict[str, dict[str, PublishedFigure]] = {}
    for claim in pack.claims:
        if claim.metric not in PARTS_OF_F1:
            try:
                pack.measure(claim)
            except NotReproducible:
                continue
            found.setdefault(claim.metric, {}).setdefault(claim.category, claim)
    if not found:
        stored = dict.fromkeys(name for answer in pack.answers for name in answer.published_values)
        found = {name: {} for name in stored}
    return found


def _deciding(names: list[str]) -> list[str]:
    """People's ratings where there are any, else what was published."""
    return ([name for name in names if name.startswith("human_")] or names)[:MAX_PRIMARY]


def _column(
    pack: Pack, system: str, category: str, metrics: dict[str, dict[str, PublishedFigure]]
) -> dict[TurnKey, Values]:
    """The answers of a system; of each metric the value, None where nothing gives it."""

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
        answer.key: {metric: value(answer, metric, claims) for metric, claims in metrics.items()}
        for answer in pack.of(system, category)
    }
