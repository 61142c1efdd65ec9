"""Reads the verdict out of a judge's reply, which may have text around it.

read_verdict('Let me see.\\n```json\\n{"Verdict": " YES. "}\\n```', ["yes", "no"])    # "yes"
read_verdict('{"verdict": "partially"}', ["yes", "no"])                            # None
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from typing import Any

from agentlab.core.strict_json import LENIENT, objects_in
from agentlab.core.thoughts import split_thought

_BOOLEANS = {True: ("yes", "true"), False: ("no", "false")}
_STRING = r'"(?:\\.|[^"\\])*"'
_QUOTES = str.maketrans("“”„", '"""')
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*.*?\*/", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)


def read_verdict(text: str, choices: Collection[str]) -> str | None:
    """Return the choice named by the first JSON object with a verdict, or by the whole reply; None for neither.

    Text inside a quoted JSON string is no object: it may be the judged reply's own.
    """
    answer = split_thought(text)[0].strip()
    if answer.startswith('"') and answer.endswith('"'):
        try:
            return read_verdict(str(LENIENT.decode(answer)), choices)
        except (ValueError, RecursionError):
            pass
    for reading in (answer, _repaired(answer)):
        for parsed in objects_in(reading):
            if (verdicts := [*_verdicts(parsed)]) != []:
                return _choice(verdicts[0], choices)
    return _choice(answer, choices)


def _repaired(text: str) -> str:
    """Return the text with plain quotes, without comments and trailing commas."""
    for pattern in (_COMMENT, _TRAILING_COMMA):
        text = pattern.sub(lambda part: part[0] if part[0].startswith('"') else "", text.translate(_QUOTES))
    return text


def _verdicts(value: Any) -> Iterator[Any]:
    """Yield what stands under the key `verdict`, in any case, at any depth."""
    if isinstance(value, dict):
        yield from (part for key, part in value.items() if key.strip().casefold() == "verdict")
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    for part in parts:
        yield from _verdicts(part)


def _choice(value: Any, choices: Collection[str]) -> str | None:
    names = _BOOLEANS[value] if isinstance(value, bool) else (str(value),)
    plain = {name.strip(" \n\t.!*`'\"").casefold() for name in names}
    return next((choice for choice in choices if choice.casefold() in plain), None)
