"""Formats cells of a spreadsheet as it shows them: 7 as 007, 1.5 as 1.50, a date by its pattern.

as_displayed(7, "000")                            # "007"
as_displayed(datetime(2024, 3, 1), "dd.mm.yyyy")  # "01.03.2024"
"""

from __future__ import annotations

import re
from datetime import date, datetime, time
from typing import Any

_CODES = {"yyyy": "%Y", "yy": "%y", "mmmm": "%B", "mmm": "%b", "mm": "%m", "dddd": "%A", "ddd": "%a", "dd": "%d"}
_CODES |= {
    "hh": "%H",
    "h": "%H",
    "ss": "%S",
    "s": "%S",
    "am/pm": "%p",
    "minute": "%M",
    "m": "{0.month}",
    "d": "{0.day}",
}
_DATE_PART = re.compile(
    # Minutes follow hours or precede seconds; elsewhere the same letters are the month.
    r'"([^"]*)"|\[[^\]]*\]|\\|(?P<minute>(?<=h[:.])m+|m+(?=[:.]s))|am/pm|y+|m+|d+|h+|s+',
    re.IGNORECASE,
)
_LOCAL_DATES = ("mm-dd-yy", "General")
"""Pattern of the built-in short date, which each country shows in another way; here it is ISO."""
_NUMBER = re.compile(r"[#0?,]*[0?#](?:\.([0?#]+))?")


def as_displayed(value: Any, pattern: str) -> str:
    """Return the text of a cell; an unusual pattern gives the plain value."""
    pattern = pattern.split(";")[0]
    if isinstance(value, (datetime, date, time)):
        if pattern in _LOCAL_DATES:
            return value.isoformat().replace("T", " ").removesuffix(" 00:00:00")
        codes = _CODES | ({"hh": "%I", "h": "%I"} if "am/pm" in pattern.lower() else {})
        directives = _DATE_PART.sub(lambda m: m[1] or codes.get("minute" if m["minute"] else m[0].lower(), ""), pattern)
        try:
            return value.strftime(directives).format(value)
        except (AttributeError, LookupError, ValueError):  # a time has no day
            return value.isoformat()
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str("" if value is None else str(value).upper() if isinstance(value, bool) else value)
    return _number(value, pattern)


def _number(value: float, pattern: str) -> str:
    bare = re.sub(r"\[\$([^\]-]*)[^\]]*\]|\[[^\]]*\]|[_*].", r"\1", pattern)
    unquoted = re.sub(r'"[^"]*"', lambda text: " " * len(text[0]), bare)
    digits = _NUMBER.search(unquoted)
    if pattern.lower() in ("general", "@") or digits is None or re.search(r"[Ee][+-]|/", unquoted):
        return f"{value:.15g}"
    before, after = (re.sub(r'["\\]', "", part) for part in (bare[: digits.start()], bare[digits.end() :]))
    scaled = value * 100 if "%" in after else value
    optional, pattern_of_whole = digits[1] or "", digits[0].partition(".")[0]
    whole, _, fraction = f"{abs(scaled):{',' if ',' in pattern_of_whole else ''}.{len(optional)}f}".partition(".")
    fraction = fraction[: optional.count("0")] + fraction[optional.count("0") :].rstrip("0")
    number = whole.zfill(pattern_of_whole.count("0")) + (f".{fraction}" if fraction else "")
    return f"{'-' if scaled < 0 else ''}{before}{number}{after}".strip()
