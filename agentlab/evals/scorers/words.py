"""Compares two texts word by word, by the rules of SQuAD.

Normalisation and F1 follow Rajpurkar et al., SQuAD (arXiv 1606.05250, section 6.1): lower case, no punctuation, no
articles. Other languages follow Lewis et al., MLQA (arXiv 1910.07475, section 5): Unicode defines punctuation, and each
Chinese or Japanese character is a token. Only English articles are removed.
"""

from __future__ import annotations

import functools
import itertools
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score

_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
"""Kana and Han: scripts without spaces."""
RIGHT = 0.5
"""Smallest score of a right answer."""
MAX_SENTENCE_WORDS = 25
"""A text with more words is a paragraph, and has some content of most references by chance."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def has_reference(turn: Turn) -> bool:
    return bool(turn.reference_answers) and not turn.unanswerable


def best_score(turn: Turn, similarity: Callable[[str], float | None]) -> Score:
    """Return the score of the nearest reference answer; of equally near ones the first counts.

    The score has no value if no reference is near and one of them is not decided (None).
    """
    values = [similarity(reference) for reference in turn.reference_answers]
    decided = [-1.0 if value is None else value for value in values]
    best = max(range(len(values)), key=decided.__getitem__)
    nearest = f"nearest reference: {turn.reference_answers[best][:120]}"
    if None in values and decided[best] < RIGHT:
        return Score(value=None, reason=f"not decided: its words leave it open; {nearest}")
    return Score(value=decided[best], reason=nearest)


@functools.cache
def _is_punctuation(character: str) -> bool:
    return character in string.punctuation or unicodedata.category(character).startswith("P")


@functools.lru_cache(maxsize=32)  # several scorers of a turn compare the same texts
def normalise(text: str) -> str:
    """Return the text in lower case without punctuation and articles, tokens separated by one space."""
    plain = "".join(itertools.filterfalse(_is_punctuation, unicodedata.normalize("NFC", text).lower()))
    return " ".join(_UNSPACED.sub(r" \1 ", _ARTICLES.sub(" ", plain)).split())


def f1(text: str, reference: str) -> float:
    """Return the harmonic mean of token precision and recall of two normalised texts; 1 if both are empty."""
    tokens, reference_tokens = text.split(), reference.split()
    if not tokens or not reference_tokens:
        return float(tokens == reference_tokens)
    shared = (Counter(tokens) & Counter(reference_tokens)).total()
    return 2 * shared / (len(tokens) + len(reference_tokens))


def is_paragraph(text: str) -> bool:
    return len(text.split()) > MAX_SENTENCE_WORDS
