"""Tells what a user says to the memory itself from what the user says to the agent."""

from __future__ import annotations

import re
from pathlib import Path

from agentlab.flows.text_files import read_texts

WORDS = {
    name: frozenset(words.split()) for name, words in read_texts(Path(__file__).with_name("commands.yaml")).items()
}
LONGEST_COMMAND = 200
"""Characters."""


def is_command(text: str) -> bool:
    """Whether the user speaks to the memory itself: a verb alone or with what it is to be done to, or an operation.

    "consolidate", "could you reflect on the memory?", "memory analysis"; not "evaluate the memory needs of quicksort".
    """
    if len(text) > LONGEST_COMMAND:
        return False
    words = re.findall(r"\w+", text.lower())
    polite = next((at for at, word in enumerate(words) if word not in WORDS["polite"]), len(words))
    if polite == len(words) or ("?" in text and not polite):
        return False
    first, rest = words[polite], words[polite + 1 :]
    if not set(rest) <= WORDS["beside"] | WORDS["objects"] | WORDS["operations"]:
        return False
    if first in WORDS["verbs"]:
        return not rest or not WORDS["objects"].isdisjoint(rest)
    return first in WORDS["objects"] and bool(rest) and rest[0] in WORDS["operations"]
