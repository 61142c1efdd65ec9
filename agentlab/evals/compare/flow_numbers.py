"""Numbers of a flow as every surface prints them: right, failed, and the costs of a turn."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import UNSET
from msgspec.structs import replace

from agentlab.evals.store.measures import is_quality, score_text
from agentlab.evals.store.rows import FlowSummary

NUMBERS = ("flow", "right", "mean", "failed", "cost a turn", "calls", "tokens", "seconds", "verdict")
"""Titles of the fields of `FlowNumbers`."""
WEAK = 0.9
"""A mean above this is no weak point."""
WEAKNESS = {
    "answered": "declines {} of {} turns that it could answer",
    "refusal_accuracy": "answers {} of {} turns that it should decline",
}


def legend(answer: str, right: Mapping[str, tuple[int, int]], means: Mapping[str, float]) -> list[str]:
    """Return the meaning of `right` and `mean`, and the leading flows if they differ."""
    counts = {name: count / graded for name, (count, graded) in right.items()}
    most, highest = ([name for name in each if each[name] == max(each.values())] for each in (counts, means))
    parts = [f"right: {answer} of .5 or more", "mean: 0 to 1 [95 %]"]
    if most and not {*most} & {*highest}:
        parts += [f"most often right: {', '.join(most)}", f"highest mean, which tests compare: {', '.join(highest)}"]
    return parts


def weakness(flow: FlowSummary, means: Mapping[str, float | None], primary: Sequence[str]) -> str:
    """Return the quality furthest from its best value, one of `WEAKNESS` or a primary one; "" if none is weak."""
    own = {name: value for name, value in means.items() if value is not None and name != "failed"}
    weak = [name for name in (*WEAKNESS, *primary) if is_quality(name) and own.get(name, 1.0) < WEAK]
    if not weak:
        return ""
    name = min(weak, key=lambda name: (name not in WEAKNESS, own[name]))
    n = flow.scores[name].n if name in WEAKNESS else 0
    return WEAKNESS.get(name, f"{name} {own[name]:.2f}").format(round((1 - own[name]) * n), n)


class FlowNumbers(NamedTuple):
    """Numbers of a flow as every surface prints them; "-" is unknown."""

    flow: str
    right: str
    """Turns with an answer score of .5 or more, of all graded turns."""
    mean: str
    """Mean of the answer measure with its 95 % interval."""
    failed: str
    cost: str
    """Dollars of a turn, or its input and output tokens if a flow has no price."""
    calls: str
    tokens: str
    seconds: str
    decides: str
    """Reason for or against the flow."""


def flow_numbers(name: str, flow: FlowSummary, answer: str, right: str, decides: str, *, priced: bool) -> FlowNumbers:
    """Return the numbers of a flow; `answer` is the measure of the answer, its cost is in dollars if `priced`."""
    own = {cost: flow.per_turn(cost) for cost in ("cost_usd", "llm_calls", "input_tokens", "output_tokens")}
    tokens, latency = [own["input_tokens"], own["output_tokens"]], flow.latency_s["mean"]
    score = flow.scores.get(answer)
    total = "-" if None in tokens else f"{sum(filter(None, tokens)):,.0f}"
    cost = "-" if None in tokens else f"{tokens[0]:,.0f} tokens in, {tokens[1]:,.0f} out"
    if priced and own["cost_usd"] is not None:
        cost = f"${own['cost_usd']:.2g}"
    mean = score_text(score and replace(score, undecided=UNSET))
    calls = "-" if own["llm_calls"] is None else f"{own['llm_calls']:.2f}"
    seconds = "-" if latency is None else f"{latency:.1f}" if latency >= 1 else f"{latency:.2f}"
    return FlowNumbers(name, right, mean, f"{flow.errors} of {flow.turns}", cost, calls, total, seconds, decides)
