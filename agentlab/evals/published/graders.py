"""Graders of published figures, each after the script of its data set; every value is between 0 and 1.

A grader compares an answer with every reference and takes the best value of each metric. A figure of a pack names its
grader in lower case. `agentlab score RUN --scorer agentlab.evals.published.graders:Squad` grades a run with one.
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
CLOSED_ANSWERS = ("yes", "no", "noanswer")
"""Answers for which HotpotQA gives no partial credit."""


class Grader:
    """Rule of one script: its name, its metrics and its source. Use the class itself; it has no state."""

    name: ClassVar[str]
    metric_names: ClassVar[tuple[str, ...]] = ("em", "f1", "precision", "recall")
    source: ClassVar[str]

    @classmethod
    def compare(cls, answer: str, reference: str) -> Grades:
        """Return the value of each of `metric_names` for one reference."""
        raise NotImplementedError

    @classmethod
    def grade(cls, answer: str, references: Sequence[str]) -> Grades:
        """Return the best value of each metric over `references`, which must not be empty."""
        grades_by_reference = [cls.compare(answer, reference) for reference in references]
        return {name: max(grades[name] for grades in grades_by_reference) for name in cls.metric_names}

    @classmethod
    def metrics(cls, turn: Turn) -> tuple[str, ...]:
        return tuple(f"{cls.name}_{name}" for name in cls.metric_names) if turn.reference_answers else ()

    @classmethod
    def score(cls, turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
        grades = cls.grade(outcome.reply.text, turn.reference_answers)
        return {f"{cls.name}_{name}": Score(value=value, reason=f"by {cls.source}") for name, value in grades.items()}


class Squad(Grader):
    """Exact match, F1 over words with their counts, and `acc`: 1 if the answer contains the reference."""

    name, metric_names = "squad", ("em", "f1", "precision", "recall", "acc")
    source = "the script of SQuAD 2.0 (Rajpurkar et al., arXiv 1806.03822)"

    @classmethod
    def compare(cls, answer: str, reference: str) -> Grades:
        answer, reference = normalise(answer), normalise(reference)
        em = float(answer == reference)
        f1 = word_f1(answer, reference) if answer and reference else dict.fromkeys(F1_METRICS, em)
        return {"em": em, **f1, "acc": float(reference in answer)}


class Hotpotqa(Grader):
    """SQuAD without partial credit for yes, no and noanswer; F1 of two empty texts is 0."""

    name = "hotpotqa"
    source = "the script of HotpotQA (Yang et al., arXiv 1809.09600)"

    @classmethod
    def compare(cls, answer: str, reference: str) -> Grades:
        answer, reference = normalise(answer), normalise(reference)
        closed = answer != reference and (answer in CLOSED_ANSWERS or reference in CLOSED_ANSWERS)
        return {"em": float(answer == reference), **word_f1("" if closed else answer, reference)}


class Drop(Grader):
    """F1 over sets of words, rounded to two digits; 0 if the reference has numbers and the answer none of them."""

    name = "drop"
    source = "the script of DROP (Dua et al., arXiv 1903.00161), an answer being one span"

    @classmethod
    def compare(cls, answer: str, reference: str) -> Grades:
        answer_words, reference_words = drop_words(answer), drop_words(reference)
        em = float(answer_words == reference_words)
        answer_set, reference_set = set(answer_words), set(reference_words)
        numbers = {word for word in reference_set if is_number(word)}
        if numbers and not numbers & answer_set:
            return {"em": em, **dict.fromkeys(F1_METRICS, 0.0)}
        n_shared = len(answer_set & reference_set)
        precision = n_shared / len(answer_set) if answer_set else 1.0
        recall = n_shared / len(reference_set) if reference_set else 1.0
        f1 = 2 * precision * recall / (precision + recall) if precision + recall else 0.0
        rounded = {"f1": round(f1, 2), "precision": round(precision, 2), "recall": round(recall, 2)}
        return {"em": em, **rounded}


class Locomo(Grader):
    """F1 over sets of lower-case words without the characters . , ! ?; 0 if a text is empty."""

    name, metric_names = "locomo", ("f1",)
    source = "the evaluation of LoCoMo answers by mem0 and memobase"

    @classmethod
    def compare(cls, answer: str, reference: str) -> Grades:
        ours, theirs = (set(re.sub("[.,!?]", " ", text.lower()).split()) for text in (answer, reference))
        return {"f1": f1_of_counts(len(ours & theirs), len(ours), len(theirs))["f1"]}


class Rouge(Grader):
    """F1 of the longest common subsequence of words, without stemming."""

    name, metric_names = "rouge", ("RougeL",)
    source = "ROUGE-L (Lin 2004)"

    @classmethod
    def compare(cls, answer: str, reference: str) -> Grades:
        return {"RougeL": rouge_l(answer, reference)}


class Bleu(Grader):
    """BLEU of single words, nearly that of the usual implementation; `bleu.py` explains the difference."""

    name, metric_names = "bleu1", ("bleu",)
    source = "BLEU-1 (Papineni et al. 2002)"

    @classmethod
    def compare(cls, answer: str, reference: str) -> Grades:
        return {"bleu": bleu1(answer, reference)}


GRADERS: dict[str, type[Grader]] = {rule.name: rule for rule in (Squad, Hotpotqa, Drop, Locomo, Rouge, Bleu)}
WITH_ALIASES: dict[str, type[Grader]] = {"musique": Squad, "2wiki": Hotpotqa}
"""Prefix of a data set's name -> its grader, if its script also accepts aliases of the reference answer."""
F1_METRICS = ("f1", "precision", "recall")


def normalise(text: str) -> str:
    """Return the text in lower case without ASCII punctuation and articles: `normalize_answer` of SQuAD's script."""
    plain = "".join(character for character in text.lower() if character not in PUNCTUATION)
    return " ".join(ARTICLES.sub(" ", plain).split())


def drop_words(text: str) -> list[str]:
    """Return the words as in DROP's script: a hyphen separates words, and equal numbers become equal words."""
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


def f1_of_counts(n_shared: int, n_answer: int, n_reference: int) -> Grades:
    """Return F1, precision and recall from numbers of words."""
    if not n_shared:
        return dict.fromkeys(F1_METRICS, 0.0)
    precision, recall = n_shared / n_answer, n_shared / n_reference
    return {"f1": 2 * precision * recall / (precision + recall), "precision": precision, "recall": recall}


def word_f1(answer: str, reference: str) -> Grades:
    """Return F1, precision and recall over the words of two normalised texts, with their counts."""
    ours, theirs = answer.split(), reference.split()
    return f1_of_counts((Counter(ours) & Counter(theirs)).total(), len(ours), len(theirs))
