"""A pack of published predictions held against the figures that its authors gave for them.

    reproduction = reproduce("../shared/published/locomo")
    reproduction.figures            # each published figure beside ours
    unsaid(reproduction.pack)       # what the authors did not say: paired differences with intervals

A pack is a folder with `conversations.jsonl`, `predictions.jsonl` and `published.json`, whose `figures` are a list of
{"system", "category" ("all" or one), "metric", "value", "decimals", "scale" (100: in percent), "grader"}, and "n" where
a figure is the mean of fewer answers than the pack asks for. What the file says of its own recomputation is not read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Annotated, Literal

from msgspec import Meta, Struct

from agentlab.core import plugins
from agentlab.core.errors import DatasetError
from agentlab.core.files import read_bytes
from agentlab.core.messages import from_json
from agentlab.core.strict_json import parse_json
from agentlab.data.conversations import Conversation, Turn
from agentlab.data.datasets import load_dataset
from agentlab.evals.grade.imported import published_numbers, read_turns
from agentlab.evals.published.graders import GRADERS, WITH_ALIASES, Grader
from agentlab.evals.published.importing import SCORERS, category_of, import_predictions
from agentlab.evals.store.rows import TurnRow

PUBLISHED = "published.json"
ALL = "all"
STORED, ALIASES = "stored", "aliases"
MAX_DECIMALS = 20
Verdict = Literal["reproduced", "differs", "in part", "cannot be had"]
"""In part: answers are missing, so that what is here could only agree by chance."""


class PublishedFigure(Struct, frozen=True, kw_only=True):
    """A figure as published."""

    system: str
    category: str = ALL
    metric: str
    value: float
    decimals: Annotated[int, Meta(ge=0, le=MAX_DECIMALS)]
    scale: Annotated[float, Meta(gt=0)] = 1.0
    grader: str
    n: Annotated[int, Meta(ge=1)] | None = None
    """Answers that it is the mean of; None: one to every turn that is asked."""

    def matches(self, mean: float) -> bool:
        """Whether a mean from 0 to 1 is the figure to its printed digit; halves may be rounded either way."""
        return abs(mean * self.scale - self.value) <= 0.5 * 10.0**-self.decimals + 1e-9


class NotReproducible(Exception):
    """Why a figure is out of reach."""


@dataclass(frozen=True, kw_only=True)
class FigureCheck:
    claim: PublishedFigure
    ours: float | None
    """A mean from 0 to 1."""
    n: int
    asked: int
    """How many answers it should be the mean of."""
    verdict: Verdict
    why: str = ""


@dataclass(frozen=True)
class GradedAnswer:
    """One answer with what it is graded by."""

    row: TurnRow
    turn: Turn
    category: str
    aliases: tuple[str, ...]
    grades: dict[str, dict[str, float]] = field(default_factory=dict)

    @property
    def key(self) -> tuple[str, int, int]:
        return self.row.conversation, self.row.turn, self.row.epoch

    @cached_property
    def published_values(self) -> dict[str, float]:
        """What the authors noted, by its whole name (`automatic_RougeL`)."""
        return dict(published_numbers(self.row.published or {}))

    @cached_property
    def stored(self) -> dict[str, float]:
        """Likewise, by its name alone too (`RougeL`)."""
        alone = {
            name.removeprefix("automatic_").removeprefix("human_"): value
            for name, value in self.published_values.items()
        }
        return alone | self.published_values

    def by(self, grader: type[Grader], metric: str, *, aliases: bool = False) -> float:
        name = f"{grader.name} with aliases" if aliases else grader.name
        if name not in self.grades:
            references = [*self.turn.reference_answers, *(self.aliases if aliases else ())]
            if not references:
                raise NotReproducible("some turns have no reference answer")
            said = "" if self.row.reply is None else self.row.reply.text
            self.grades[name] = grader.grade(said, references)
        return self.grades[name][metric]


class Pack:
    """What is in a folder, graded when asked."""

    def __init__(self, folder: Path, run: Path, note: Callable[[str], None]) -> None:
        self.name = folder.resolve().name
        self.claims = read_claims(folder)
        named = dict.fromkeys(GRADERS[rule] for claim in self.claims if (rule := claim.grader.lower()) in GRADERS)
        rules = [*SCORERS, *(f"{rule.__module__}:{rule.__name__}" for rule in named)]
        imported = import_predictions(folder, run, scorers=rules, note=note)
        conversations = {each.id: each for each in load_dataset(folder).conversations}
        self.answers = [_answer(row, conversations[row.conversation]) for row in read_turns(imported.folder)]
        self.systems = list(imported.result.flows)
        self.categories = list(dict.fromkeys(answer.category for answer in self.answers if answer.category))
        self._asked = [_text(category_of(each, turn)) for each in conversations.values() for turn in each.scored_turns]

    def _unknown_name(self, claim: PublishedFigure) -> str:
        """Which name of a figure stands nowhere in the pack, if one does."""
        for what, names in (("system", self.systems), ("category", [ALL, *filter(None, self._asked)])):
            if (name := getattr(claim, what)) not in names:
                return plugins.unknown_name(f"{what} of this pack", name, {*names})
        return ""

    def asked(self, claim: PublishedFigure) -> int:
        """Of how many answers a figure is the mean; a system is asked everything in each epoch that it has."""
        epochs = {answer.row.epoch for answer in self.answers if answer.row.flow == claim.system}
        return claim.n or len(epochs) * sum(claim.category in (ALL, category) for category in self._asked)

    def of(self, system: str, category: str) -> list[GradedAnswer]:
        return [a for a in self.answers if a.row.flow == system and category in (ALL, a.category)]

    def measure(self, claim: PublishedFigure) -> Callable[[GradedAnswer], float]:
        """How an answer is graded for a figure; raises NotReproducible where nothing here could."""
        metric, grader = claim.metric, claim.grader.lower()
        if grader == STORED:
            return lambda answer: _stored(answer, metric)
        if grader == ALIASES:
            return self._with_aliases(claim)
        if grader not in GRADERS:
            raise NotReproducible(f"there is no grader {claim.grader!r} here, only {', '.join(GRADERS)}")
        if metric not in GRADERS[grader].metric_names:
            raise NotReproducible(f"{grader} gives no {metric}")
        return lambda answer: answer.by(GRADERS[grader], metric)

    def _with_aliases(self, claim: PublishedFigure) -> Callable[[GradedAnswer], float]:
        rules = [rule for name, rule in WITH_ALIASES.items() if claim.category.lower().startswith(name)]
        if not rules or claim.metric not in rules[0].metric_names:
            raise NotReproducible(f"no script with aliases is known for {claim.metric} of {claim.category}")
        if not any(answer.aliases for answer in self.of(claim.system, claim.category)):
            raise NotReproducible("its script counts aliases, which these references do not have (metadata.aliases)")
        return lambda answer: answer.by(rules[0], claim.metric, aliases=True)

    def figure(self, claim: PublishedFigure) -> FigureCheck:
        answers, asked = self.of(claim.system, claim.category), self.asked(claim)
        found = partial(FigureCheck, claim=claim, n=len(answers), asked=asked)
        missing = self._unknown_name(claim) or f"{asked - len(answers)} answers of {asked} are not here"
        if not answers:
            return found(ours=None, verdict="in part", why=missing)
        try:
            ours = sum(map(self.measure(claim), answers)) / len(answers)
        except NotReproducible as reason:
            return found(ours=None, verdict="cannot be had", why=str(reason))
        if len(answers) > asked:
            return found(ours=ours, verdict="differs", why=f"it is of {asked} answers, {len(answers)} are here")
        if len(answers) < asked:
            return found(ours=ours, verdict="in part", why=missing)
        if claim.matches(ours):
            return found(ours=ours, verdict="reproduced")
        others = [name for name in GRADERS if name != claim.grader.lower() and self._gives(name, claim, answers)]
        why = f"{ours * claim.scale - claim.value:+.{claim.decimals + 2}f} by {claim.grader}"
        why += f"; {' and '.join(others)} would give it" if others else ""
        return found(ours=ours, verdict="differs", why=why)

    @staticmethod
    def _gives(name: str, claim: PublishedFigure, answers: Sequence[GradedAnswer]) -> bool:
        rule = GRADERS[name]
        if claim.metric not in rule.metric_names:
            return False
        try:
            return claim.matches(sum(answer.by(rule, claim.metric) for answer in answers) / len(answers))
        except NotReproducible:
            return False


@dataclass(frozen=True, kw_only=True)
class Reproduction:
    pack: Pack
    figures: tuple[FigureCheck, ...]

    @property
    def agrees(self) -> bool:
        """Whether everything came out that should."""
        return not {"differs", "in part"} & {figure.verdict for figure in self.figures}

    def __str__(self) -> str:
        held = sum(figure.verdict == "reproduced" for figure in self.figures)
        return f"reproduced {held} of {len(self.figures)} figures{'' if self.figures else ', since none is given'}"


def reproduce(
    folder: str | Path, run: str | Path | None = None, note: Callable[[str], None] = lambda line: None
) -> Reproduction:
    """Import a pack, into the folder `run` if it is given, and hold every figure beside ours.

    `note` is told what is not read and which answers are missing. Raises DatasetError, with file and line, for a pack
    that cannot be read.
    """
    folder = Path(folder)
    with tempfile.TemporaryDirectory() as scratch:
        pack = Pack(folder, Path(run) if run is not None else Path(scratch) / folder.resolve().name, note)
    return Reproduction(pack=pack, figures=tuple(pack.figure(claim) for claim in pack.claims))


def read_claims(folder: Path) -> list[PublishedFigure]:
    """The figures of `published.json`; raises DatasetError."""
    file = folder / PUBLISHED
    try:
        content = parse_json(read_bytes(file, follow_links=False))
    except FileNotFoundError:
        raise DatasetError(f"there is no {PUBLISHED}, so there is nothing to hold answers against", folder) from None
    except (OSError, ValueError) as problem:
        raise DatasetError(f"cannot be read: {problem}", file) from None
    figures = content.get("figures") if isinstance(content, dict) else None
    if not isinstance(figures, list):
        raise DatasetError("has no list `figures`", file)
    claims = []
    for number, figure in enumerate(figures):
        try:
            claims.append(from_json(PublishedFigure, figure))
        except ValueError as problem:
            raise DatasetError(f"figures.{number}: {str(problem).replace('`', '')}", file) from None
    return claims


def _answer(row: TurnRow, conversation: Conversation) -> GradedAnswer:
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
        raise NotReproducible(f"{metric} is not stored with every answer") from None
