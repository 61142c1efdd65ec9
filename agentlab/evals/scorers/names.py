"""Compares names of people and places: a last name or initials are enough, another first or last name is another."""

from __future__ import annotations

import re
from itertools import pairwise

from agentlab.evals.scorers.families import FAMILY_CHARS, families
from agentlab.evals.scorers.tables import fold, pattern, rewrite


def score_name(reply: str, reference: str) -> float | None:
    """Return 1 for the initials of a name, 0 for another name (Captain Kirk for Captain Cook), otherwise None."""
    if not (pattern("full_name").fullmatch(reference) or reference.isupper()):
        return None
    for name, text in ((reference, reply), (reply, reference)):
        initials = ["".join(re.findall(r"\b[A-Z]", words)) for words in pattern("titled").findall(name)]
        if any(letters and re.search(rf"\b{letters}[A-Z]?\b", text.replace(".", "")) for letters in initials):
            return 1.0
    reply, reference = (rewrite("elided", fold(text)) for text in (reply, reference))
    words, others = (pattern("name_word").findall(text) for text in (reference, reply))
    if len(words) < 2:
        return None
    if _has_another_first(reply, words):
        return 0.0
    is_other = families(words[-1].lower()).isdisjoint(families(reply.lower()))
    has_more = not {*others[1:]} <= {*words}
    return float(not is_other) if is_other == has_more else None


def is_another_form(reply: str, reference: str) -> bool:
    """Return True if the reply has a name of the reference only in another form, as Victoria for Victor."""
    words = {word.lower().removesuffix("s") for word in re.findall(r"\w+", fold(reply))}
    names = {name.lower().removesuffix("s") for name in re.findall(r"\b[A-Z]\w{3,}", fold(reference))}
    return any(word[:FAMILY_CHARS] == name[:FAMILY_CHARS] for name in names - words for word in words)


def _has_another_first(reply: str, words: list[str]) -> bool:
    """Return True for a reply with the last name after a name that is not the first one, its short form or a title."""
    first, last = words[0], words[-1]
    named = re.findall(r"[\w'-]+", reply)
    pairs = {(before, word) for before, word in pairwise(named) if word == last or before == first}
    if (first, last) in pairs:
        return False
    others = {before for before, word in pairs if word == last and pattern("name_word").fullmatch(before)} - {*words}
    return any(
        not (first.startswith(before) or pattern("title").match(before) or (first, before) in pairs)
        for before in others
    )
