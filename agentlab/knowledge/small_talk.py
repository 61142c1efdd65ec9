"""Tells a message that wants nothing looked up, such as thanks or a greeting, from one that may. No model is asked.

is_small_talk("Thanks, that helps a lot!")             # True
is_small_talk("Thanks! And how wide is the goal?")     # False: it asks
is_small_talk("The goal of an under-15 team")          # False: it names something

In doubt a message wants something: a search in vain costs little, a question without its passages is answered wrong.
How often it is right is measured by `evals/bench/retrieval_decision.py`.
"""

from __future__ import annotations

import re
from pathlib import Path

import yaml

MAX_OTHER_WORDS = 6
"""Words beside those of courtesy, from which on a message says something of its own."""

_WORDS = yaml.safe_load(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_COURTESY = frozenset(" ".join(_WORDS["spaced"]).split())
_COURTESY_UNSPACED = re.compile("|".join(_WORDS["unspaced"]))
_ASKS = re.compile(
    r"[?\uff1f\u061f\u037e\u055e]|^(?:\W*(?:and|but|so|then|ok|okay|please|well)\b)*\W*"
    r"(?:who|what|when|where|which|why|how|whose|is|are|was"
    r"|were|do|does|did|can|could|may|might|must|shall|should|will|would|has|have|had|tell|explain|show|give|list|find"
    r"|describe|compare|summari[sz]e|say|name|search|look)\b"
    r"|\b(?:please|tell me|show me|explain|what about|how about|sum up|summari[sz]e|remind me|question about)\b",
    re.IGNORECASE,
)
_EDGES = ".,!…:()'\"*¡¿"
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def has_question(message: str) -> bool:
    """True where it has a question mark of any script, or words by which English asks and requests."""
    return _ASKS.search(message) is not None


def is_small_talk(message: str) -> bool:
    """True for courtesy that asks for nothing, in about thirty languages, and for a message without any letter."""
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
