"""Two texts compared word by word, by the rules of SQuAD.

Normalisation and F1 as in Rajpurkar et al., SQuAD (arXiv 1606.05250, section 6.1): lower case, no punctuation, no
articles. For other languages than English as in Lewis et al., MLQA (arXiv 1910.07475, section 5): punctuation is what
Unicode calls so, and where words are written without spaces, each Chinese or Japanese character is a token; the
articles are still the English ones.
"""

from __future__ import annotations

import functools
import re
import string
import unicodedata
from collections import Counter

from agentlab.data.conversations import Turn

_UNSPACED = re.compile(r"([\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff])")
"""Kana and Han."""
_ARTICLES = re.compile(r"\b(a|an|the)\b")


def has_reference(turn: Turn) -> bool:
    return bool(turn.reference_answers) and not turn.unanswerable


class _WithoutPunctuation(dict[int, int | None]):
    """A table for `str.translate`; a character is looked up in Unicode once."""

    def __missing__(self, code: int) -> int | None:
        character = chr(code)
        dropped = character in string.punctuation or unicodedata.category(character).startswith("P")
        self[code] = kept = None if dropped else code
        return kept


_PLAIN = _WithoutPunctuation()


@functools.lru_cache(maxsize=32)  # of one turn: several scorers ask about the same reply and references
def normalise(text: str) -> str:
    plain = unicodedata.normalize("NFC", text).lower().translate(_PLAIN)
    return " ".join(_UNSPACED.sub(r" \1 ", _ARTICLES.sub(" ", plain)).split())


def f1(said: str, reference: str) -> float:
    """Harmonic mean of token precision and recall of two normalised texts; two empty texts agree."""
    ours, theirs = said.split(), reference.split()
    if not ours or not theirs:
        return float(ours == theirs)
    shared = sum((Counter(ours) & Counter(theirs)).values())
    return 2 * shared / (len(ours) + len(theirs))
