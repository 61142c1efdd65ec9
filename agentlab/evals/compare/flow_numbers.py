"""Numbers of a flow as every surface prints them: right, failed, and the costs of a turn."""

from __future__ import annotations

from typing import NamedTuple

from agentlab.evals.store.measures import score_text
from agentlab.evals.store.rows import FlowSummary

NUMBERS = ("flow", "right", "mean", "failed", "cost a turn", "calls", "tokens", "seconds", "verdict")
"""Titles of the fields of `FlowNumbers`."""


def legend(measure: str) -> str:
    """Return what `right` and `mean` are, of a measure of the answer."""
    return f"right: {measure} of .5 or more; mean: 0 to 1 [95 %]"


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
    tokens = [own["input_tokens"], own["output_tokens"]]
    total = "-" if None in tokens else f"{sum(filter(None, tokens)):,.0f}"
    spent = "-" if None in tokens else f"{tokens[0]:,.0f} tokens in, {tokens[1]:,.0f} out"
    dollars, latency = own["cost_usd"] if priced else None, flow.latency_s["mean"]
    return FlowNumbers(
        flow=name,
        right=right,
        mean=score_text(flow.scores.get(answer)),
        failed=f"{flow.errors} of {flow.turns}",
        cost=spent if dollars is None else f"${dollars:.2g}",
        calls="-" if own["llm_calls"] is None else f"{own['llm_calls']:.2f}",
        tokens=total,
        seconds="-" if latency is None else f"{latency:.1f}" if latency >= 1 else f"{latency:.2f}",
        decides=decides,
    )
