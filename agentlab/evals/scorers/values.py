"""Reads the values of a text: numbers with units, currencies, parts, times of day and dates, however they are written.

    read_values("It weighs two and a half kilos", "en")     # one value of 2500 g; "it weighs" is left

Number words of English, German, French, Spanish, Italian and Portuguese are read by `text2num`, others by a table.
"3-5", "2023-05-07", "covid-19" and "from 3 -5" have no sign. A text with two points (3.11.2) or with a letter in front
(v2.0) is no number. C, C++ and C# are three words.
"""

from __future__ import annotations

import functools
import itertools
import math
import re
from collections.abc import Callable
from datetime import date
from typing import NamedTuple

from text_to_num import alpha2digit

from agentlab.evals.scorers.dates import Span, find_dates
from agentlab.evals.scorers.tables import LANGUAGES, WORDS, fold, number_of, pattern, rewrite

LOOSE = ("nth", "weekday")
"""Dimensions of values that a reply may omit if it has other words of the reference: the third, Friday."""


class Value(NamedTuple):
    """Number with its unit."""

    dimension: str
    """Base unit, a currency, `nth`, or `things` for counted things; "" for a number alone."""
    unit: float
    """Size of the unit in base units."""
    readings: tuple[float, ...]
    """Possible numbers of units: half past nine has two."""

    @property
    def weight(self) -> int:
        """Number of words that the value counts for: two with a unit."""
        return 2 if self.dimension not in ("", "things", *LOOSE) else 1

    def equals(self, other: Value) -> bool:
        """Return True if both may mean the same; a number alone has any unit, and a third is 33 percent."""
        dimensions = {self.dimension, other.dimension}
        if dimensions == {"degc", "degf"}:
            in_celsius, in_fahrenheit = sorted((self, other))
            return any(abs(c * 1.8 + 32 - f) <= 1 for c in in_celsius.readings for f in in_fahrenheit.readings)
        if len(dimensions) > 1 and ("" not in dimensions or "weekday" in dimensions):
            return False
        if ("", 1.0) in (self[:2], other[:2]) and set(self.readings) & set(other.readings):
            return True
        tolerance = 1e-9 if self.unit == other.unit else 0.011
        pairs = itertools.product(self.readings, other.readings)
        return any(math.isclose(a * self.unit, b * other.unit, rel_tol=tolerance, abs_tol=1e-12) for a, b in pairs)


Content = tuple[list[Span], list[Value], str]
"""Dates and values of a text, and the text without them in small letters."""


def language_of(text: str) -> str:
    """Return the language with most frequent words in a text; longer number words decide a tie."""
    text = fold(text)
    words = re.findall(r"[^\W\d_]+", text.lower())
    counts = {name: sum(word in frequent for word in words) for name, frequent in LANGUAGES.items()}
    likely = [name for name, count in counts.items() if count == max(counts.values())]
    lengths: dict[int, str] = {len(alpha2digit(text, name, 0)): name for name in reversed(likely)}
    return lengths[min(lengths)] if any(counts.values()) or len(lengths) > 1 else ""


@functools.lru_cache(maxsize=32)  # one turn compares a reply with several references
def read_values(text: str, language: str) -> Content:
    """Return the content of a text; the language is one of `LANGUAGES`, or "" for another one."""
    dates, text = find_dates(in_digits(text, language))
    text = pattern("weekdays").sub(lambda day: f"{number_of('weekdays', day[1])} weekday", text)
    values: list[Value] = []
    for name, read in (("time", _time), ("value", _value)):
        text = _scan(name, read, text, values)
    return dates, values, pattern("kept_apart").sub("x", text)


def with_years(content: Content) -> Content:
    """Return content in which a year is a number, too, and a number of a thousand to 2199 a year."""
    dates, values, rest = content
    numbers = [Value("", 1.0, (float(first.year),)) for first, last in dates if (last - first).days > 363]
    counts = [n for value in values if not value.dimension for n in value.readings if 1000 <= n < 2200]
    years = [(date(int(n), 1, 1), date(int(n), 12, 31)) for n in counts if n == int(n)]
    return [*dates, *years], [*values, *numbers], rest


def in_digits(text: str, language: str) -> str:
    """Return the text in small letters with numbers and fractions in digits: "two thirds" is 0.6666666666666666."""
    text = rewrite("commas", rewrite("cased", fold(text)).lower())
    parts = [text] if language == "en" else pattern("article").split(rewrite("points", text))
    text = "".join(part if n % 2 else alpha2digit(part, language or "en", 0) for n, part in enumerate(parts))
    text = pattern("phrases").sub(lambda phrase: str(number_of("phrases", phrase[0])), rewrite("halves", text))
    text = pattern("scales").sub(lambda scale: f"e{number_of('scales', scale[1])}", text)
    text = pattern("han").sub(lambda number: str(_han(number[0])), pattern("numbers").sub(_sum, text))
    text = pattern("han_part").sub(r"\2/\1", text)
    text = pattern("fraction").sub(lambda part: repr(int(part[1] or 0) + int(part[2]) / int(part[3])), text)
    text = pattern("english_part" if language == "en" else "part").sub(_part, text)
    return pattern("share").sub(lambda share: repr(int(share[1]) / int(share[2])), text)


def _sum(words: re.Match[str]) -> str:
    """Return the sum of hundreds, tens and units in any order; others stay apart."""
    numbers = [number_of("numbers", word) for word in pattern("number").findall(words[0])]
    return str(sum(numbers)) if len({*map(len, map(str, numbers))}) == len(numbers) else " ".join(map(str, numbers))


def _han(text: str) -> int:
    thousands, sign, rest = text.rpartition("\u4e07")
    if sign:
        return (_han(thousands) if thousands else 1) * 10000 + (_han(rest) if rest else 0)
    digits = [int(WORDS["han"][character]) for character in text]
    if max(digits) < 10:
        return int("".join(map(str, digits)))
    counts = [before if before < 10 else 1 for before in [10, *digits]]
    return sum(count * digit for count, digit in zip(counts, digits, strict=False) if digit > 9) + digits[-1] % 10


def _part(match: re.Match[str]) -> str:
    if match["nth"] and not (match["count"] or match["article"]):
        return match[0]
    part = 1 / int(match["nth"] or number_of("parts", match["word"]))
    return repr(int(match["count"]) + part if match["more"] else int(match["count"] or 1) * part)


def _scan(name: str, read: Callable[[re.Match[str]], Value | None], text: str, values: list[Value]) -> str:
    """Add what `read` returns to `values`, and return the text without it; "2 m 5 cm" is one value."""
    rest, end = list[str](), 0
    for match in pattern(name).finditer(text):
        if (value := read(match)) is None:
            continue
        between = text[end : match.start()]
        before = values[-1] if rest and values else None
        if before and pattern("glue").fullmatch(between) and (joined := _joined(before, value)):
            values[-1] = joined
        elif not pattern("not_a_value").search(between):
            if before and not before.dimension and pattern("to").fullmatch(between):
                values[-1] = value._replace(readings=before.readings)
            values.append(value)
        rest.append(between)
        end = match.end()
    return " ".join([*rest, text[end:]])


def _joined(value: Value, smaller: Value) -> Value | None:
    """Return the sum of a value and one of a smaller unit after it; None if they are two values."""
    is_cents = value.dimension in WORDS["currencies"].values() and not smaller.dimension and smaller.readings[0] < 100
    size = 0.01 if is_cents else smaller.unit / value.unit
    if size >= 1 or not (is_cents or value.dimension == smaller.dimension != ""):
        return None
    return value._replace(readings=tuple(number + smaller.readings[0] * size for number in value.readings))


def _time(match: re.Match[str]) -> Value | None:
    """Return hours after midnight, with both values if the half of the day is unclear; None for another number."""
    minute, half_day = match["minute"], match["before"] or match["after"]
    if not (half_day or match["mark"] or match["halb"] or match["side"] or (minute and match["sign"] != ".")):
        return None
    past = float((match["past"] or "0").split()[0])
    past = (past if past < 1 else past / 60) * (-1 if match["side"] == "to" else 1) - 0.5 * bool(match["halb"])
    hour = int(match["hour"]) + past + (0.5 if minute == "\u534a" else int(minute or 0) / 60)
    if half_day:
        return Value("s", 3600.0, (hour % 12 + number_of("half_days", half_day),))
    return Value("s", 3600.0, (hour, (hour + 12) % 24) if 0 < hour < 13 and match["exact"] is None else (hour,))


def _value(match: re.Match[str]) -> Value:
    sign = -1 if match["sign"] else 1
    try:
        power = 10.0 ** int(match["power"] or match["exponent"] or 0)
        reading = sign * power * float(match["number"]) ** int(match["caret"] or 1)
    except (OverflowError, ZeroDivisionError):
        reading = sign * math.inf
    unit = match["unit"] or match["before"]
    kind = "nth" if match["nth"] else "things" if match["things"] else ""
    dimension, size = number_of("units", unit) if unit else (kind, 1.0)
    return Value(dimension, size, (reading,))
