"""Finds replies that have the reference in a clause about something else: "Moss won, Fly came third" for "Fly"."""

from __future__ import annotations

from agentlab.evals.scorers.families import Families, content_families
from agentlab.evals.scorers.tables import fold, pattern
from agentlab.knowledge.words import separate_words

MAX_WORDS = 18
"""A longer reply leads up to its answer, or explains it, in clauses of their own."""

_QUOTES = "\"'\xab\xbb\u201c\u201d\u201e\u300c"


def is_beside(reply: str, reference: str, question: str) -> bool:
    """Return True if one clause has words of the question alone, another words of the reference, and none has both."""
    plain = fold(pattern("echo").sub("", reply)).lower()
    texts = [clause for clause in pattern("clauses").split(plain) if clause and not pattern("condition").match(clause)]
    if len(texts) < 2 or _is_quoted(reference, reply):
        return False
    wanted = _words(reference)
    question_words = _words(question) - wanted
    clauses = [_words(clause) for clause in texts]
    later = next((n for n, text in enumerate(texts) if n and pattern("now").match(text)), None)
    if later is not None and wanted.isdisjoint(frozenset().union(*clauses[later:])):
        return not wanted.isdisjoint(frozenset().union(*clauses[:later]))
    if any(clause and clause <= wanted for clause in clauses):
        return False  # it is the answer alone
    if not _is_short(reply) or (len(clauses) > 2 and not wanted.isdisjoint(clauses[-1])):
        return False
    kinds = {(not question_words.isdisjoint(clause), not wanted.isdisjoint(clause)) for clause in clauses}
    return {(True, False), (False, True)} <= kinds and (True, True) not in kinds


def sets_apart(reply: str, reference: str) -> bool:
    """Return True for a short reply with a word such as "but" or "only", outside English, that the reference lacks."""
    ours, theirs = (pattern("contrast").search(text.lower()) for text in (reference, reply))
    return theirs is not None and ours is None and _is_short(reply)


def repeats(question: str, reply: str) -> bool:
    """Return True for a reply that has a content word of the question, so that the others are its answer."""
    return not _words(question).isdisjoint(_words(reply))


def _is_quoted(reference: str, reply: str) -> bool:
    core = fold(reference).strip(_QUOTES + " ?!.")
    before = fold(reply).split(core)[:-1] if core else []
    return any(text.rstrip()[-1:] in {*_QUOTES} for text in before)


def _is_short(text: str) -> bool:
    n_words = len(text.split())
    return n_words <= MAX_WORDS and (n_words > 2 or len(text) <= 3 * MAX_WORDS)  # Chinese writes no spaces


def _words(text: str) -> Families:
    spaced, others = separate_words(fold(text).lower())
    return frozenset(others) | (content_families(spaced) if spaced.strip() else frozenset())
