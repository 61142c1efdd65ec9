"""Labelled texts, the rules that are graded on them, and their counts, for `labels.py`."""

from __future__ import annotations

import asyncio
import functools
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from correctness import agreement, area
from scipy.stats import binomtest

from agentlab.core.strict_json import load_own_yaml
from agentlab.data.conversations import Turn
from agentlab.data.datasets import load_dataset
from agentlab.evals.published.reproduce import Pack
from agentlab.evals.scorers.correctness import correctness
from agentlab.evals.scorers.words import best_score
from agentlab.flows.coordinator.memory_gate import states_a_fact
from agentlab.knowledge.citations import strip_markers
from agentlab.knowledge.intent import read_intent
from agentlab.knowledge.refusal import read_reply, vote
from agentlab.knowledge.small_talk import is_small_talk
from agentlab.models.embedders import local

ROOT = Path(__file__).parents[2]
LABELS = ROOT / "evals" / "labels"
LANGUAGES = ("en", "de", "es", "fr", "it", "pt", "ru", "ar", "zh", "ja")
COMPLETE = 4.0
"""Answers with at least this mean human rating, of 5, are no refusals."""
EMBEDDER = local.connect("all-minilm-l6-v2")
"""Embedder whose vectors vote on English replies; the extra `languages` votes on others."""
RIGHT = 0.5
"""Smallest `answer_correctness` of an answer that counts as right."""

MARKS = "?\uff1f\u061f"
QUESTION_WORDS = load_own_yaml(Path(__file__).with_name("question_words.yaml").read_text(encoding="utf-8"))
"""Question words of each language, which the demand counts beside a mark."""

Row = dict[str, Any]
Rule = Callable[[str], bool]


class Fraction(NamedTuple):
    """Numbers of right decisions and of all decisions."""

    right: int
    n: int

    def __str__(self) -> str:
        return f"{self.right}/{self.n}" if self.n else "-"

    @property
    def rate(self) -> float:
        return self.right / self.n if self.n else 1.0

    @property
    def misses(self) -> int:
        return self.n - self.right

    def with_interval(self) -> str:
        if not self.n:
            return "-"
        interval = binomtest(self.right, self.n).proportion_ci(method="wilson")
        return f"{self} = {self.rate:.3f} [{interval.low:.3f}, {interval.high:.3f}]"


class Decision(NamedTuple):
    """Decision to grade: its rows, and two rules that return True for a positive row."""

    name: str
    applies: Callable[[Row], bool]
    rule: Rule
    older: Rule


def is_stored(text: str) -> bool:
    return read_intent(text) == "tells"


def is_searched(text: str) -> bool:
    return read_intent(text) != "greets"


def opposite(rule: Rule) -> Rule:
    return lambda text: not rule(text)


def asks(row: Row) -> bool:
    """Return True for a message that only asks for documents."""
    return bool(row["search"]) and not row["keep"]


def has_question_form(row: Row) -> bool:
    """Return True for a question with a mark or a question word of its language."""
    words = QUESTION_WORDS[row["lang"]]
    pattern = words if row["lang"] in ("zh", "ja") else rf"\b(?:{words})\b"
    is_plain = row["kind"] == "keywords" or row["kind"].endswith("_plain")
    has_word = re.search(pattern, row["text"].lower()) is not None
    return not is_plain and (has_word or any(mark in row["text"] for mark in MARKS))


NOT_STORED = opposite(is_stored), opposite(states_a_fact)
SEARCHED = is_searched, opposite(is_small_talk)
NOT_SEARCHED = opposite(is_searched), is_small_talk

DECISIONS = {
    decision.name: decision
    for decision in (
        Decision("facts stored", lambda row: row["keep"], is_stored, states_a_fact),
        Decision("questions searched", lambda row: bool(row["search"]), *SEARCHED),
        Decision("questions not stored", lambda row: asks(row) and has_question_form(row), *NOT_STORED),
        Decision("others not stored", lambda row: asks(row) and not has_question_form(row), *NOT_STORED),
        Decision("courtesy not stored", lambda row: row["kind"] == "courtesy", *NOT_STORED),
        Decision("courtesy not searched", lambda row: row["kind"] == "courtesy", *NOT_SEARCHED),
    )
}


def read(name: str, half: str) -> list[Row]:
    rows = [json.loads(line) for line in (LABELS / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()]
    return [row for row in rows if half in (row["half"], "both")]


def count(rule: Rule, texts: Iterable[str]) -> Fraction:
    verdicts = [rule(text) for text in texts]
    return Fraction(sum(verdicts), len(verdicts))


def texts_of(decision: Decision, rows: Sequence[Row]) -> list[str]:
    return [row["text"] for row in rows if decision.applies(row)]


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> list[str]:
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return [*(f"| {' | '.join(map(str, line))} |" for line in lines), ""]


def by_language(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the rows of each language, of all but English, and of all."""
    groups = {name: [row for row in rows if row["lang"] == name] for name in LANGUAGES}
    return {**groups, "not en": [row for row in rows if row["lang"] != "en"], "all": list(rows)}


def kappa_of(labels: np.ndarray, values: np.ndarray) -> float:
    return agreement(values, labels)[1] if len(labels) else float("nan")


def kappa_cell(labels: np.ndarray, values: np.ndarray) -> str:
    """Return Cohen's kappa of two boolean vectors with a 95 % bootstrap interval over texts."""
    if not 0 < labels.sum() < len(labels):
        return "-"
    rng = np.random.default_rng(7)
    resamples = [rng.integers(len(labels), size=len(labels)) for _ in range(500)]
    low, high = np.percentile([kappa_of(labels[rows], values[rows]) for rows in resamples], [2.5, 97.5])
    return f"{kappa_of(labels, values):.2f} [{low:.2f}, {high:.2f}]"


class Graded(NamedTuple):
    """Labels and values of the texts that a rule decides, and the number of all texts."""

    labels: np.ndarray
    values: np.ndarray
    n: int

    @property
    def decided(self) -> Fraction:
        return Fraction(len(self.labels), self.n)

    @property
    def is_positive(self) -> np.ndarray:
        return self.values >= RIGHT

    @property
    def kappa(self) -> float:
        return kappa_of(self.labels, self.is_positive)

    @property
    def missed(self) -> Fraction:
        return Fraction(int((self.labels & ~self.is_positive).sum()), int(self.labels.sum()))

    @property
    def false(self) -> Fraction:
        return Fraction(int((~self.labels & self.is_positive).sum()), int((~self.labels).sum()))

    @property
    def auc(self) -> float:
        return area(self.values, self.labels) if 0 < self.labels.sum() < len(self.labels) else float("nan")


def auc_cell(graded: Graded) -> str:
    return "-" if np.isnan(graded.auc) else f"{graded.auc:.3f}"


def grade(labels: Sequence[bool], values: Sequence[float | None]) -> Graded:
    """Drop the values that are None: undecided."""
    both = [(label, value) for label, value in zip(labels, values, strict=True) if value is not None]
    return Graded(
        np.array([label for label, _ in both], dtype=bool), np.array([v for _, v in both], dtype=float), len(labels)
    )


def votes(sentences: Sequence[str]) -> np.ndarray:
    return vote(EMBEDDER.name, asyncio.run(EMBEDDER.embed(sentences)))


@functools.cache
def is_refusal(text: str) -> float | None:
    """Return 1 for a reply that declines, 0 for one that answers, None for any other."""
    return {"declines": 1.0, "answers": 0.0}.get(read_reply(strip_markers(text), votes).verdict)


def is_refusal_by_wording(text: str) -> float | None:
    """Return the same without an embedder of English; the extra `languages` still reads other languages."""
    return {"declines": 1.0, "answers": 0.0}.get(read_reply(strip_markers(text)).verdict)


def grade_replies(rows: Sequence[Row], rule: Callable[[str], float | None] = is_refusal) -> Graded:
    return grade([row["declines"] for row in rows], [rule(row["text"]) for row in rows])


def grade_pairs(rows: Sequence[Row]) -> Graded:
    values = [correctness(strip_markers(row["answer"]), row["reference"], row.get("question", "")) for row in rows]
    return grade([row["right"] for row in rows], values)


def has_fact(turn: Turn) -> bool:
    return any(each.op != "none" for each in turn.expected_memory or ())


def needs_documents(turn: Turn) -> bool:
    if turn.needs_document_lookup is None:
        return turn.scored and turn.relevant_doc_ids is not None
    return turn.needs_document_lookup


SET_DECISIONS: tuple[tuple[str, Callable[[Turn], bool], Rule, Rule], ...] = (
    ("facts stored", has_fact, is_stored, states_a_fact),
    ("without a fact, not stored", lambda turn: turn.expected_memory is not None and not has_fact(turn), *NOT_STORED),
    ("need documents, searched", needs_documents, *SEARCHED),
    ("need none, not searched", lambda turn: turn.needs_document_lookup is False, *NOT_SEARCHED),
)


class Outside(NamedTuple):
    """Figures on public sets and packs."""

    lines: list[str]
    stored: Fraction
    searched: Fraction
    complete: list[Fraction]
    """For each pack with ratings, the share of complete answers that count as refusals."""
    rated: list[Graded]
    """For each pack, our verdicts and those of its judge."""


def read_outside(folders: Sequence[Path]) -> Outside:
    """Grade sets (messages) and packs (answers)."""
    cells: list[Sequence[object]] = []
    outside = Outside([], Fraction(0, 0), Fraction(0, 0), [], [])
    for folder in folders:
        if (folder / "published.json").exists():
            outside = _read_pack(folder, outside)
            continue
        turns = [turn for conversation in load_dataset(folder).conversations for turn in conversation.turns]
        for name, applies, rule, older in SET_DECISIONS:
            texts = [turn.user for turn in turns if applies(turn)]
            fraction = count(rule, texts)
            if texts:
                cells.append([folder.name, name, fraction.with_interval(), count(older, texts)])
            if applies is has_fact:
                outside = outside._replace(stored=add(outside.stored, fraction))
            if applies is needs_documents:
                outside = outside._replace(searched=add(outside.searched, fraction))
    lines = ["## Sets and packs\n", *table(["set", "messages that", "`rules`", "`words`"], cells)]
    for graded in outside.rated:
        kappa = kappa_cell(graded.labels, graded.is_positive)
        lines.append(
            f"* Answers with a verdict of their authors' judge: {graded.decided} decided, kappa {kappa},"
            f" AUC {graded.auc:.3f}."
        )
    lines += [
        f"* Answers that people rate complete and that count as refusals: {each.with_interval()}."
        for each in outside.complete
    ]
    return outside._replace(lines=[*lines, ""])


def add(one: Fraction, other: Fraction) -> Fraction:
    return Fraction(one.right + other.right, one.n + other.n)


def _read_pack(folder: Path, outside: Outside) -> Outside:
    with tempfile.TemporaryDirectory() as scratch:
        answers = Pack(folder, Path(scratch) / "run", print).answers
    graded = [a for a in answers if a.row.reply and not a.turn.unanswerable]
    complete = [strip_markers(a.row.reply.text) for a in graded if a.stored.get("human_completeness", 0) >= COMPLETE]
    rated = [a for a in graded if "judge" in a.stored]
    if complete:
        outside.complete.append(count(lambda text: is_refusal(text) == 1, complete))
    if rated:
        replies = [strip_markers(a.row.reply.text) for a in rated]
        best = [
            best_score(a.turn, partial(correctness, reply, question=a.turn.user)).value
            for a, reply in zip(rated, replies, strict=True)
        ]
        outside.rated.append(grade([a.stored["judge"] >= 1 for a in rated], best))
    return outside
