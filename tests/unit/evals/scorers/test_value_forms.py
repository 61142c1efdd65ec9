"""All forms of a value in ten languages are equal, and those of another value are not.

Unicode's CLDR (the library babel) writes numbers, currencies, units, dates and parts of a hundred. Nobody who wrote the
rules chose these forms. Times of day and parts in words are ours.
"""

from __future__ import annotations

import datetime as dt
import itertools
import re

import pytest
from babel import dates, numbers, units
from hypothesis import given
from hypothesis import strategies as st

from agentlab.evals.scorers.correctness import correctness

LOCALES = {
    "en": "en_GB",
    "de": "de_DE",
    "es": "es_ES",
    "fr": "fr_FR",
    "it": "it_IT",
    "pt": "pt_BR",
    "ru": "ru_RU",
    "ar": "ar_EG",
    "zh": "zh_Hans_CN",
    "ja": "ja_JP",
}
UNITS = (
    {"length-meter": 1, "length-centimeter": 100, "length-kilometer": 0.001},
    {"mass-gram": 1, "mass-kilogram": 0.001, "mass-milligram": 1000},
    {"volume-liter": 1, "volume-milliliter": 1000},
    {"duration-minute": 1, "duration-second": 60, "duration-hour": 1 / 60},
    {"area-square-meter": 1, "area-hectare": 1e-4},
    {"temperature-celsius": 1},
    {"speed-kilometer-per-hour": 1},
    {"power-watt": 1, "power-kilowatt": 0.001},
    {"electric-volt": 1},
    {"length-mile": 1},
)
CURRENCIES = ("EUR", "USD", "GBP", "JPY", "CHF", "RUB", "BRL", "CNY")
LETTER = re.compile(r"\d\s[\u0430-\u044f\u0621-\u064a]$")
"""Matches a unit that is one Russian or Arabic letter."""
DAYS = [dt.date(2024, 6, 1), dt.date(1999, 1, 23), dt.date(2009, 11, 2), dt.date(2014, 9, 30), dt.date(1911, 10, 3)]
TIMES = {
    # 6:30, 8:15 and 14:45, in the words of each language, after the same times in digits.
    "en": ("half past six in the morning", "quarter past eight in the morning", "quarter to three in the afternoon"),
    "de": ("halb sieben morgens", "Viertel nach acht morgens", "drei viertel drei nachmittags"),
    "es": (
        "las seis y media de la ma\xf1ana",
        "las ocho y cuarto de la ma\xf1ana",
        "las tres menos cuarto de la tarde",
    ),
    "fr": (
        "six heures et demie du matin",
        "huit heures et quart du matin",
        "trois heures moins le quart de l'apr\xe8s-midi",
    ),
    "it": (
        "alle sei e mezza del mattino",
        "le otto e un quarto del mattino",
        "alle tre meno un quarto del pomeriggio",
    ),
    "pt": ("\xe0s seis e meia da manh\xe3", "oito e quinze da manh\xe3", "quinze para as tr\xeas da tarde"),
    "ru": ("половина седьмого утра", "четверть девятого утра", "без четверти три дня"),
    "ar": ("السادسة والنصف صباحا", "الساعة الثامنة والربع صباحا", "الثالثة إلا ربعا بعد الظهر"),
    "zh": ("早上六点半", "上午八点一刻", "下午差一刻三点"),
    "ja": ("午前六時半", "午前8時15分", "午後3時の15分前"),
}
PARTS = {
    # A quarter, two fifths and a half.
    "en": ("one in four", "two out of five", "half"),
    "de": ("jeder Vierte", "zwei Fünftel", "die Hälfte"),
    "es": ("uno de cada cuatro", "dos quintos", "la mitad"),
    "fr": ("un sur quatre", "deux cinquièmes", "la moitié"),
    "it": ("uno su quattro", "due quinti", "la metà"),
    "pt": ("um em cada quatro", "dois quintos", "metade"),
    "ru": ("каждый четвёртый", "две пятых", "половина"),
    "ar": ("الربع", "اثنان من كل خمسة", "النصف"),
    "zh": ("四分之一", "五分之二", "一半"),
    "ja": ("四分の一", "五人に二人", "半分"),
}


def is_right(reply: str, reference: str) -> bool:
    score = correctness(reply, reference)
    return score is not None and score >= 0.5


def assert_equal_within(groups: list[list[str]]) -> None:
    """Each text agrees with the others of its group, and with none of another group."""
    for number, group in enumerate(groups):
        for reference, reply in itertools.permutations(group, 2):
            assert is_right(reply, reference), (reply, reference)
        for other in itertools.chain(*groups[number + 1 :]):
            assert not is_right(other, group[0]), (other, group[0])


languages = st.sampled_from(list(LOCALES.values()))


@given(language=languages, kind=st.sampled_from(UNITS), amounts=st.permutations([2, 18, 45, 110, 350, 1500, 12000]))
def test_units_and_their_conversions(language, kind, amounts):
    groups = []
    for amount in amounts[:3]:
        sizes = {unit: round(amount * size, 6) for unit, size in kind.items()}
        written = [
            units.format_unit(size, unit, length, locale=language)
            for unit, size in sizes.items()
            for length in ("long", "short")
            if size >= 0.25 and size * 4 % 1 == 0
        ]
        # babel writes the name of a unit that it does not find, "length-meter"; a single letter has other meanings.
        groups.append([text for text in written if not any(unit in text for unit in kind) and not LETTER.search(text)])
    assert_equal_within(groups)


@given(language=languages, code=st.sampled_from(CURRENCIES), amounts=st.permutations([3, 45, 680, 2400, 4.5, 19.99]))
def test_currencies(language, code, amounts):
    amounts = [amount for amount in amounts if amount == int(amount) or code != "JPY"]
    written = [
        [
            numbers.format_currency(amount, code, locale=language),
            numbers.format_currency(amount, code, locale=language, format_type="name"),
            f"{numbers.format_decimal(amount, locale=language)} {code}",
        ]
        for amount in amounts[:3]
    ]
    assert_equal_within(written)


@given(language=languages, days=st.permutations(DAYS))
def test_dates(language, days):
    assert_equal_within(
        [
            [dates.format_date(day, form, locale=language) for form in ("full", "long", "medium")] + [day.isoformat()]
            for day in days[:3]
        ]
    )


@given(language=languages.filter(lambda name: name != "en_GB"), days=st.permutations(DAYS))
def test_days_in_numbers_beside_days_in_words(language, days):
    groups = [
        [dates.format_skeleton(form, day, locale=language) for form in ("MMMMd", "Md")]
        for day in days[:3]
        if day.day != day.month
    ]
    assert_equal_within(groups)


@pytest.mark.parametrize("language", LOCALES)
def test_times_of_day_in_words(language):
    digits = [dt.time(6, 30), dt.time(8, 15), dt.time(14, 45)]
    written = zip(digits, TIMES[language], strict=True)
    assert_equal_within(
        [
            [f"{time:%H:%M}", dates.format_time(time, "short", locale=LOCALES[language]), words]
            for time, words in written
        ]
    )


@pytest.mark.parametrize("language", LOCALES)
def test_parts_of_a_whole_and_of_a_hundred(language):
    written = zip((0.25, 0.4, 0.5), ("1/4", "2/5", "1/2"), PARTS[language], strict=True)
    assert_equal_within(
        [[numbers.format_percent(part, locale=LOCALES[language]), digits, words] for part, digits, words in written]
    )
