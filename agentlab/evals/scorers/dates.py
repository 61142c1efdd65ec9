"""Dates in running English as spans of days, so that "7 May 2023", "May 7th, 2023" and "2023-05-07" are one.

A month or a year alone is all of its days. "The week before 9 June 2023" is the seven days before, "Friday before" that
day, "a few days after" the week after. What has no year is no date.
"""

from __future__ import annotations

import calendar
import re
from datetime import date, timedelta

Span = tuple[date, date]
"""First and last day."""
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
_RELATIVE = re.compile(rf"(?P<unit>{'|'.join(DAYS)}|days?|weeks?|weekends?|months?)\s+(?P<way>before|after)\s*$", re.I)
_LENGTH = {"day": 7, "week": 7, "weekend": 7, "month": 31}
"""Days; "a few days before" is about a week."""


def find_dates(text: str) -> tuple[list[Span], str]:
    """The spans of a text in order, and the text without them."""
    if not _YEAR.search(text):
        return [], text
    found, rest, end = [], [], 0
    for match in _DATE.finditer(text):
        span = _span({name[0]: value for name, value in match.groupdict().items() if value})
        if span is None:
            continue
        before = text[end : match.start()]
        if said := _RELATIVE.search(before):
            span, before = _moved(span, said["unit"].lower(), said["way"].lower()), before[: said.start()]
        found.append(span)
        rest.append(before)
        end = match.end()
    return found, " ".join([*rest, text[end:]])


def share_of_date(said: list[Span], reference: list[Span]) -> float:
    """1 where each span of the reference is met by one that is no vaguer, half where only by a vaguer one."""
    return sum(max((_met(span, ours) for ours in said), default=0.0) for span in reference) / len(reference)


def _met(reference: Span, said: Span) -> float:
    if said[1] < reference[0] or said[0] > reference[1]:
        return 0.0
    return 1.0 if _days(said) <= max(7, _days(reference)) else 0.5


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


def _moved(span: Span, unit: str, way: str) -> Span:
    first, last = span
    if unit in DAYS:
        days = (
            (first.weekday() - DAYS[unit] - 1) % 7 + 1 if way == "before" else (DAYS[unit] - last.weekday() - 1) % 7 + 1
        )
        day = first - timedelta(days) if way == "before" else last + timedelta(days)
        return day, day
    length = timedelta(_LENGTH[unit.removesuffix("s")])
    one = timedelta(1)
    return (first - length, first - one) if way == "before" else (last + one, last + length)
