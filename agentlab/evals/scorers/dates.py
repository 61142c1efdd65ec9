"""Finds dates in a text in small letters as spans of days: "7 May 2023", "07.05.2023" and "2023年5月7日" are equal.

A month or a year alone spans all of its days. "The week before 9 June 2023" is the seven days before that date.
"Friday before" is one day, and "a few days after" is the week after. "March 3" is that day of any year. A number
before a unit, as in "2500 metres", is no year.
"""

from __future__ import annotations

import calendar
from datetime import date, timedelta

from agentlab.evals.scorers.tables import WORDS, pattern

Span = tuple[date, date]
"""First and last day, both included."""
ANY_YEAR = 4
"""Year of a day without one; a leap year."""
CENTURY = 30
"""First year of two digits that belongs to the twentieth century."""
_LENGTH = {"day": 7, "week": 7, "weekend": 7, "month": 31}
"""Length in days; "a few days before" is about a week."""


def find_dates(text: str, name: str = "date") -> tuple[list[Span], str]:
    """Return the spans of a text in order, and the text in small letters without its dates.

    With `short_date`, "15.03." and "3/15" are dates, which otherwise are a number and a part.
    """
    spans, rest, end, text = [], [], 0, text.lower()
    for match in pattern(name).finditer(text):
        span = _span({name[0]: value for name, value in match.groupdict().items() if value})
        if span is None:
            continue
        before = text[end : match.start()]
        if relative := pattern("relative").search(before):
            span = _shift(span, relative["unit"], relative["side"], int(relative["count"] or 1))
            before = before[: relative.start()]
        spans.append(span)
        rest.append(before)
        end = match.end()
    return spans, " ".join([*rest, text[end:]])


def month_first(spans: list[Span]) -> list[Span]:
    """Return the days of spans that were written in numbers with the month first: 9/3/2024 is September 3."""
    days = [first for first, last in spans if first == last and first.day <= 12]
    return [(day.replace(month=day.day, day=day.month),) * 2 for day in days]


def century_before(spans: list[Span]) -> list[Span]:
    """Return the spans a hundred years earlier, as a year of two digits may mean."""
    later = [span for span in spans if span[0].year >= 2000]
    return [(first.replace(first.year - 100), last.replace(last.year - 100)) for first, last in later]


def date_recall(reply_spans: list[Span], reference_spans: list[Span]) -> float:
    """Return the mean over the reference's spans of their best match in the reply, from 0 to 1."""
    best = [max((_match(expected, span) for span in reply_spans), default=0.0) for expected in reference_spans]
    return sum(best) / len(best)


def _match(expected: Span, span: Span) -> float:
    """Return 1 for an overlap with a span of at most a week or no longer than expected, .5 for a vaguer one, else 0."""
    if ANY_YEAR in (expected[0].year, span[0].year):
        if max(_days(expected), _days(span)) > 31:
            return 0.0
        expected, span = _without_year(expected), _without_year(span)
    if span[1] < expected[0] or span[0] > expected[1]:
        return 0.0
    return 1.0 if _days(span) <= max(7, _days(expected)) else 0.5


def _without_year(span: Span) -> Span:
    first, last = (day.replace(year=ANY_YEAR) for day in span)
    return min(first, last), max(first, last)


def _days(span: Span) -> int:
    return (span[1] - span[0]).days + 1


def _span(parts: dict[str, str]) -> Span | None:
    """Return the span of year `y`, month `m`, day `d` and last day `e`; `s` is the sign between numbers."""
    year = int(parts.get("y", ANY_YEAR))
    year += (2000 if year < CENTURY else 1900) * (len(parts.get("y", "")) == 2)
    if "m" not in parts:
        return date(year, 1, 1), date(year + 9 * ("d" in parts), 12, 31)
    months, name = WORDS["months"], parts["m"].rstrip(".")
    month = int(name) if name.isdigit() else months.get(name) or months[name[:3]]
    day = int(parts.get("d", 0))
    if month > 12:
        month, day = day, month
    try:
        n_days = calendar.monthrange(year, month)[1]
        last = min(int(parts.get("e", day)) or n_days, n_days)
        return date(year, month, min(day, n_days) or 1), date(year, month, last)
    except (ValueError, IndexError):
        return None


def _shift(span: Span, unit: str, side: str, count: int) -> Span:
    """Return the days that a phrase such as "2 weeks before" or "Friday after" means relative to `span`."""
    first, last = span
    if (weekday := WORDS["weekdays"].get(unit)) is not None:
        back, ahead = (first.weekday() - weekday) % 7 + 1, (weekday - 2 - last.weekday()) % 7 + 1
        day = first - timedelta(back) if side == "before" else last + timedelta(ahead)
        return day, day
    length, nearest = timedelta(_LENGTH[unit.removesuffix("s")]), timedelta(1)
    if count > 1:  # as many days, weeks or months, give or take half of one
        length, nearest = (count + 0.5) * length, (count - 0.5) * length
    return (first - length, first - nearest) if side == "before" else (last + nearest, last + length)
