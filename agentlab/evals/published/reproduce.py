"""Recomputes the published figures of a pack from its predictions.

    reproduction = reproduce("../shared/published/locomo")
    reproduction.figures                        # each published figure with ours
    analyse_significance(reproduction.pack)     # paired differences with intervals

A pack is a folder with `conversations.jsonl`, `predictions.jsonl` and `published.json`. The key `figures` of
`published.json` is a list of {"system", "category" ("all" or one), "metric", "value", "decimals", "scale" (100: in
percent), "grader"}. "n" is given for a figure that is the mean of fewer answers than the pack asks for. Other keys are
ignored.

Differences between systems compare each pair on the questions that both answered, per category and in total. Each
category uses its own grader. All comparisons are one family of tests, with conversations as clusters.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from itertools import combinations
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct
from msgspec.structs import replace

from agentlab.core import plugins
from agentlab.core.errors import DatasetError
from agentlab.core.files import read_bytes
from agentlab.core.messages import from_json
from agentlab.core.strict_json import parse_json
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import load_dataset
from agentlab.evals.compare.measure_verdict import MeasureVerdict
from agentlab.evals.compare.pairs import FlowSides, compare_turns
from agentlab.evals.grade.imported import published_numbers, read_turns
from agentlab.evals.published.graders import GRADERS, WITH_ALIASES, Grader
from agentlab.evals.published.importing import SCORERS, category_of, import_predictions
from agentlab.evals.store.measures import TurnKey, Values
from agentlab.evals.store.rows import TurnRow

PUBLISHED = "published.json"
ALL = "all"
STORED, ALIASES = "stored", "aliases"
MAX_DECIMALS = 20
FigureVerdict = Literal["reproduced", "differs", "incomplete", "not reproducible"]
"""`incomplete`: answers are missing, so a mean could agree only by chance. `not reproducible`: no grader gives it."""
WRONG = ("differs", "incomplete")
"""Verdicts that make `agentlab reproduce` fail."""


class PublishedFigure(Struct, frozen=True, kw_only=True):
    """One figure as published."""

    system: str
    category: str = ALL
    metric: str
    value: float
    decimals: Annotated[int, Meta(ge=0, le=MAX_DECIMALS)]
    scale: Annotated[float, Meta(gt=0)] = 1.0
    grader: str
    n: Annotated[int, Meta(ge=1)] | None = None
    """Number of answers of the mean; None for one answer to every scored turn."""

    def matches(self, mean: float) -> bool:
        """Return True if a mean from 0 to 1 equals the figure to its printed digit, with halves rounded either way."""
        return abs(mean * self.scale - self.value) <= 0.5 * 10.0**-self.decimals + 1e-9


class _Published(Struct):
    figures: list[PublishedFigure]


class NotReproducible(Exception):
    """Reason why no grader here gives a figure."""


@dataclass(frozen=True, kw_only=True)
class FigureCheck:
    """Comparison of a published figure with ours."""

    claim: PublishedFigure
    ours: float | None
    """Our mean, from 0 to 1; None if it cannot be computed."""
    n: int
    """Number of answers in our mean."""
    expected_n: int
    """Number of answers in the mean of the published figure."""
    verdict: FigureVerdict
    why: str = ""


@dataclass(frozen=True)
class GradedAnswer:
    """One answer with its turn and its grades."""

    row: TurnRow
    turn: Turn
    category: str
    aliases: tuple[str, ...]
    grades: dict[str, dict[str, float]] = field(default_factory=dict)
    """Grader -> metric -> value, filled on demand."""

    @cached_property
    def published_values(self) -> dict[str, float]:
        """Return the scores that came with the answer, by full name (`automatic_RougeL`)."""
        return dict(published_numbers(self.row.published or {}))

    @cached_property
    def stored(self) -> dict[str, float]:
        """Return the same scores, also by short name (`RougeL`)."""
        short = {
            name.removeprefix("automatic_").removeprefix("human_"): value
            for name, value in self.published_values.items()
        }
        return short | self.published_values

    def grade(self, grader: type[Grader], metric: str, *, aliases: bool = False) -> float:
        """Return a metric of the answer by `grader`; raises NotReproducible without a reference answer."""
        name = f"{grader.name} with aliases" if aliases else grader.name
        if name not in self.grades:
            references = [*self.turn.reference_answers, *(self.aliases if aliases else ())]
            if not references:
                raise NotReproducible("some turns have no reference answer")
            text = "" if self.row.reply is None else self.row.reply.text
            self.grades[name] = grader.grade(text, references)
        return self.grades[name][metric]


class Pack:
    """Content of a pack: its figures and its answers, which are graded on demand."""

    def __init__(self, folder: Path, run: Path, note: Callable[[str], None]) -> None:
        self.name = folder.resolve().name
        self.claims = read_claims(folder)
        graders = dict.fromkeys(GRADERS[rule] for claim in self.claims if (rule := claim.grader.lower()) in GRADERS)
        rules = [*SCORERS, *(f"{rule.__module__}:{rule.__name__}" for rule in graders)]
        imported = import_predictions(folder, run, scorers=rules, note=note)
        conversations = {each.id: each for each in load_dataset(folder).conversations}
        self.answers = [_graded_answer(row, conversations[row.conversation]) for row in read_turns(imported.folder)]
        self.systems = list(imported.result.flows)
        self.categories = list(dict.fromkeys(answer.category for answer in self.answers if answer.category))
        self._turn_categories = [_text(category_of(c, turn)) for c in conversations.values() for turn in c.scored_turns]

    def _unknown_name(self, claim: PublishedFigure) -> str:
        """Return the error for a system or category that the pack does not have; "" if it has both."""
        for kind, names in (("system", self.systems), ("category", [ALL, *filter(None, self._turn_categories)])):
            if (name := getattr(claim, kind)) not in names:
                return plugins.unknown_name(f"{kind} of this pack", name, {*names})
        return ""

    def expected_n(self, claim: PublishedFigure) -> int:
        """Return the number of answers in the mean of a figure; a system answers all turns in each epoch."""
        epochs = {answer.row.epoch for answer in self.answers if answer.row.flow == claim.system}
        return claim.n or len(epochs) * sum(claim.category in (ALL, category) for category in self._turn_categories)

    def answers_of(self, system: str, category: str) -> list[GradedAnswer]:
        return [a for a in self.answers if a.row.flow == system and category in (ALL, a.category)]

    def measure(self, claim: PublishedFigure) -> Callable[[GradedAnswer], float]:
        """Return the function that grades an answer for a figure; raises NotReproducible if there is none."""
        metric, grader = claim.metric, claim.grader.lower()
        if grader == STORED:
            return lambda answer: _stored(answer, metric)
        if grader == ALIASES:
            return self._with_aliases(claim)
        if grader not in GRADERS:
            raise NotReproducible(f"unknown grader {claim.grader!r}; there are {', '.join(GRADERS)}")
        if metric not in GRADERS[grader].metric_names:
            raise NotReproducible(f"{grader} has no metric {metric}")
        return lambda answer: answer.grade(GRADERS[grader], metric)

    def _with_aliases(self, claim: PublishedFigure) -> Callable[[GradedAnswer], float]:
        rules = [rule for name, rule in WITH_ALIASES.items() if claim.category.lower().startswith(name)]
        if not rules or claim.metric not in rules[0].metric_names:
            raise NotReproducible(f"no grader accepts aliases for {claim.metric} of {claim.category}")
        if not any(answer.aliases for answer in self.answers_of(claim.system, claim.category)):
            raise NotReproducible("its grader needs aliases, and the turns have none (metadata.aliases)")
        return lambda answer: answer.grade(rules[0], claim.metric, aliases=True)

    def figure(self, claim: PublishedFigure) -> FigureCheck:
        """Return the check of one figure."""
        answers, expected_n = self.answers_of(claim.system, claim.category), self.expected_n(claim)
        check = partial(FigureCheck, claim=claim, n=len(answers), expected_n=expected_n)
        missing = self._unknown_name(claim) or f"{expected_n - len(answers)} of {expected_n} answers are missing"
        if not answers:
            return check(ours=None, verdict="incomplete", why=missing)
        try:
            ours = sum(map(self.measure(claim), answers)) / len(answers)
        except NotReproducible as reason:
            return check(ours=None, verdict="not reproducible", why=str(reason))
        if len(answers) > expected_n:
            return check(ours=ours, verdict="differs", why=f"{len(answers)} answers instead of {expected_n}")
        if len(answers) < expected_n:
            return check(ours=ours, verdict="incomplete", why=missing)
        if claim.matches(ours):
            return check(ours=ours, verdict="reproduced")
        others = [name for name in GRADERS if name != claim.grader.lower() and self._gives(name, claim, answers)]
        why = f"{ours * claim.scale - claim.value:+.{claim.decimals + 2}f} by {claim.grader}"
        why += f"; {' and '.join(others)} would reproduce it" if others else ""
        return check(ours=ours, verdict="differs", why=why)

    def _gives(self, name: str, claim: PublishedFigure, answers: Sequence[GradedAnswer]) -> bool:
        try:
            return claim.matches(sum(map(self.measure(replace(claim, grader=name)), answers)) / len(answers))
        except NotReproducible:
            return False


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Pack with the checks of all its figures."""

    pack: Pack
    figures: tuple[FigureCheck, ...]

    @property
    def agrees(self) -> bool:
        """Return True if no figure differs or is incomplete."""
        return not any(figure.verdict in WRONG for figure in self.figures)

    def __str__(self) -> str:
        count = sum(figure.verdict == "reproduced" for figure in self.figures)
        return f"reproduced {count} of {len(self.figures)} figures{'' if self.figures else '; the pack has none'}"


def reproduce(
    folder: str | Path, run: str | Path | None = None, note: Callable[[str], None] = lambda line: None
) -> Reproduction:
    """Recompute the published figures of a pack from its answers; `agrees` of the result is True if all are equal.

    A pack is a folder with `conversations.jsonl`, `predictions.jsonl` and `published.json`. Its answers become a run,
    in the folder `run` if given. A figure is reproduced if it is equal to its last printed digit.

    `note` receives a line for keys that are ignored and for answers that are missing. Raises DatasetError, with file
    and line, for a pack that cannot be read.
    """
    folder = Path(folder)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Pack(folder, Path(run) if run is not None else Path(scratch) / folder.resolve().name, note)
    return Reproduction(pack=pack, figures=tuple(pack.figure(claim) for claim in pack.claims))


def read_claims(folder: Path) -> list[PublishedFigure]:
    """Return the figures of `published.json`; raises DatasetError if the file is missing or invalid."""
    file = folder / PUBLISHED
    try:
        return from_json(_Published, parse_json(read_bytes(file, follow_links=False))).figures
    except FileNotFoundError:
        raise DatasetError(f"there is no {PUBLISHED} with published figures", folder) from None
    except (OSError, ValueError) as problem:
        raise DatasetError(f"cannot be read: {str(problem).replace('`', '')}", file) from None


def _graded_answer(row: TurnRow, conversation: Conversation) -> GradedAnswer:
    turn = conversation.turns[row.turn]
    aliases = {**conversation.metadata, **turn.metadata}.get("aliases") or []
    usable = tuple(alias for alias in aliases if isinstance(alias, str)) if isinstance(aliases, list) else ()
    return GradedAnswer(row, turn, _text(row.category), usable)


def _text(category: object) -> str:
    return category if isinstance(category, str) else ""


def _stored(answer: GradedAnswer, metric: str) -> float:
    try:
        return answer.stored[metric]
    except KeyError:
        raise NotReproducible(f"{metric} is missing in some answers") from None


PARTS_OF_F1 = ("precision", "recall")
MAX_PRIMARY = 5
MIN_CONVERSATIONS = 2
"""Minimum conversations of a category; a test of one conversation cannot reject."""


@dataclass(frozen=True, kw_only=True)
class SystemDifference:
    """Difference of two systems in one metric on the questions of one category."""

    category: str
    a: str
    b: str
    judgement: MeasureVerdict


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
    comparison = compare_turns(sides, _primary(graded), latency_is_primary=False)
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
