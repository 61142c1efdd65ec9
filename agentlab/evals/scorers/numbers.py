"""Writes the numbers of an English text in one form: "twenty-one" as 21, "2.0" as 2, "1,500" as 1500, "-5" as one word.

A dash before a digit is a sign unless a character precedes it directly, or a number one space before. "3-5",
"2023-05-07", "covid-19" and "from 3 -5" have no sign. "Minus five" is -5; "ten minus five" is not. A text with two
points (3.11.2) or with a letter in front (v2.0) is no number. C, C++ and C# become three different words.
"""

from __future__ import annotations

import functools
import re

from agentlab.evals.scorers.stems import NUMBERS, TENS, ZERO_TO_TWENTY

_ONES = "|".join(ZERO_TO_TWENTY.split()[1:10])
_TENS = "|".join(["twenty", *TENS.split()[:-1]])
_NUMBER_WORD = re.compile(
    rf"\b(?:one[- ](?=hundred\b))?(?:(?P<tens>{_TENS})(?:[-\u2010\u2011]| (?!\w+-))(?P<ones>{_ONES})"
    rf"|(?P<word>{'|'.join([*ZERO_TO_TWENTY.split(), *TENS.split()])}))\b",
    re.IGNORECASE,
)
_MONEY = "[$\u20ac\xa3\xa5]"
_BEFORE_A_SIGN = rf"""[\s(\[{{"'\u201c\u2018\xab=<>~\u2248\u2264\u2265\xb1:;,*|]|{_MONEY}"""
_NUMBER = re.compile(
    rf"(?P<sign>(?:^|(?<={_BEFORE_A_SIGN}))(?<![\d%\xb0][ \t])(?<!\d['\"])(?:[-\u2212\u2013]|(?:minus|negative)[ -]))?"
    rf"(?P<money>(?(sign){_MONEY}?))(?<![\w.])"
    r"(?:(?P<whole>\d+)(?:\.(?P<fraction>\d+))?|\.(?P<only>\d+))(?!\.?\d)",
    re.IGNORECASE,
)
_DIGIT = re.compile(r"\d")
_LANGUAGE = re.compile(r"(?<=[^\W\d_])(?:(?P<plus>\+\+)|#(?!\w))")


@functools.lru_cache(maxsize=32)  # one turn compares a reply with several references
def in_digits(text: str) -> str:
    """Return the text with each number as one word, since punctuation is not compared: -2.5 is `2point5decneg`."""
    # The tests below are cheap, and most texts need few of the substitutions.
    if "," in text:
        text = re.sub(r"(?<=\d),(?=\d{3}\b)", "", text)
    text = _NUMBER_WORD.sub(_digits_of_word, text)
    if _DIGIT.search(text):
        text = re.sub(r"(?<=\d)[\u2010-\u2015\u2212](?=\d)", "-", text)
        text = _NUMBER.sub(_number_token, text)
    if "+" in text or "#" in text:
        text = _LANGUAGE.sub(lambda match: "plusplus " if match["plus"] else "sharp", text)
    return text


def _digits_of_word(match: re.Match[str]) -> str:
    if match["word"]:
        return str(NUMBERS[match["word"].lower()])
    return str(NUMBERS[match["tens"].lower()] + NUMBERS[match["ones"].lower()])


def _number_token(match: re.Match[str]) -> str:
    fraction = match["fraction"] or match["only"] or ""
    if not fraction and not match["sign"]:
        return match[0]
    whole, fraction = (match["whole"] or "").lstrip("0") or "0", fraction.rstrip("0")
    # The ending keeps `stem` from removing the last digit of 2.44 as a doubled letter.
    value = f"{whole}point{fraction}dec" if fraction else whole
    return f"{match['money']}{value}" + ("neg" if match["sign"] and value != "0" else "")
