"""Word families of a text, by which answers in other words than the reference are compared: refund and refundable."""

from __future__ import annotations

import functools
from collections.abc import Iterable

from agentlab.evals.scorers.stems import NEGATING, signed_stems, stem
from agentlab.evals.scorers.tables import WORDS, rewrite

FAMILY_CHARS = 5
"""Characters that related words share at their beginning."""
Families = frozenset[str]


def families(text: str) -> Families:
    return signed_families(text)[0]


@functools.lru_cache(maxsize=256)  # a turn reads its question, reply and reference several times
def signed_families(text: str) -> tuple[Families, Families]:
    """Return the families of a text's words: plain ones, and those right after a negation."""
    plain, denied = signed_stems(rewrite("elided", text))
    return _beginnings(plain), _beginnings(denied)


def content_families(text: str) -> Families:
    """Return the families of a text without function words of ten languages; of a text that has no others, all."""
    words = families(text)
    return words - FILLERS or words


def _beginnings(stems: Iterable[str]) -> Families:
    return frozenset(stem if any(map(str.isdigit, stem)) else stem[:FAMILY_CHARS] for stem in stems)


NEGATIONS = _beginnings(map(stem, NEGATING))
FILLERS = _beginnings(WORDS["fillers"])
