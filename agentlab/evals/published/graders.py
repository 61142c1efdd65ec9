"""The rules behind published figures, each after the script its field uses; every number lies between 0 and 1.

A rule grades an answer against every reference, and of each metric the best counts. A figure of a pack names a rule in
small letters; a run is graded by one as `agentlab score RUN --scorer agentlab.evals.published.graders:Squad`.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from agentlab.data.conversations import Turn
from agentlab.evals.published.bleu import bleu1
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.overlap import rouge_l

Grades = dict[str, float]
PUNCTUATION = frozenset(string.punctuation)
ARTICLES = re.compile(r"\b(a|an|the)\b")
CLOSED = ("yes", "no", "noanswer")
"""Answers of which HotpotQA gives nothing for a part."""


class Grader:
    """A rule by its name and the metrics it gives; used as a class, it holds nothing."""

    name: ClassVar[str]
    gives: ClassVar[tuple[str, ...]] = ("em", "f1", "precision", "recall")
    by: ClassVar[str]

    @classmethod
    def against(cls, answer: str, reference: str) -> Grades:
        """One metric each of `gives`."""
        raise NotImplementedError

    @classmethod
    def grade(cls, answer: str, references: Sequence[str]) -> Grades:
        found = [cls.against(answer, reference) for reference in references]
        return {name: max(grades[name] for grades in found) for name in cls.gives}

    @classmethod
    def metrics(cls, turn: Turn) -> tuple[str, ...]:
        return tuple(f"{cls.name}_{name}" for name in cls.gives) if turn.reference_answers else ()

    @classmethod
    def score(cls, turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
        found = cls.grade(outcome.reply.text, turn.reference_answers)
        return {f"{cls.name}_{name}": Score(value=value, reason=f"by {cls.by}") for name, value in found.items()}


class Squad(Grader):
    """Exact match and F1 over words with their counts, and as `acc` whether a reference is part of the answer."""

    name, gives = "squad", ("em", "f1", "precision", "recall", "acc")
    by = "the script of SQuAD 2.0 (Rajpurkar et al., arXiv 1806.03822)"

    @classmethod
    def against(cls, answer: str, reference: str) -> Grades:
        said, gold = normalise(answer), normalise(reference)
        found = shared_words(said, gold) if said and gold else dict.fromkeys(SHARES, float(said == gold))
        return {"em": float(said == gold), **found, "acc": float(gold in said)}


class Hotpotqa(Grader):
    """SQuAD's, but nothing for a part of a yes or a no, nor where both are empty."""

    name = "hotpotqa"
    by = "the script of HotpotQA (Yang et al., arXiv 1809.09600)"

    @classmethod
    def against(cls, answer: str, reference: str) -> Grades:
        said, gold = normalise(answer), normalise(reference)
        closed = said != gold and (said in CLOSED or gold in CLOSED)
        return {"em": float(said == gold), **shared_words("" if closed else said, gold)}


class Drop(Grader):
    """Sets of words; where the reference has numbers the answer has to have one of them; two digits a question."""

    name = "drop"
    by = "the script of DROP (Dua et al., arXiv 1903.00161), an answer being one span"

    @classmethod
    def against(cls, answer: str, reference: str) -> Grades:
        said, gold = drop_words(answer), drop_words(reference)
        ours, theirs = set(said), set(gold)
        numbers = {word for word in theirs if is_number(word)}
        if numbers and not numbers & ours:
            return {"em": float(said == gold), **dict.fromkeys(SHARES, 0.0)}
        shared = len(ours & theirs)
        precision = shared / len(ours) if ours else 1.0
        recall = shared / len(theirs) if theirs else 1.0
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        rounded = {"f1": round(f1, 2), "precision": round(precision, 2), "recall": round(recall, 2)}
        return {"em": float(said == gold), **rounded}


class Locomo(Grader):
    """Sets of lower-case words, of which only . , ! ? are taken away; nothing where a text is empty."""

    name, gives = "locomo", ("f1",)
    by = "the evaluation of LoCoMo answers by mem0 and memobase"

    @classmethod
    def against(cls, answer: str, reference: str) -> Grades:
        ours, theirs = (set(re.sub("[.,!?]", " ", text.lower()).split()) for text in (answer, reference))
        return {"f1": shares(len(ours & theirs), len(ours), len(theirs))["f1"]}


class Rouge(Grader):
    """F1 of the longest common subsequence of words, unstemmed."""

    name, gives = "rouge", ("RougeL",)
    by = "ROUGE-L (Lin 2004)"

    @classmethod
    def against(cls, answer: str, reference: str) -> Grades:
        return {"RougeL": rouge_l(answer, reference)}


class Bleu(Grader):
    """BLEU of single words; nearly that of the tool in the field, whose sentence splitter is a trained model."""

    name, gives = "bleu1", ("bleu",)
    by = "BLEU-1 (Papineni et al. 2002)"

    @classmethod
    def against(cls, answer: str, reference: str) -> Grades:
        return {"bleu": bleu1(answer, reference)}


GRADERS: dict[str, type[Grader]] = {rule.name: rule for rule in (Squad, Hotpotqa, Drop, Locomo, Rouge, Bleu)}
WITH_ALIASES: dict[str, type[Grader]] = {"musique": Squad, "2wiki": Hotpotqa}
"""Sets whose own scripts also take aliases, by how their names begin: the best of the answer and all of them counts."""
SHARES = ("f1", "precision", "recall")


def normalise(text: str) -> str:
    """Lower case, no ASCII punctuation, no articles, single spaces: `normalize_answer` of SQuAD's script."""
    plain = "".join(character for character in text.lower() if character not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", plain).split())


def drop_words(text: str) -> list[str]:
    """Normalised as in DROP's script: hyphens part words, and a number is the same however it is written."""
    words = []
    for word in re.split(" |-", text.lower()):
        bare = word if is_number(word) else "".join(c for c in word if c not in PUNCTUATION)
        bare = " ".join(ARTICLES.sub(" ", bare).split())
        words.append(str(float(bare)) if is_number(bare) else bare)
    return " ".join(words).split()


def is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def shares(shared: int, ours: int, theirs: int) -> Grades:
    """F1, precision and recall of words."""
    if not shared:
        return dict.fromkeys(SHARES, 0.0)
    precision, recall = shared / ours, shared / theirs
    return {"f1": 2 * precision * recall / (precision + recall), "precision": precision, "recall": recall}


def shared_words(said: str, gold: str) -> Grades:
    """Of words with their counts."""
    ours, theirs = said.split(), gold.split()
    return shares(sum((Counter(ours) & Counter(theirs)).values()), len(ours), len(theirs))
