"""Numbers in English, all written alike: "twenty-one" as 21, "2.0" as 2, "1,500" as 1500, "-5" as a word of its own.

A dash before a digit is a sign where nothing stands right before it, and no number one blank before: in "3-5",
"2023-05-07", "covid-19" and "from 3 -5" it is none. "Minus five" is -5, "ten minus five" is not. What has two points,
as 3.11.2, and what begins with a letter, as v2.0, is no number. Languages are words of their own: C, C++ and C#.
"""

from __future__ import annotations

import functools
import re

from agentlab.evals.scorers.stems import COUNT, NUMBERS, TENS

_ONES = "|".join(COUNT.split()[1:10])
_TENS = "|".join(["twenty", *TENS.split()[:-1]])
_COUNTED = re.compile(
    rf"\b(?:one[- ](?=hundred\b))?(?:(?P<tens>{_TENS})(?:[-\u2010\u2011]| (?!\w+-))(?P<ones>{_ONES})"
    rf"|(?P<word>{'|'.join([*COUNT.split(), *TENS.split()])}))\b",
    re.IGNORECASE,
)
_MONEY = "[$\u20ac\xa3\xa5]"
_BEFORE_A_SIGN = rf"""[\s(\[{{"'\u201c\u2018\xab=<>~\u2248\u2264\u2265\xb1:;,*|]|{_MONEY}"""
_NUMBER = re.compile(
    rf"(?P<sign>(?:^|(?<={_BEFORE_A_SIGN}))(?<![\d%\xb0][ \t])(?<!\d['\"])(?:[-\u2212\u2013]|(?:minus|negative)[ -]))?"
    rf"(?P<money>(?(sign){_MONEY}?))(?<![\w.])"
    r"(?:(?P<whole>\d+)(?:\.(?P<part>\d+))?|\.(?P<only>\d+))(?!\.?\d)",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_LANGUAGE = re.compile(r"(?<=[^\W\d_])(?:(?P<plus>\+\+)|#(?!\w))")


@functools.lru_cache(maxsize=32)  # of one turn: a reply is held against several references
def in_digits(text: str) -> str:
    """The text with its numbers as above, as words, since no punctuation is compared: -2.5 is `2point5decneg`."""
    # Most texts hold little of it, and to look whether they do costs a tenth of it.
    if "," in text:
        text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = _COUNTED.sub(_counted, text)
    if _DIGIT.search(text):
        text = re.sub(r"(?<=\d)[\u2010-\u2015\u2212](?=\d)", "-", text)
        text = _NUMBER.sub(_number, text)
    if "+" in text or "#" in text:
        text = _LANGUAGE.sub(lambda match: "plusplus " if match["plus"] else "sharp", text)
    return text


def _counted(match: re.Match[str]) -> str:
    if match["word"]:
        return str(NUMBERS[match["word"].lower()])
    return str(NUMBERS[match["tens"].lower()] + NUMBERS[match["ones"].lower()])


def _number(match: re.Match[str]) -> str:
    part = match["part"] or match["only"] or ""
    if not part and not match["sign"]:
        return match[0]
    whole, part = (match["whole"] or "").lstrip("0") or "0", part.rstrip("0")
    # The letters at its end keep `stem` from taking 2.44 for a word whose last letter is doubled.
    value = f"{whole}point{part}dec" if part else whole
    return f"{match['money']}{value}" + ("neg" if match["sign"] and value != "0" else "")
