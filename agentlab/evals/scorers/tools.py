"""Tool calls against those a turn expects: the right tools, the right arguments, none where none is due.

`tool_precision` and `tool_recall` compare names, as often as each is called and expected, on turns that expect a call:
1 - precision is the share of needless calls, 1 - recall that of missing ones; without a call both are 0.
`tool_f1` is their harmonic mean, on turns that expect no call 1 if there is none; `no_call_accuracy` is that alone, the
irrelevance detection of BFCL (Patil et al., Berkeley Function Calling Leaderboard). `argument_accuracy` is the share of
the expected calls for which a call of that name has only accepted arguments, each used once; calls whose arguments
cannot be known (`arguments_visible_in_context: false`) are left out. `call_order` is 1 if the names stand in the order
a turn with `call_order: sequence` expects, whatever is called between. `valid_calls` is the share of what the model
wrote as calls that could be run: not an unknown tool, not malformed, not refused by the tool, not a choice the flow
could not read; 1 where it wrote none, and 1 - it is the rate of invalid output.

An argument is right if it equals one of the accepted values, much as in BFCL's AST check: letters compare in lower
case, spaces around a text do not count, `5`, `5.0` and `"5"` are one number, `true` and `"true"` one truth value, and
lists and objects compare part by part. It may be left out, or be null or empty, if it is in `optional_arguments`, if ""
is accepted, or if the tool's default is; one that is not expected at all must be left out or be the default.

A call in a flow's closing step (below a step `final_memory` or `after_response`) is an expected call if the turn
expects one of that name, and else no part of this: what is written on every turn is graded by `memory_writes`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from agentlab.core.constants import CLOSING_STEPS
from agentlab.core.constants import INVALID_CHOICE as INVALID
from agentlab.core.events import Decision, Event, Step, ToolRun
from agentlab.core.messages import ToolCall
from agentlab.data.conversations import ExpectedCall, Turn
from agentlab.evals.scorers import Score, TurnOutcome

_NUMBER = re.compile(r"-?(0|[1-9]\d{0,30})(\.\d{1,30})?")


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
    from scipy.optimize import linear_sum_assignment  # takes half a second to load

    expected = turn.expected_calls or []
    wanted = Counter(call.name for call in expected)
    calls = _judged(outcome.events, wanted)
    made = Counter(call.name for call in calls)
    right = (made & wanted).total()
    reason = f"called {_listed(made) or 'nothing'}; expected {_listed(wanted) or 'no call'}"
    total = made.total() + wanted.total()
    scores = {"tool_f1": Score(value=2 * right / total if total else 1.0, reason=reason), **_valid(outcome.events)}
    if not expected:
        return {**scores, "no_call_accuracy": Score(value=float(not calls), reason=reason)}
    scores["tool_precision"] = Score(value=right / len(calls) if calls else 0.0, reason=reason)
    scores["tool_recall"] = Score(value=right / len(expected), reason=reason)
    known = [call for call in expected if call.arguments_visible_in_context]
    if known:
        defaults = {tool.name: _defaults(tool.parameters) for tool in outcome.tools}
        fits = np.array([[_fits(c, e, defaults.get(e.name, {})) for c in calls] for e in known])
        # As many expected calls as possible have a call of their own.
        matched = int(fits[linear_sum_assignment(fits, maximize=True)].sum())
        reason = f"{matched} of {len(known)} calls have accepted arguments; {_shown(calls, wanted)}"
        scores["argument_accuracy"] = Score(value=matched / len(known), reason=reason)
    if "call_order" in metrics(turn):
        names = iter(call.name for call in calls)
        in_order = all(any(name == e.name for name in names) for e in expected)
        said = f"called {', '.join(c.name for c in calls) or 'nothing'}"
        scores["call_order"] = Score(value=float(in_order), reason=f"{said}; {', '.join(e.name for e in expected)} due")
    return scores


def _judged(events: Sequence[Event], wanted: Mapping[str, int]) -> list[ToolCall]:
    parents = {event.id: event.parent for event in events}
    closing = {event.id for event in events if isinstance(event, Step) and event.name in CLOSING_STEPS}

    def in_closing_step(at: int | None) -> bool:
        while at is not None and at not in closing:
            at = parents.get(at)
        return at is not None

    runs = [event for event in events if isinstance(event, ToolRun)]
    return [run.call for run in runs if run.call.name in wanted or not in_closing_step(run.id)]


def _valid(events: Sequence[Event]) -> dict[str, Score]:
    runs = [event for event in events if isinstance(event, ToolRun)]
    refused = [f"{run.call.name}: {run.error}" for run in runs if run.error is not None]
    unread = [event.why for event in events if isinstance(event, Decision) and event.choice == INVALID]
    written = len(runs) + len(unread)
    wrong = [*refused, *unread]
    reason = f"invalid: {'; '.join(wrong)[:300]}" if wrong else f"{written} calls, all valid"
    return {"valid_calls": Score(value=1 - len(wrong) / written if written else 1.0, reason=reason)}


def _fits(call: ToolCall, expected: ExpectedCall, defaults: Mapping[str, Any]) -> bool:
    if call.name != expected.name or call.malformed is not None:
        return False
    given = {name: value for name, value in call.arguments.items() if value not in (None, "", [], {})}
    for name, accepted in expected.accepted_arguments.items():
        values = [canonical(value) for value in accepted]
        if name in given:
            right = canonical(given[name]) in values
        else:
            may_be_left_out = name in expected.optional_arguments or "" in values or None in values
            right = may_be_left_out or (name in defaults and canonical(defaults[name]) in values)
        if not right:
            return False
    return all(
        name in defaults and canonical(value) == canonical(defaults[name])
        for name, value in given.items()
        if name not in expected.accepted_arguments
    )


def canonical(value: Any) -> Any:
    """`value` so that two that mean the same are equal."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        text = unicodedata.normalize("NFC", value).strip().casefold()
        number = _NUMBER.fullmatch(text)
        return text if number is None else float(text) if number[2] else int(text)
    if isinstance(value, Mapping):
        return {key: canonical(inner) for key, inner in value.items()}
    return [canonical(inner) for inner in value] if isinstance(value, (list, tuple)) else value


def _defaults(parameters: Mapping[str, Any]) -> dict[str, Any]:
    specs = parameters.get("properties")
    if not isinstance(specs, Mapping):
        return {}
    return {name: spec["default"] for name, spec in specs.items() if isinstance(spec, Mapping) and "default" in spec}


def _listed(names: Counter[str]) -> str:
    return ", ".join(name if count == 1 else f"{count} x {name}" for name, count in sorted(names.items()))


def _shown(calls: Sequence[ToolCall], wanted: Mapping[str, int]) -> str:
    shown = [f"{c.name}({c.malformed or c.arguments})" for c in calls if c.name in wanted]
    return "; ".join(shown)[:300] or "none was made"
