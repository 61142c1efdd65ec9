"""Words of ten languages and patterns (`tables.yaml`, `units.yaml`) by which `values` and `correctness` read a text.

fold("\uff11\uff12 \ufb01les")      # "12 files": what looks alike is written alike
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from agentlab.core.strict_json import load_own_yaml

_TABLES = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_PATTERNS = _TABLES.pop("patterns")


def _by_word(table: dict[Any, str]) -> dict[str, Any]:
    pairs = ((word, key) for key, words in reversed(table.items()) for word in fold(words).lower().split())
    return {word.replace("_", " "): key for word, key in pairs}


@functools.cache
def _compiled(source: str) -> re.Pattern[str]:
    while named := re.search(r"<<(\w+)>>", source):
        words = sorted(WORDS.get(named[1], ()), key=len, reverse=True)
        any_of = "|".join(re.escape(word).replace("\\ ", "\\s") for word in words)
        source = source.replace(named[0], _PATTERNS["parts"].get(named[1], any_of))
    return re.compile(source, re.VERBOSE)


def pattern(name: str) -> re.Pattern[str]:
    """Return the pattern of that name, which is compiled when first used."""
    return _compiled(_PATTERNS["patterns"][name])


def has_any(text: str, *names: str) -> bool:
    """Return True for a text in which one of the patterns of these names is found."""
    return any(pattern(name).search(text) for name in names)


@functools.lru_cache(maxsize=256)  # a turn reads its reply and references in several ways
def rewrite(name: str, text: str) -> str:
    """Return the text after the rewrites of that name."""
    for source, replacement, needed in _rewrites(name):
        if needed in text:
            text = source.sub(replacement, text)
    return text


@functools.cache
def _rewrites(name: str) -> list[tuple[re.Pattern[str], Callable[[re.Match[str]], str], str]]:
    """Return patterns with functions, as a template would be read again for each text, and a text that each needs."""
    return [
        (_compiled(source), functools.partial(re.Match.expand, template=replacement), needed[0] if needed else "")
        for source, replacement, *needed in _PATTERNS[name]
    ]


@functools.lru_cache(maxsize=32)  # one turn compares a reply with several references
def fold(text: str) -> str:
    """Return the text with one form for characters of equal meaning, without accents; letters keep their case."""
    return without_accents(with_plain_signs(text))


def with_plain_signs(text: str) -> str:
    """Return the text with one form for digits, signs and letters that look alike; accents stay."""
    if text.isascii():
        return text
    text = text.encode("utf-8", "replace").decode()  # half a surrogate pair is no character
    text = unicodedata.normalize("NFKC", rewrite("looks", text))
    return re.sub(r"\d", lambda digit: str(unicodedata.decimal(digit[0])), text)


def without_accents(text: str) -> str:
    return (
        text if text.isascii() else unicodedata.normalize("NFC", rewrite("marks", unicodedata.normalize("NFD", text)))
    )


LANGUAGES = {name: frozenset(fold(words).split()) for name, words in _TABLES.pop("languages").items()}
"""Languages of `text2num`, with frequent words of each."""
WORDS: dict[str, dict[str, Any]] = {name: _by_word(table) for name, table in _TABLES.items()}
"""Table -> word -> key; of `units`, each dimension and size in the first unit of the dimension that the word means."""
_SIZES = load_own_yaml(Path(__file__).with_name("units.yaml").read_text(encoding="utf-8"))
CURRENCIES = frozenset(_SIZES["currencies"])
_CURRENCY_SIZES = {code: {1: words, 0.01: _SIZES["cents"]} for code, words in _SIZES["currencies"].items()}
WORDS["units"], WORDS["currencies"] = {}, {}
for _dimension, _sizes in {**_SIZES["units"], **_CURRENCY_SIZES}.items():
    for _word, _size in _by_word(_sizes).items():
        WORDS["units"][_word] = (*WORDS["units"].get(_word, ()), (_dimension, float(_size)))
        WORDS["currencies"] |= {_word: _dimension} if _dimension in CURRENCIES and _size == 1 else {}


def number_of(table: str, word: str) -> Any:
    """Return the key of a word, in the singular or plural, in a table of `WORDS`."""
    words, word = WORDS[table], re.sub(r"\s", " ", word)
    return next(words[each] for each in (word, word[:-1], word[:-2]) if each in words)
