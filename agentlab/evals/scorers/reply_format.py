"""Is the reply in the form that the data set asks for, in `metadata.format` of the turn?

json        the reply is one JSON value, in a code fence or not
number      a number, with a unit or without
date        a day, a month or a year
yes/no      yes or no, alone or at the beginning
list        lines that begin with a dash, a star or a number
{"max_words": 5}, {"choices": ["red", "blue"]}     so many words at the most; one of these, whatever its case
"""

from __future__ import annotations

import json
import re
from typing import Any

from agentlab.data.conversations import Turn
from agentlab.evals.scorers import Score, TurnOutcome
from agentlab.evals.scorers.dates import find_dates
from agentlab.evals.scorers.words import normalise
from agentlab.knowledge.citations import strip_markers

FORMS = ("json", "number", "date", "yes/no", "list")


def metrics(turn: Turn) -> tuple[str, ...]:
    # Metadata is free: what is not of the form is somebody else's.
    form = turn.metadata.get("format")
    ours = (
        form in FORMS if isinstance(form, str) else isinstance(form, dict) and bool({*form} & {"max_words", "choices"})
    )
    return ("format",) if ours else ()


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    form = turn.metadata["format"]
    kept = is_in_form(strip_markers(outcome.reply.text).strip(), form)
    return {"format": Score(value=float(kept), reason=f"{'as' if kept else 'not as'} asked: {json.dumps(form)[:100]}")}


def is_in_form(said: str, form: Any) -> bool:
    if isinstance(form, dict):
        words, choices = form.get("max_words"), form.get("choices")
        few = not isinstance(words, int) or 0 < len(said.split()) <= words
        return few and (not isinstance(choices, list) or normalise(said) in {normalise(str(each)) for each in choices})
    if form == "json":
        fenced = re.fullmatch(r"```(?:json)?\s*(.*?)\s*```", said, re.DOTALL)
        try:
            json.loads(fenced[1] if fenced else said, parse_constant=_no_json)
        except (ValueError, RecursionError):
            return False
        return True
    if form == "number":
        return bool(re.fullmatch(r"[^\w\s]?\s?-?(\d{1,3}(,\d{3})+|\d+)(\.\d+)?\s?[^\d\s]*\.?", said))
    if form == "date":
        dates, rest = find_dates(said)
        return len(dates) == 1 and not normalise(rest)
    lines = said.splitlines()
    if form == "list":
        return bool(lines) and all(re.match(r"\s*([-*\u2022]|\d+[.)])\s+\S", line) for line in lines if line.strip())
    words = normalise(said).split()
    both = {"yes", "no"} <= {*words} and (len(words) == 2 or words[1] in ("and", "or"))
    return words[:1] in (["yes"], ["no"]) and not both


def _no_json(name: str) -> None:
    """Python reads NaN and Infinity, which JSON has not."""
    raise ValueError(name)
