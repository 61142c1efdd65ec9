"""Tells what a user says to the memory itself from what the user says to the agent."""

from __future__ import annotations

import re


def _plain_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


POLITE = frozenset(_plain_words("please kindly now then ok okay just could can would will you"))
VERBS = frozenset(_plain_words("consolidate reflect maintain prune evaluate analyze analyse"))
OBJECTS = frozenset(_plain_words("memory memories feedback consolidation"))
OPERATIONS = frozenset(_plain_words("consolidation feedback analysis maintenance evaluation pruning reflection"))
BESIDE = frozenset(
    _plain_words(
        "the your my our all of on in from about at what is that this long short term recent last latest stored session"
        " conversation results insights interactions entries day week month today yesterday now again please"
    )
)
LONGEST_COMMAND = 200
"""Characters."""


def is_command(text: str) -> bool:
    """Whether the user speaks to the memory itself: a verb alone or with what it is to be done to, or an operation.

    "consolidate", "could you reflect on the memory?", "memory analysis"; not "evaluate the memory needs of quicksort".
    """
    if len(text) > LONGEST_COMMAND:
        return False
    words = _plain_words(text)
    polite = next((at for at, word in enumerate(words) if word not in POLITE), len(words))
    if polite == len(words) or ("?" in text and not polite):
        return False
    first, rest = words[polite], words[polite + 1 :]
    if not set(rest) <= BESIDE | OBJECTS | OPERATIONS:
        return False
    if first in VERBS:
        return not rest or not OBJECTS.isdisjoint(rest)
    return first in OBJECTS and bool(rest) and rest[0] in OPERATIONS
