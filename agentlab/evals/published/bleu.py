"""BLEU-1 of one answer: the share of its words that the reference has, with the penalty for answers that are short.

After Papineni et al. (BLEU, ACL 2002) with n-grams of one word, over words as the Penn Treebank parts them, in lower
case. Where a sentence ends decides whether a full stop is a word. The tool that the field uses has that from a trained
model; here a full stop after a known abbreviation, an initial, or a number ends no sentence, which is nearly the same.
"""

from __future__ import annotations

import math
import re
from collections import Counter

KNOWN = "mr mrs ms dr st jr sr prof vs gen col lt rep sen corp inc e.g i.e u.s u.k u.n a.m p.m d.c l.a j.k j.r j.j"
ABBREVIATIONS = frozenset(KNOWN.split())
_END = re.compile(r"[.?!][\"')\]]*\s+")
_APART = re.compile(
    r"`+|'(?=[a-ce-ln-ru-z]\b)|[?!;@#$%&*()\[\]{}<>\"\u201c\u201d\u00ab\u00bb]|--|\.{2,}|[:,](?!\d)"
    r"|(?<!\.)\.(?=['\")\]}> ]*$)"
)
_CLITIC = re.compile(r"(?<=[^' ])(n't|'(?:s|m|d|ll|re|ve)?)(?= |$)")


def bleu1(answer: str, reference: str) -> float:
    ours, theirs = words(answer), words(reference)
    shared = (Counter(ours) & Counter(theirs)).total()
    if not shared:
        return 0.0
    return min(1.0, math.exp(1 - len(theirs) / len(ours))) * shared / len(ours)


def words(text: str) -> list[str]:
    found: list[str] = []
    for sentence in sentences(text.lower()):
        apart = _CLITIC.sub(r" \1", _APART.sub(r" \g<0> ", sentence).strip())
        found += re.sub(r"\b(can)(not)\b|\b(gon|wan)(na)\b|\b(got)(ta)\b", _parted, apart).split()
    return found


def sentences(text: str) -> list[str]:
    """Of text in lower case."""
    found, start = [], 0
    for end in _END.finditer(text):
        before = text[start : end.start()].split()
        word = before[-1].lstrip("(\"'") if before else ""
        goes_on = word in ABBREVIATIONS or re.fullmatch(r"[a-z]|[\d,.-]+", word)
        if text[end.start()] == "." and goes_on:
            continue
        found.append(text[start : end.end()].strip())
        start = end.end()
    return [*found, text[start:].strip()]


def _parted(match: re.Match[str]) -> str:
    return " ".join(part for part in match.groups() if part)
