"""Tells what a user says to the memory itself from what the user says to the agent."""

from __future__ import annotations

import re

POLITE = frozenset("please kindly now then ok okay just could can would will you".split())
VERBS = frozenset("consolidate reflect maintain prune evaluate analyze analyse".split())
OBJECTS = frozenset("memory memories feedback consolidation".split())
OPERATIONS = frozenset("consolidation feedback analysis maintenance evaluation pruning reflection".split())
BESIDE = frozenset(
    "the your my our all of on in from about at what is that this long short term recent last latest stored session"
    " conversation results insights interactions entries day week month today yesterday now again please".split()
)
LONGEST_COMMAND = 200
"""Characters."""


def is_command(text: str) -> bool:
    """Whether the user speaks to the memory itself: a verb alone or with what it is to be done to, or an operation.

    "consolidate", "could you reflect on the memory?", "memory analysis"; not "evaluate the memory needs of quicksort".
    """
    if len(text) > LONGEST_COMMAND:
        return False
    words = re.findall(r"\w+", text.lower())
    polite = next((at for at, word in enumerate(words) if word not in POLITE), len(words))
    if polite == len(words) or ("?" in text and not polite):
        return False
    first, rest = words[polite], words[polite + 1 :]
    if not BESIDE | OBJECTS | OPERATIONS >= set(rest):
        return False
    if first in VERBS:
        return not rest or not OBJECTS.isdisjoint(rest)
    return first in OBJECTS and bool(rest) and rest[0] in OPERATIONS
