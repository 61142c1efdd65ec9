"""Words of scripts that a split at blanks and punctuation does not find, for BM25.

Scripts without blanks between words, such as Chinese, Japanese and Thai, are indexed by pairs of neighbouring
characters, as Lucene does. Words of Indic scripts keep their vowel signs. Arabic and Hebrew lose their optional marks,
and the forms of an Arabic letter become one letter. Text of other scripts stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise

_SOUTHEAST_ASIAN = r"\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_KANA = r"\u3040-\u30fa\u30fc-\u30ff\uff66-\uff9f"
_HAN = r"\u3005\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_INDIC = r"\u0900-\u0963\u0966-\u0dff"
_OTHER = re.compile(rf"(?P<indic>[{_INDIC}]+)|[{_SOUTHEAST_ASIAN}{_KANA}{_HAN}]+")
_SIGNS = r"\u0e31\u0e34-\u0e3a\u0e47-\u0e4e\u0eb1\u0eb4-\u0ebc\u0ec8-\u0ece\u102b-\u103e\u17b6-\u17d3\u3099\u309a\u30fc"
_CHARACTER = re.compile(rf".[{_SIGNS}]*")
"""A character with the vowel and tone signs that belong to it."""
_MARKS = re.compile(r"[\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670]")
_ARABIC = {"\u0627": "\u0622\u0623\u0625\u0671", "\u064a": "\u0649\u06cc", "\u0647": "\u0629", "\u0643": "\u06a9"}
"""Letter -> forms of it: alef with hamza or madda, alef maksura and Persian yeh, teh marbuta, Persian kaf."""
_FOLDED = str.maketrans({form: letter for letter, forms in _ARABIC.items() for form in forms})
EXCHANGED = str.maketrans("\u0623\u0625\u0622\u0671\u0649\u0629\u2019", "\u0627\u0627\u0627\u0627\u064a\u0647'")
"""Letters that Arabic writers exchange for one another, and the typographic apostrophe."""


def separate_words(text: str) -> tuple[str, list[str]]:
    """Return the text without the words of these scripts, and those words."""
    if text.isascii():
        return text, []
    folded = _MARKS.sub("", text).translate(_FOLDED)
    return _OTHER.sub(" ", folded), list(_words(folded))


def _words(text: str) -> Iterator[str]:
    for match in _OTHER.finditer(text):
        characters = [match[0]] if match.lastgroup == "indic" else _CHARACTER.findall(match[0])
        yield from map("".join, pairwise(characters)) if len(characters) > 1 else characters
