"""Tells what a user says to the memory itself from what the user says to the agent."""

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
"""Characters."""


def parse_command(text: str) -> Operation | None:
    """The operation that the user orders from the memory itself; None where the user speaks to the agent.

    A verb alone or with what it is to be done to, or an operation, with or without a verb for doing it: "consolidate",
    "could you reflect on the memory?", "run memory maintenance"; not "evaluate the memory needs of quicksort".
    """
    if len(text) > MAX_COMMAND_CHARS:
        return None
    words = re.findall(r"[A-Z]?[^\W_A-Z]+|[A-Z]+", text)
    words = [word.lower() for word in words]
    polite = next((at for at, word in enumerate(words) if word not in WORDS["polite"]), len(words))
    if polite == len(words) or ("?" in text and not polite):
        return None
    first, rest = words[polite], words[polite + 1 :]
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
