"""Compares the tool calls of a turn with the expected calls: names, arguments, order and validity.

`tool_precision` and `tool_recall` compare names with their counts, on turns that expect a call; without a call both are
0. 1 - precision is the share of needless calls, 1 - recall the share of missing ones.

`tool_f1` is their harmonic mean. On a turn that expects no call it is 1 if there is none, and so is `no_call_accuracy`,
the irrelevance detection of BFCL (Patil et al., Berkeley Function Calling Leaderboard).

`argument_accuracy` is the share of the expected calls with a call of that name that has only accepted arguments; each
call counts once. Expected calls with `arguments_visible_in_context: false` are left out.

`call_order` is 1 if the names occur in the order that a turn with `call_order: sequence` expects. Other calls may occur
in between.

`valid_calls` is the share of the model's calls that could run, 1 if it made none. Invalid are an unknown tool, a
malformed call, a call that the tool rejects, and a choice that the flow cannot parse.

An argument is right if it equals an accepted value. Texts compare as in BFCL's AST check: case, spaces and the
characters , . / - _ * ^ do not count, and both quotes are equal. `5`, `5.0` and `"5"` are equal, `true` and `"true"`
too; lists and objects compare part by part. An argument may be missing, null or empty in three cases: it is in
`optional_arguments`, "" is accepted, or the tool's default is accepted. An empty list or object is right if accepted.
An argument that is not expected must be missing or equal the default.

A call in a flow's closing step (below a step `final_memory` or `after_response`) counts only if the turn expects a call
of that name. Otherwise `memory_writes` grades it.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentlab.core.constants import CLOSING_STEPS, INVALID_CHOICE
from agentlab.core.events import Decision, Event, Step, ToolRun
from agentlab.core.messages import ToolCall
from agentlab.core.schemas import properties_of
from agentlab.data.conversations import ExpectedCall, Turn
from agentlab.evals.scorers import Score, TurnOutcome

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,30})(\.\d{1,30})?")
_UNCOMPARED = re.compile(r"[ ,./\-_*^]")
"""Characters that `standardize_string` of BFCL's checker removes."""


def metrics(turn: Turn) -> tuple[str, ...]:
    if turn.expected_calls is None and not turn.no_call:
        return ()
    expected = turn.expected_calls or []
    if not expected:
        return ("tool_f1", "no_call_accuracy", "valid_calls")
    names = ["tool_f1", "tool_precision", "tool_recall", "valid_calls"]
    if any(call.arguments_visible_in_context for call in expected):
        names.append("argument_accuracy")
    if turn.call_order == "sequence" and len(expected) > 1:
        names.append("call_order")
    return tuple(names)


def score(turn: Turn, outcome: TurnOutcome) -> dict[str, Score]:
    from scipy.optimize import linear_sum_assignment  # loading scipy takes half a second

    expected = turn.expected_calls or []
    expected_names = Counter(call.name for call in expected)
    calls = _graded_calls(outcome.events, expected_names)
    called_names = Counter(call.name for call in calls)
    right = (called_names & expected_names).total()
    reason = f"called {_listed(called_names) or 'nothing'}; expected {_listed(expected_names) or 'no call'}"
    total = called_names.total() + expected_names.total()
    scores = {"tool_f1": Score(value=2 * right / total if total else 1.0, reason=reason), **_validity(outcome.events)}
    if not expected:
        return {**scores, "no_call_accuracy": Score(value=float(not calls), reason=reason)}
    scores["tool_precision"] = Score(value=right / len(calls) if calls else 0.0, reason=reason)
    scores["tool_recall"] = Score(value=right / len(expected), reason=reason)
    if checkable := [call for call in expected if call.arguments_visible_in_context]:
        defaults = {tool.name: _defaults(tool.parameters) for tool in outcome.tools}
        fits = np.array([[_fits(c, e, defaults.get(e.name, {})) for c in calls] for e in checkable])
        # Assign each call to at most one expected call, so that as many as possible match.
        matched = int(fits[linear_sum_assignment(fits, maximize=True)].sum())
        called = _with_arguments(calls, expected_names)
        reason = f"{matched} of {len(checkable)} calls have accepted arguments; {called}"
        scores["argument_accuracy"] = Score(value=matched / len(checkable), reason=reason)
    if "call_order" in metrics(turn):
        names = iter(call.name for call in calls)
        in_order = all(any(name == e.name for name in names) for e in expected)
        order = f"called {', '.join(c.name for c in calls) or 'nothing'}"
        reason = f"{order}; expected {', '.join(e.name for e in expected)}"
        scores["call_order"] = Score(value=float(in_order), reason=reason)
    return scores


def _graded_calls(events: Sequence[Event], expected_names: Mapping[str, int]) -> list[ToolCall]:
    """Return the calls of a turn without those of closing steps that the turn does not expect."""
    parents = {event.id: event.parent for event in events}
    closing = {event.id for event in events if isinstance(event, Step) and event.name in CLOSING_STEPS}

    def in_closing_step(event_id: int | None) -> bool:
        while event_id is not None and event_id not in closing:
            event_id = parents.get(event_id)
        return event_id is not None

    runs = [event for event in events if isinstance(event, ToolRun)]
    return [run.call for run in runs if run.call.name in expected_names or not in_closing_step(run.id)]


def _validity(events: Sequence[Event]) -> dict[str, Score]:
    runs = [event for event in events if isinstance(event, ToolRun)]
    rejected = [f"{run.call.name}: {run.error}" for run in runs if run.error is not None]
    unparsed = [event.why for event in events if isinstance(event, Decision) and event.choice == INVALID_CHOICE]
    total = len(runs) + len(unparsed)
    invalid = [*rejected, *unparsed]
    reason = f"invalid: {'; '.join(invalid)[:300]}" if invalid else f"{total} calls, all valid"
    return {"valid_calls": Score(value=1 - len(invalid) / total if total else 1.0, reason=reason)}


def _fits(call: ToolCall, expected: ExpectedCall, defaults: Mapping[str, Any]) -> bool:
    if call.name != expected.name or call.malformed is not None:
        return False
    given = {name: value for name, value in call.arguments.items() if value not in (None, "", [], {})}
    for name, accepted in expected.accepted_arguments.items():
        values = [canonical(value) for value in accepted]
        right = name in call.arguments and canonical(call.arguments[name]) in values
        if name not in given and not right:
            may_be_missing = name in expected.optional_arguments or "" in values or None in values
            right = may_be_missing or (name in defaults and canonical(defaults[name]) in values)
        if not right:
            return False
    others = {name: value for name, value in given.items() if name not in expected.accepted_arguments}
    return all(name in defaults and canonical(value) == canonical(defaults[name]) for name, value in others.items())


def canonical(value: Any) -> Any:
    """Return `value` in a form in which equivalent values are equal."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value).strip().casefold()
        number = _NUMBER.fullmatch(text)
        if number is None:
            # A text of these characters alone, such as "+" or "/", is compared as it is.
            return _UNCOMPARED.sub("", text).replace("'", '"') or text
        return float(text) if number[2] else int(text)
    if isinstance(value, Mapping):
        return {key: canonical(inner) for key, inner in value.items()}
    return [canonical(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _defaults(parameters: Mapping[str, Any]) -> dict[str, Any]:
    specs = properties_of(parameters).items()
    return {name: spec["default"] for name, spec in specs if isinstance(spec, Mapping) and "default" in spec}


def _listed(names: Counter[str]) -> str:
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in sorted(names.items()))


def _with_arguments(calls: Sequence[ToolCall], expected_names: Mapping[str, int]) -> str:
    texts = [f"{c.name}({c.malformed or c.arguments})" for c in calls if c.name in expected_names]
    return "; ".join(texts)[:300] or "none was made"
