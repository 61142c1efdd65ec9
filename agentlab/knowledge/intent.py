"""Classifies a message by wording, without a model call: it states a fact, only asks, or only greets.

read_intent("My sister moved to Bergen.")         # "tells"
read_intent("What is the time at the moment?")    # "asks"
read_intent("谢谢")                                 # "greets"

A lost fact and a missing search cost more than needless ones, so an unclear message counts as `tells`. Phrases of ten
languages (`intent.yaml`) mark courtesy and questions. In other languages every message with a letter or digit is
`tells`. The rules remove courtesy and read the rest. A sentence with a question mark is `tells` if a clause of it is
about the user, or if it names the user's own health or family. A verb without a subject (`puedo`) asks only beside a
question mark.
`evals/bench/labels.py` measures the decision by language.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from agentlab.core.strict_json import load_own_yaml
from agentlab.knowledge.words import EXCHANGED

Intent = Literal["tells", "asks", "greets"]
MARKS = "?\uff1f\u061f\u037e\u055e"
"""Question marks of all scripts."""
_SENTENCE = re.compile(rf"(?:[^.!{MARKS}\n\uff01\u3002]|[.!](?=\S))+[.!{MARKS}\uff01\u3002]*")
_CLAUSE = re.compile(r"[,;:\u060c\uff0c\u3001\uff1b\uff1a]|\s[-\u2013\u2014]\s|[\u2013\u2014]")
_EDGES = " ,:¿¡\"'()*-"
_SELF_FIRST = ("en", "de", "ar")
"""Languages in which a question does not begin with its subject."""


def read_intent(message: str) -> Intent:
    """Return `tells` if a sentence states a fact or is unclear, else `asks` if one asks, else `greets`."""
    text = _THANKS.sub("", _LAUGHTER.sub(" ", _normalise(message)).strip())
    sentences = [sentence.strip() for sentence in _SENTENCE.findall(text) if any(map(str.isalnum, sentence))]
    if not sentences:
        return "greets"
    intents = [_read_sentence(sentence) for sentence in sentences]
    if "tells" in intents or {*intents} == {"nothing"}:
        return "tells"
    return "asks" if "asks" in intents else "greets"


def names_a_change(message: str) -> bool:
    """Return True if a message names a change in one of the languages, as in `moved to Friday` or `no longer`."""
    text = _normalise(message)
    return any(changes.search(text) for changes in _CHANGES)


def ends_in_question(reply: str) -> bool:
    """Return True if a reply ends in a question, so that the message after it answers and is never mere courtesy."""
    return reply.rstrip(" \t\n\"'*_)\u201d\u2019\u00bb").endswith(tuple(MARKS))


def _read_sentence(sentence: str) -> Intent | Literal["nothing"]:
    """Return the intent of one sentence; `nothing` if it has only words that carry nothing alone."""
    if any(language.tells.search(_OWN_QUESTIONS.sub(" ", sentence)) for language in LANGUAGES):
        return "tells"
    if _OTHER_LETTERS.search(sentence):
        return "tells"
    for language in LANGUAGES:
        rest = language.without_courtesy(sentence)
        if not language.has_content(rest):
            return "nothing" if rest == sentence else "greets"
    if any(mark in sentence for mark in MARKS):
        likely = _likely_languages(sentence)
    else:
        likely = [language for language in LANGUAGES if language.asks_by_words(sentence)]
    return "asks" if likely and not any(language.tells_beside(sentence) for language in likely) else "tells"


def _likely_languages(sentence: str) -> list[_Language]:
    """Return the languages with the most frequent words in the sentence; [] if no language has one."""
    counts = [language.count(sentence, language.frequent) for language in LANGUAGES]
    return [language for language, count in zip(LANGUAGES, counts, strict=True) if count and count == max(counts)]


class _Language:
    def __init__(self, code: str, texts: dict[str, str]) -> None:
        def phrases(key: str) -> list[str]:
            return [" ".join(phrase.split()) for phrase in texts.get(key, "").split("|") if phrase.strip()]

        self.code = code
        self._is_spaced = code not in ("zh", "ja")
        self._courtesy = self.compile([*phrases("courtesy"), *map(_without_accents, phrases("courtesy"))])
        self._light = frozenset({*texts["light"].split(), *map(_without_accents, texts["light"].split())})
        self.frequent = frozenset(texts["function"].split())
        self._self = frozenset(texts["self"].split())
        blank = " +" if self._is_spaced and code != "ar" else " *"  # Arabic writes "and" and its next word as one
        joins = rf"(?:(?:{'|'.join(texts['joins'].split())}){blank})+"
        self._lead = re.compile(f"{self._courtesy.pattern}|{joins}")
        openers, marked, regex = phrases("openers"), phrases("marked_openers"), texts.get("openers_regex", "")
        self._openers = self.compile(openers, regex), self.compile([*openers, *marked], regex)
        self._situations = self.compile(phrases("situations"))
        self._asks = self.compile(phrases("asks"))
        self._conditions = self.compile(phrases("conditions"))
        self.tells = self.compile(phrases("remember"), texts.get("tells_regex", ""))
        """Requests to remember, and sentences that tell in any form: those about the user's own health or family."""

    def without_courtesy(self, sentence: str) -> str:
        return self._courtesy.sub(" ", sentence)

    def has_content(self, rest: str) -> bool:
        """Return True if the rest of a sentence has a word that is not light."""
        if self._is_spaced:
            return any(word not in self._light for word in _words(rest))
        return any(map(str.isalnum, re.sub("|".join(sorted(self._light, key=len, reverse=True)), "", rest)))

    def count(self, text: str, words: frozenset[str]) -> int:
        return sum(word in words for word in _words(text)) if self._is_spaced else sum(word in text for word in words)

    def asks_by_words(self, text: str, *, has_mark: bool = False) -> bool:
        """Return True if `text` begins as a question or request does, or contains a phrase that asks."""
        plain = text.strip(_EDGES)
        while not self._openers[has_mark].match(plain):
            if not (lead := self._lead.match(plain)):
                return self._asks.search(text) is not None
            plain = plain[lead.end() :].strip(_EDGES)
        return True

    def tells_beside(self, sentence: str) -> bool:
        """Return True if a sentence that asks has a clause about the user that does not ask."""
        *others, last = (clause.strip() for clause in _CLAUSE.split(sentence) if any(map(str.isalnum, clause)))
        if self.code in _SELF_FIRST and _words(last)[0] in self._self and not self.asks_by_words(last):
            return True
        if others and not any(mark in sentence for mark in MARKS):
            others.append(last)
        return any(self._is_about_the_user(each) and not self.asks_by_words(each, has_mark=True) for each in others)

    def _is_about_the_user(self, clause: str) -> bool:
        if (self._situations.match if self._is_spaced else self._situations.search)(self.without_courtesy(clause)):
            return True
        return self.count(clause, self._self) > 0 and not self._conditions.match(clause)

    def compile(self, phrases: Iterable[str], more: str = "") -> re.Pattern[str]:
        """Return a pattern of whole phrases, longest first; a phrase may end in `$`, the end of the sentence."""
        longest_first = map(re.escape, sorted(phrases, key=len, reverse=True))
        whole = "|".join(longest_first).replace(r"\$", r"(?=\W*$)") or "(?!)"
        pattern = rf"(?<!\w)(?:{whole})(?!\w)" if self._is_spaced else f"(?:{whole})"
        return re.compile(f"{pattern}|{more}" if more else pattern)


def _words(text: str) -> list[str]:
    return [word.strip("'") for word in re.findall(r"[^\W_]+(?:['-][^\W_]+)*", text) if word.strip("'")]


def _normalise(text: str) -> str:
    return re.sub("[\u064b-\u0652\u0640]", "", unicodedata.normalize("NFKC", text).casefold().translate(EXCHANGED))


def _without_accents(text: str) -> str:
    return "".join(c for c in unicodedata.normalize("NFD", text) if unicodedata.category(c) != "Mn")


_TEXTS = load_own_yaml(_normalise(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8")))
_SHARED = _TEXTS.pop("shared")
_OTHER_LETTERS, _LAUGHTER = re.compile(_SHARED["other_letters"]), re.compile(_SHARED["laughter"])
LANGUAGES = tuple(_Language(code, texts) for code, texts in _TEXTS.items())
_CHANGES = [each.compile(map(str.strip, _TEXTS[each.code]["changes"].split("|"))) for each in LANGUAGES]
_OWN_QUESTIONS = re.compile("|".join(texts["own_questions"] for texts in _TEXTS.values() if "own_questions" in texts))
"""Questions for the user's own health or family, as in "What am I allergic to?", which tell nothing of it."""
_SELF = "|".join(word for texts in _TEXTS.values() for word in texts["self"].split())
_THANKS = re.compile(_SHARED["thanks"].replace("<word>", rf"(?!(?:{_SELF})\b)[^\W\d_]+"))
