"""Finds messages that need no plan, and canvases that contradict the chat, by wording and without a model call.

needs_plan("My cat is called Fenchurch and I live in Ulm.")     # False
needs_plan("My train is late, find me another one.")            # True

A missing plan costs an answer, and a needless plan only time. So an unclear message needs a plan. Words of ten
languages (`plain.yaml`) mark statements and wishes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from agentlab.core.strict_json import load_own_yaml
from agentlab.knowledge.intent import LANGUAGES, ends_in_question, read_intent
from agentlab.knowledge.refusal import declines

_SENTENCE = re.compile(r"(?:[^.!\n\uff01\u3002]|[.!](?=\S))+")
_CLAUSE = re.compile(r"[,;:\u060c\uff0c\u3001]|\s[-\u2013\u2014]\s")
_PATH_OR_ADDRESS = re.compile(r"\w/\w|\w\.[a-z]{2,4}\b|://")
_AMOUNT = re.compile(r"(\d+(?:[.,:]\d+)*)\s*([^\W\d_]+)")
_WORD = re.compile(r"[^\W_]+(?:['\u2019-][^\W_]+)*")
_WORDS = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_WISHES = {wish for words in _WORDS.values() for wish in words["wishes"].split()}
_THANKS = re.compile("|".join(each.compile(_WORDS[each.code]["thanks"]).pattern for each in LANGUAGES))


def needs_plan(message: str, last_reply: str = "") -> bool:
    """Return False for courtesy and plain statements; if the agent's last reply ends in a question, only for thanks."""
    asks = read_intent(message) == "asks" or ends_in_question(last_reply) or _PATH_OR_ADDRESS.search(message)
    states = all(map(_states, filter(str.strip, _SENTENCE.findall(message.casefold()))))
    return not (_only_thanks(message) or (states and not asks))


def contradiction(chat: str, canvas: str) -> str:
    """Return the contradiction between the parts of a reply: one declines, or numbers of a unit differ; else ""."""
    if declines(chat) != declines(canvas):
        return "one of chat and canvas declines"
    in_chat, in_canvas = (set(_AMOUNT.findall(text)) for text in (chat, canvas))
    of_chat, of_canvas, agreed = ({unit for _, unit in each} for each in (in_chat, in_canvas, in_chat & in_canvas))
    return "chat and canvas name different numbers of one unit" if (of_chat & of_canvas) - agreed else ""


def _only_thanks(message: str) -> bool:
    """Return True for thanks, a greeting or a goodbye, which answer no question; "ok" or "yes" may answer one."""
    text = " ".join(_WORD.findall(message.casefold()))
    rest = _THANKS.sub(" ", text)
    is_bare = (each.without_courtesy(rest) == rest and not each.has_content(rest) for each in LANGUAGES)
    return rest != text and any(is_bare)


def _states(sentence: str) -> bool:
    """Return True for courtesy, and for a sentence that is a statement in one of the languages."""
    states = read_intent(sentence) == "greets" or any(_states_in(sentence, language) for language in LANGUAGES)
    return states and _WISHES.isdisjoint(_WORD.findall(sentence))


def _states_in(sentence: str, language: Any) -> bool:
    subjects, wishes = (tuple(_WORDS[language.code][kind].split()) for kind in ("subjects", "wishes"))
    if language.code in ("zh", "ja"):
        return sentence.strip().startswith(subjects) and not any(wish in sentence for wish in wishes)
    rest = language.without_courtesy(sentence)
    clauses = [words for clause in _CLAUSE.split(rest) if (words := _WORD.findall(clause))]
    first, *later = [words[0] for words in clauses] or [""]
    # A later clause that begins with an infrequent word may be a request.
    return first in subjects and all(word in subjects or word in language.frequent for word in later)
