"""Detects messages that need no search, such as thanks or a greeting, by their words and without a model call.

is_small_talk("Thanks, that helps a lot!")             # True
is_small_talk("Thanks! And how wide is the goal?")     # False: it asks
is_small_talk("The goal of an under-15 team")          # False: it names something

An unclear message counts as a question: a needless search costs little, but a question without its passages gets a
wrong answer. `evals/bench/labels.py` measures how often the decision is right.
"""

from __future__ import annotations

import re
from pathlib import Path

from agentlab.core.strict_json import load_own_yaml

MAX_OTHER_WORDS = 6
"""Maximum number of other words in a courteous message; a longer message counts as a question."""

_WORDS = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_COURTESY = frozenset(" ".join(_WORDS["spaced"]).split())
_COURTESY_UNSPACED = re.compile("|".join(_WORDS["unspaced"]))
_ASKS = re.compile(_WORDS["asks"], re.IGNORECASE)
_EDGES = ".,!…:()'\"*¡¿"
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def has_question(message: str) -> bool:
    """Return True for a question mark of any script, or for English words that ask or request."""
    return _ASKS.search(message) is not None


def is_small_talk(message: str) -> bool:
    """Return True for courtesy without a question, in about thirty languages, and for a message without letters."""
    if not any(character.isalnum() for character in message):
        return True
    if has_question(message):
        return False
    if _UNSPACED.search(message):
        rest = _COURTESY_UNSPACED.sub("", message)
        return rest != message and len(_UNSPACED.findall(rest)) <= MAX_OTHER_WORDS
    words = [word for word in (part.strip(_EDGES) for part in message.lower().split()) if word]
    courteous = [word for word in words if word in _COURTESY]
    return bool(courteous) and not re.search(r"\d", message) and len(words) - len(courteous) <= MAX_OTHER_WORDS
