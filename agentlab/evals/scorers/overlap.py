"""Longest common subsequences of words, for ROUGE-L and the published graders."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence

_WORD = re.compile(r"[a-z0-9]+")


def rouge_words(text: str) -> list[str]:
    """Return the lower-case runs of a-z and 0-9, like the tokeniser of the `rouge_score` package without stemming."""
    return _WORD.findall(text.lower())


def rouge_l(text: str, reference: str) -> float:
    """Return the F1 of the longest common subsequence of words (Lin, ROUGE, 2004); 0 if a text has no words."""
    words, reference_words = rouge_words(text), rouge_words(reference)
    shared = lcs_length(words, reference_words)
    return 2 * shared / (len(words) + len(reference_words)) if shared else 0.0


def lcs_length(words: Sequence[str], others: Sequence[str]) -> int:
    """Return the length of the longest common subsequence; each row of its table is the bits of one number.

    After Hyyro, Bit-Parallel LCS-length Computation Revisited (2004).
    """
    positions: defaultdict[str, int] = defaultdict(int)
    for position, word in enumerate(words):
        positions[word] |= 1 << position
    mask = (1 << len(words)) - 1
    row = mask
    for word in others:
        hit = row & positions.get(word, 0)
        row = (row + hit | row - hit) & mask
    return len(words) - row.bit_count()
