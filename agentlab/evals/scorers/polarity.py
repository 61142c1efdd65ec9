"""Reads a yes or no, said in that word or another: "Dogs are welcome" to "Are dogs allowed?"."""

from __future__ import annotations

from agentlab.evals.scorers.tables import fold, pattern, rewrite
from agentlab.evals.scorers.values import read_values

MAX_BARE_WORDS = 6
"""With at most this many words in the reference, a reply may mean `yes` or `no` without either word."""
MAX_DENYING_WORDS = 4
"""A reply that denies something after so many words may mean yes: "feed her, milk takes no harm"."""


def wants_yes_or_no(reference: str, question: str, language: str) -> str:
    """Return `yes` or `no` if the reference is one, or denies what a question asks; otherwise ""."""
    asks = "," not in reference and pattern("yes_no").search(fold(question).lower())
    return _stated(reference, language) or ("no" if asks and _meant(reference, language) == "no" else "")


def score_yes_or_no(reply: str, reference: str, wanted: str, question: str, language: str) -> float | None:
    """Return 1 if the reply means `wanted`, the reference's, and has no other value, 0 for the opposite, else None."""
    own = _stated(reply, language)
    if not own and is_bare(reference) and not pattern("without").search(fold(question).lower()):
        own = _meant(reply, language)
        if own == "no" != wanted and _meant(" ".join(reply.split()[:MAX_DENYING_WORDS]), language) != "no":
            return None
    if not own:
        return None
    ours, theirs = (read_values(text, language)[1] for text in (reference, reply))
    alike = [value.equals(other) for value in ours for other in theirs if value.dimension == other.dimension]
    return float(own == wanted and (any(alike) or not alike))  # other words only explain the yes or no


def is_bare(reference: str, max_words: int = MAX_BARE_WORDS) -> bool:
    """Return True for a reference that has little more than a yes or no."""
    return bool(pattern("bare").match(fold(reference).lower())) and len(reference.split()) <= max_words


def without_in_the(text: str, language: str) -> str:
    """Return a Portuguese text without "no", which is "in the" there and a denial in other languages."""
    return pattern("in_the").sub(" ", text) if language == "pt" else text


def _tables(language: str) -> str:
    return "english_" * (language == "en")  # an English text has no Latin words of other languages


def _stated(text: str, language: str) -> str:
    """Return `yes` or `no` if exactly one of them is among the first three words, otherwise ""."""
    if pattern("opening_yes").match(fold(text).lower()):
        return "yes"
    plain = without_in_the(fold(text).lower(), language)
    names = [name for name in ("yes", "no") if pattern(f"{_tables(language)}plain_{name}").match(plain)]
    return names[0] if len(names) == 1 else ""


def _meant(reply: str, language: str) -> str:
    """Return `yes` or `no` if the first sentence of a reply means that in other words, otherwise ""."""
    sentence = rewrite("bounds", fold(pattern("sentence_end").split(reply, maxsplit=1)[0]).lower())
    sentence = without_in_the(sentence, language)
    meanings = {"allowing": "yes", "without": "", "negative": "no", "affirmative": "yes"}
    for name, meaning in meanings.items():
        if pattern((_tables(language) if meaning else "") + name).search(sentence):
            return meaning
    return ""
