"""BLEU-1 of one answer: the share of its words that occur in the reference, with a penalty for short answers.

After Papineni et al. (BLEU, ACL 2002) with n-grams of one word, in lower case, tokenised as in the Penn Treebank. A
full stop is a token only at the end of a sentence. The usual implementation finds these ends with a trained model.
Here a full stop after a known abbreviation, an initial or a number ends no sentence; the tokens are nearly the same.
"""

from __future__ import annotations

import math
import re
from collections import Counter

SHORTENED = "mr mrs ms dr st jr sr prof vs gen col lt rep sen corp inc e.g i.e u.s u.k u.n a.m p.m d.c l.a j.k j.r j.j"
ABBREVIATIONS = frozenset(SHORTENED.split())
_SENTENCE_END = re.compile(r"[.?!][\"')\]]*\s+")
_PUNCTUATION = re.compile(
    r"`+|'(?=[a-ce-ln-ru-z]\b)|[?!;@#$%&*()\[\]{}<>\"\u201c\u201d\u00ab\u00bb]|--|\.{2,}|[:,](?!\d)"
    r"|(?<!\.)\.(?=['\")\]}> ]*$)"
)
_CLITIC = re.compile(r"(?<=[^' ])(n't|'(?:s|m|d|ll|re|ve)?)(?= |$)")


def bleu1(answer: str, reference: str) -> float:
    """Return the BLEU-1 of an answer, from 0 to 1."""
    tokens, reference_tokens = tokenise(answer), tokenise(reference)
    shared = (Counter(tokens) & Counter(reference_tokens)).total()
    if not shared:
        return 0.0
    return min(1.0, math.exp(1 - len(reference_tokens) / len(tokens))) * shared / len(tokens)


def tokenise(text: str) -> list[str]:
    """Return the lower-case Penn Treebank tokens of a text."""
    tokens: list[str] = []
    for sentence in split_sentences(text.lower()):
        spaced = _CLITIC.sub(r" \1", _PUNCTUATION.sub(r" \g<0> ", sentence).strip())
        tokens += re.sub(r"\b(can)(not)\b|\b(gon|wan)(na)\b|\b(got)(ta)\b", _split_groups, spaced).split()
    return tokens


def split_sentences(text: str) -> list[str]:
    """Return the sentences of a lower-case text."""
    sentences, start = [], 0
    for end in _SENTENCE_END.finditer(text):
        before = text[start : end.start()].split()
        word = before[-1].lstrip("(\"'") if before else ""
        continues = word in ABBREVIATIONS or re.fullmatch(r"[a-z]|[\d,.-]+", word)
        if text[end.start()] == "." and continues:
            continue
        sentences.append(text[start : end.end()].strip())
        start = end.end()
    return [*sentences, text[start:].strip()]


def _split_groups(match: re.Match[str]) -> str:
    return " ".join(part for part in match.groups() if part)
