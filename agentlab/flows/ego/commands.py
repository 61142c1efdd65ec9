"""Detects commands to the memory among the user's messages."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Literal

from agentlab.flows.text_files import read_texts

Operation = Literal["maintenance", "analysis"]
WORDS = {
    name: frozenset(words.split()) for name, words in read_texts(Path(__file__).with_name("commands.yaml")).items()
}
MAX_COMMAND_CHARS = 200
"""Maximum length of a command in characters."""


def parse_command(text: str) -> Operation | None:
    """Return the operation of a command to the memory; None for any other message.

    A command is a verb with or without its object, or the name of an operation with or without a verb: "consolidate",
    "could you reflect on the memory?", "run memory maintenance"; but not "evaluate the memory needs of quicksort".
    """
    if len(text) > MAX_COMMAND_CHARS:
        return None
    words = [word.lower() for word in re.findall(r"[A-Z]?[^\W_A-Z]+|[A-Z]+", text)]
    n_polite = next((index for index, word in enumerate(words) if word not in WORDS["polite"]), len(words))
    if n_polite == len(words) or ("?" in text and not n_polite):
        return None
    first, rest = words[n_polite], words[n_polite + 1 :]
    maintenance, analysis, objects = WORDS["maintenance"], WORDS["analysis"], WORDS["objects"]
    if not set(rest) <= WORDS["beside"] | objects | maintenance | analysis:
        return None
    operations = [word for word in (first, *rest) if word in maintenance | analysis]
    if first in WORDS["maintaining"] | WORDS["analysing"]:
        if objects.isdisjoint(rest) and (rest or first not in WORDS["alone"]):
            return None
        return "maintenance" if first in WORDS["maintaining"] else "analysis"
    is_named = first in objects and bool(rest) and rest[0] in maintenance | analysis
    is_done = first in WORDS["doing"] and not objects.isdisjoint(rest)
    if not operations or not (is_named or is_done):
        return None
    return "analysis" if operations[-1] in analysis else "maintenance"
