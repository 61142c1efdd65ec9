"""Compares lists of items in any order: "bread and milk", "a, b, c"."""

from __future__ import annotations

import re

from agentlab.evals.scorers.families import FAMILY_CHARS, content_families, families
from agentlab.evals.scorers.tables import fold, has_any, pattern, rewrite
from agentlab.evals.scorers.values import read_values
from agentlab.evals.scorers.words import is_paragraph

MAX_ITEM_WORDS = 3
"""A part of a reference with at most this many content words is an item of a list."""

RESTRICTIONS = ("excluding", "restricts")
"""Patterns of which a text that leaves out an item has one."""


def score_list(reply: str, reference: str, language: str) -> float | None:
    """Return 1 for all items of a reference that is a list, 0 if the reply lacks or leaves out one.

    None means that the reference is no list, or that the reply has none or a word of each.
    """
    ours, theirs = (fold(rewrite("denied", text)).lower() for text in (reference, reply))
    items = pattern("item").split(ours)
    is_list = len(items) > 2 or (len(items) == 2 and pattern("listing").search(ours))
    if not is_list or re.search(r"\d", ours):
        return None
    parts = [content_families(item) for item in items]
    if not all(0 < len(part) <= MAX_ITEM_WORDS for part in parts):
        return None
    if any(value.weight > 1 for value in read_values(ours, language)[1]):
        return None
    words = families(theirs)
    n_whole = sum(part <= words or (not ours.isascii() and "".join(part) in theirs) for part in parts)
    is_near = n_whole < len(parts) and ours.isascii() and not any(part.isdisjoint(words) for part in parts)
    if not n_whole or is_near or is_paragraph(reply):
        return None
    named = frozenset().union(*parts)
    clauses = pattern("clauses").split(fold(reply).lower())
    leaves_out = any(has_any(clause, *RESTRICTIONS) and not named.isdisjoint(families(clause)) for clause in clauses)
    return float(n_whole == len(parts) and (not leaves_out or has_any(ours, *RESTRICTIONS)))


def is_in_order(reply: str, reference: str) -> bool:
    """Return True if the first word of each item stands in the reply after that of the item before."""
    reply, reference = (fold(text).lower() for text in (reply, reference))
    places = [reply.find(item.strip()[:FAMILY_CHARS]) for item in pattern("item").split(reference)]
    return places == sorted(places)
