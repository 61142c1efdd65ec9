"""Finds dates in English text as spans of days: "7 May 2023", "May 7th, 2023" and "2023-05-07" are equal.

A month or a year alone spans all of its days. "The week before 9 June 2023" is the seven days before that date.
"Friday before" is one day, and "a few days after" is the week after. A date needs a year.
"""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

Span = tuple[date, date]
"""First and last day, both included."""
MONTHS = {name[:3].lower(): number for number, name in enumerate(calendar.month_name) if name}
DAYS = {name.lower(): number for number, name in enumerate(calendar.day_name)}
_MONTH = r"(?P<{}>jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*\.?"
_DATE = re.compile(
    r"\b(?P<y1>[12]\d{3})[-/](?P<m1>\d{1,2})[-/](?P<d1>\d{1,2})\b"
    rf"|\b(?P<d2>\d{{1,2}})(?:st|nd|rd|th)?\s*(?:of\s+)?{_MONTH.format('m2')},?\s*(?:of\s+)?(?P<y2>[12]\d{{3}})\b"
    rf"|\b{_MONTH.format('m3')}\s*(?P<d3>\d{{1,2}})(?:st|nd|rd|th)?,?\s*(?P<y3>[12]\d{{3}})\b"
    rf"|\b{_MONTH.format('m4')},?\s*(?:of\s+)?(?P<y4>[12]\d{{3}})\b"
    r"|\b(?P<y5>[12]\d{3})\b",
    re.IGNORECASE,
)
_YEAR = re.compile(r"[12]\d{3}")
_RELATIVE = re.compile(rf"(?P<unit>{'|'.join(DAYS)}|days?|weeks?|weekends?|months?)\s+(?P<side>before|after)\s*$", re.I)
_LENGTH = {"day": 7, "week": 7, "weekend": 7, "month": 31}
"""Length in days; "a few days before" is about a week."""


def find_dates(text: str) -> tuple[list[Span], str]:
    """Return the spans of a text in order, and the text without its dates."""
    if not _YEAR.search(text):
        return [], text
    spans, rest, end = [], [], 0
    for match in _DATE.finditer(text):
        span = _span({name[0]: value for name, value in match.groupdict().items() if value})
        if span is None:
            continue
        before = text[end : match.start()]
        if relative := _RELATIVE.search(before):
            span = _shift(span, relative["unit"].lower(), relative["side"].lower())
            before = before[: relative.start()]
        spans.append(span)
        rest.append(before)
        end = match.end()
    return spans, " ".join([*rest, text[end:]])


def date_recall(reply_spans: list[Span], reference_spans: list[Span]) -> float:
    """Return the mean over the reference's spans of their best match in the reply, from 0 to 1."""
    best = [max((_match(expected, span) for span in reply_spans), default=0.0) for expected in reference_spans]
    return sum(best) / len(best)


def _match(expected: Span, span: Span) -> float:
    """Return 1 for an overlap with a span of at most a week or no longer than expected, .5 for a vaguer one, else 0."""
    if span[1] < expected[0] or span[0] > expected[1]:
        return 0.0
    return 1.0 if _days(span) <= max(7, _days(expected)) else 0.5


def _days(span: Span) -> int:
    return (span[1] - span[0]).days + 1


def _span(parts: dict[str, str]) -> Span | None:
    year = int(parts["y"])
    if "m" not in parts:
        return date(year, 1, 1), date(year, 12, 31)
    month = int(parts["m"]) if parts["m"].isdigit() else MONTHS[parts["m"][:3].lower()]
    try:
        if "d" in parts:
            return (day := date(year, month, int(parts["d"]))), day
        return date(year, month, 1), date(year, month, calendar.monthrange(year, month)[1])
    except ValueError:
        return None


def _shift(span: Span, unit: str, side: str) -> Span:
    """Return the days that a phrase such as "week before" or "Friday after" means relative to `span`."""
    first, last = span
    if unit in DAYS:
        back, ahead = (first.weekday() - DAYS[unit] - 1) % 7 + 1, (DAYS[unit] - last.weekday() - 1) % 7 + 1
        day = first - timedelta(back) if side == "before" else last + timedelta(ahead)
        return day, day
    length = timedelta(_LENGTH[unit.removesuffix("s")])
    one_day = timedelta(1)
    return (first - length, first - one_day) if side == "before" else (last + one_day, last + length)
