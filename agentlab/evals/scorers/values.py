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

from agentlab.evals.scorers.dates import ANY_YEAR, Span, find_dates
from agentlab.evals.scorers.tables import (
    CURRENCIES,
    LANGUAGES,
    WORDS,
    fold,
    number_of,
    pattern,
    rewrite,
    with_plain_signs,
    without_accents,
)

Kind = tuple[str, float]
"""Dimension, and size of the unit in base units."""
Readings = tuple[float, ...]
ALONE: Kind = ("", 1.0)
"""Kind of a number without a unit."""
HOURS: Kind = ("s", 3600.0)
MINUTES: Kind = ("s", 60.0)
CELSIUS: dict[str, Callable[[float], float]] = {
    "degc": float,
    "degf": lambda degrees: (degrees - 32) / 1.8,
    "kelvin": lambda degrees: degrees - 273.15,
}
"""Scale of temperature -> degrees Celsius of a number on it."""
MAX_DEGREES = 0.5
"""Most degrees Celsius between two roundings of one temperature."""
SECONDS_A_MONTH = 365.2425 / 12 * 86400
"""Mean length of a month of the Gregorian calendar."""
_DIGIT = re.compile(r"\d")
LOOSE = ("nth", "weekday")
"""Dimensions of values that a reply may omit if it has other words of the reference: the third, Friday."""


class Value(NamedTuple):
    """Number with its unit."""

    kinds: tuple[Kind, ...]
    """Meanings of the unit: dimension and size in base units.

    A dimension is a base unit, a currency, `nth`, `things` for counted things, or "" for a number alone.
    """
    readings: Readings
    """Possible numbers of units: half past nine has two."""

    @property
    def dimension(self) -> str:
        return self.kinds[0][0]

    @property
    def weight(self) -> int:
        """Number of words that the value counts for: two with a unit."""
        return 2 if self.dimension not in ("", "things", *LOOSE) else 1

    def equals(self, other: Value) -> bool:
        """Return True if both may mean the same; a number alone has any unit, and a third is 33 percent."""
        kinds = itertools.product(self.kinds, other.kinds)
        return any(_equal(kind, self.readings, kind2, other.readings) for kind, kind2 in kinds)


def _equal(kind: Kind, readings: Readings, kind2: Kind, readings2: Readings) -> bool:
    dimensions = {kind[0], kind2[0]}
    if len(dimensions) == 2 and dimensions <= CELSIUS.keys():
        pairs = itertools.product(map(CELSIUS[kind[0]], readings), map(CELSIUS[kind2[0]], readings2))
        return any(abs(a - b) <= MAX_DEGREES for a, b in pairs)
    if dimensions == {"month", "s"}:
        kind, kind2 = (("s", size * (SECONDS_A_MONTH if name == "month" else 1)) for name, size in (kind, kind2))
        dimensions = {"s"}
    if len(dimensions) > 1 and ("" not in dimensions or dimensions & {"weekday", "century"}):
        return False
    if ALONE in (kind, kind2) and (set(readings) & set(readings2) or dimensions - {"", "percent", "things"}):
        return not set(readings).isdisjoint(readings2)
    tolerance = 1e-9 if kind[1] == kind2[1] else 0.021
    pairs = itertools.product(readings, readings2)
    return any(math.isclose(a * kind[1], b * kind2[1], rel_tol=tolerance, abs_tol=1e-12) for a, b in pairs)


Content = tuple[list[Span], list[Value], str]
"""Dates and values of a text, and the text without them in small letters."""


def language_of(text: str) -> str:
    """Return the language with most frequent words and number words in a text, "" if it has none."""
    text = rewrite("spelled", with_plain_signs(text).lower())
    words, evidence = _words(text), dict[str, tuple[int, int, int]]()
    plain = _words(without_accents(text))
    for language, frequent in LANGUAGES.items():
        digits = alpha2digit(text, language, 0)
        count = sum(map(frequent.__contains__, words if language == "en" else plain))
        evidence[language] = (count + len(words) - len(_words(digits)), count, len(text) - len(digits))
    likely = max(evidence, key=evidence.__getitem__)
    return likely if evidence[likely][0] else ""


def _words(text: str) -> list[str]:
    return re.findall(r"(?<![\w.])[^\W\d_]+", text)  # "2nd" has none


@functools.lru_cache(maxsize=32)  # one turn compares a reply with several references
def read_values(text: str, language: str, dated: str = "") -> Content:
    """Return the content of a text; the language is one of `LANGUAGES`, or "" for another one.

    Beside a `dated` text that has dates, "15.03." and "3/15" are dates, too: a day and a month.
    """
    if dated:
        order = r"\2.\1." if "\u6708" in dated else r"\1.\2."
        text = re.sub(r"(?<![\d/.,])(\d{1,2})/(\d{1,2})(?![\d/])", order, fold(text))  # would be a part
    rest = in_digits(text, language)
    dates, rest = find_dates(rest) if _DIGIT.search(rest) else ([], rest.lower())
    if dated:
        short, rest = find_dates(rest, "short_date")
        dates += short
    has_day = any(first == last for first, last in dates)  # a weekday beside it tells nothing
    text = pattern("weekdays").sub(lambda day: "" if has_day else f"{number_of('weekdays', day[1])} weekday", rest)
    values: list[Value] = []
    if _DIGIT.search(text):
        for name, read in (("time", functools.partial(_time, language)), ("value", _value)):
            text = _scan(name, read, text, values)
    return dates, values, pattern("kept_apart").sub("x", text)


def with_years(content: Content) -> Content:
    """Return content in which a year is a number, too, and a number of a thousand to 2199 a year."""
    dates, values, rest = content
    numbers = [Value((ALONE,), (float(first.year),)) for first, last in dates if (last - first).days > 363]
    centuries = [
        Value((("century", 1.0),), ((first.year - 1) // 100 + 1.0,)) for first, _ in dates if first.year > ANY_YEAR
    ]
    counts = [n for value in values if not value.dimension for n in value.readings if 1000 <= n < 2200]
    years = [(date(int(n), 1, 1), date(int(n), 12, 31)) for n in counts if n == int(n)]
    return [*dates, *years], [*values, *numbers, *centuries], rest


@functools.lru_cache(maxsize=64)
def in_digits(text: str, language: str) -> str:
    """Return the text in small letters with numbers and fractions in digits: "two thirds" is 0.6666666666666666."""
    text = rewrite("spelled", rewrite("commas", rewrite("cased", with_plain_signs(text)).lower()))
    parts = [text] if language == "en" else pattern("article").split(rewrite("points", text))
    text = "".join(part if n % 2 else alpha2digit(part, language or "en", 0) for n, part in enumerate(parts))
    text = rewrite("commas", rewrite("hours", without_accents(text)))
    text = pattern("phrases").sub(lambda phrase: str(number_of("phrases", phrase[0])), text)
    text = pattern("era").sub(_year, text)
    text = pattern("han").sub(lambda number: str(_han(number[0])), pattern("numbers").sub(_sum, text))
    text = pattern("scales").sub(lambda scale: f"e{number_of('scales', scale[1])}", _rewritten("halves", text))
    text = _rewritten("clock", text) if _DIGIT.search(text) or not text.isascii() else text
    text = pattern("han_part").sub(r"\2/\1", text)
    text = pattern("fraction").sub(lambda part: repr(int(part[1] or 0) + int(part[2]) / int(part[3])), text)
    text = pattern("english_part" if language == "en" else "part").sub(_part, text)
    return pattern("share").sub(lambda share: repr(int(share[1]) / int(share[2])), text)


def _rewritten(name: str, text: str) -> str:
    """Return the text after the rewrites of that name; those for other scripts are left out in a text without one."""
    if not text.isascii() and pattern("other_letters").search(text):
        text = rewrite(f"other_{name}", text)
    return rewrite(name, text)


def _sum(words: re.Match[str]) -> str:
    """Return the numbers that words of any order mean: hundreds, tens and units add up, a thousand multiplies."""
    sums, parts = [0], list[int]()
    for number in (number_of("numbers", word) for word in pattern("number").findall(words[0])):
        if number >= 1000:
            sums[-1] += (sum(parts) or 1) * number
            parts = []
        elif number == 100 and len(parts) == 1 and 2 < parts[0] < 10:
            parts = [100 * parts[0]]
        elif len(str(number)) in map(len, map(str, parts)):
            sums[-1] += sum(parts)
            sums, parts = [*sums, 0], [number]
        else:
            parts.append(number)
    return " ".join(map(str, [*sums[:-1], sums[-1] + sum(parts)]))


def _year(era: re.Match[str]) -> str:
    return str(number_of("eras", era["era"]) + (int(era["year"]) if era["year"].isdigit() else 1))


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
    if ALONE in smaller.kinds and smaller.readings[0] < 100:
        hundreds = {(dimension, 1.0): (dimension, 0.01) for dimension in (*CURRENCIES, "m")} | {MINUTES: ("s", 1.0)}
        kinds = tuple(kind for kind in value.kinds if kind in hundreds)
        smaller = smaller._replace(kinds=tuple(hundreds[kind] for kind in kinds))
    else:
        sizes = dict(smaller.kinds)
        kinds = tuple(kind for kind in value.kinds if kind[0] and 0 < sizes.get(kind[0], 0) < kind[1])
    if not kinds or value.readings[0] % 1:  # "half a metre, 45 cm" is one length in two forms
        return None
    size = dict(smaller.kinds)[kinds[0][0]] / kinds[0][1]
    return Value(kinds, tuple(number + smaller.readings[0] * size for number in value.readings))


def _time(language: str, match: re.Match[str]) -> Value | None:
    """Return hours after midnight, with both values if the half of the day is unclear; None for another number."""
    minute, half_day = match["minute"], match["before"] or match["after"]
    is_time = match["mark"] or match["word"] or match["side"] or (minute and (match["sign"] != "." or half_day))
    if not (is_time or (half_day and half_day != "\u0434\u043d\u044f")):  # these letters alone are days
        return None
    hour, past = int(match["hour"]), float((match["past"] or "0").split()[0])
    past = (past if past < 1 else past / 60) * (-1 if match["side"] == "to" else 1) - (match["side"] == "into")
    past += 0.5 if minute == "\u534a" else int(minute or 0) / 60
    if half_day:
        clock, later = (hour or 24) + past, number_of("half_days", half_day)
        later = later if later <= 12 else 12 * (clock % 12 > 5)
        return Value((HOURS,), (clock % 12 + later if hour else clock % 24,))
    is_exact = match["exact"] is not None or (match["sign"] == ":" and language != "en")
    readings = (hour, (hour + 12) % 24) if 0 < hour < 13 and not is_exact else (hour, *[0] * (hour == 24))
    kinds = (HOURS, *[MINUTES] * (match["sign"] == ":"), *[ALONE] * (past == 0.5))  # "seven and a half" may be no time
    return Value(kinds, tuple(reading + past for reading in readings))


def _value(match: re.Match[str]) -> Value:
    sign = -1 if match["sign"] else 1
    try:
        power = 10.0 ** int(match["power"] or match["exponent"] or 0)
        reading = sign * power * float(match["number"]) ** int(match["caret"] or 1)
    except (OverflowError, ZeroDivisionError):
        reading = sign * math.inf
    unit = match["unit"] or match["before"]
    kind = "nth" if match["nth"] else "things" if match["things"] and reading >= 1 else ""
    return Value(number_of("units", unit) if unit else ((kind, 1.0),), (reading,))
