"""Longest common subsequences of words: what ROUGE-L and the published graders stand on."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

_WORD = re.compile(r"[a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """Lower-case runs of a to z and 0 to 9, as the tokeniser of the `rouge_score` package has them without stemming."""
    return _WORD.findall(text.lower())


def rouge_l(said: str, reference: str) -> float:
    """F1 of the longest common subsequence of words (Lin, ROUGE, 2004); 0 where a text has no words."""
    ours, theirs = rouge_words(said), rouge_words(reference)
    shared = longest_common(ours, theirs)
    return 2 * shared / (len(ours) + len(theirs)) if shared else 0.0


def longest_common(one: Sequence[str], other: Sequence[str]) -> int:
    """The length of the longest common subsequence, a row of its table at a time as the bits of one number.

    After Hyyro, Bit-Parallel LCS-length Computation Revisited (2004).
    """
    places: defaultdict[str, int] = defaultdict(int)
    for place, word in enumerate(one):
        places[word] |= 1 << place
    every = (1 << len(one)) - 1
    row = every
    for word in other:
        hit = row & places.get(word, 0)
        row = (row + hit | row - hit) & every
    return len(one) - row.bit_count()
