"""Estimate of a run before it starts, and its budget."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import Completion, Usage
from agentlab.core.trace import Totals, Trace, billed_totals, exact_sum
from agentlab.data.datasets import Dataset
from agentlab.workbench.spec import BudgetSpec
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
ASSUMED_CALL_USAGE = Usage(input_tokens=800, cached_tokens=0, output_tokens=60)
OVERDRAFT_FACTOR = 1.1
"""Multiple of the budget that running conversations may use before they are stopped."""
WRITE_CALLS_GUESSED = 2
"""Assumed calls per message while a flow fills its memory: one for the operation, one for its arguments."""


def estimate(bench: Workbench, datasets: Sequence[Dataset]) -> str:
    """Return a line with the expected calls, minutes and dollars of a run.

    Calls come from `CALLS_PER_TURN` of each flow, minutes from the model if it reports its pace, dollars from the price
    table.
    """
    variants, spec = bench.variants, bench.spec
    conversations = sum(len(d.conversations) for d in datasets) * spec.epochs
    turns = sum(d.turns for d in datasets) * spec.epochs
    writes = 0
    if spec.ingest == "flow":
        messages = sum(
            len(session.turns) for d in datasets for sessions in d.memory_sessions.values() for session in sessions
        )
        writes = WRITE_CALLS_GUESSED * messages * spec.epochs
    calls = [v.attribute("CALLS_PER_TURN", 1.0) * turns + (writes if v.memory else 0) for v in variants]
    # A flow without CALLS_PER_TURN is assumed to make one call per turn.
    bound = "at least" if any(v.attribute("CALLS_PER_TURN") is None for v in variants) else "about"
    flows = f" x {len(variants)} flows" if len(variants) > 1 else ""
    work = f"{conversations} conversations, {turns} turns{flows}, {bound} {sum(calls):.0f} model calls"
    if spec.mode == "replay":
        return f"{work}, all from recordings: no model calls, no cost"

    def total(per_call: Callable[[str], float | None]) -> Any:
        amounts = [(made, per_call(v.model)) for made, v in zip(calls, variants, strict=True)]
        return exact_sum(None if each is None else made * each for made, each in amounts)

    seconds, dollars = total(bench.seconds_per_call), total(lambda model: bench.prices.cost(model, ASSUMED_CALL_USAGE))
    minutes = "unknown time" if seconds is None else f"about {max(1, round(seconds / 60))} min"
    usd = "price unknown" if dollars is None else f"about ${dollars:.2f}"
    note = "; recorded calls are not repeated" if spec.mode == "auto" else ""
    unpriced = "".join(
        f"\n{model} has no price, so its cost is unknown; set one with --set prices=prices.yaml, a file"
        f" with models: {{{model}: {{input: 0.25, output: 2.00}}}}, dollars per million tokens"
        for model in dict.fromkeys(v.model for v in variants)
        if bench.prices.price_of(model) is None
    )
    return f"{work}, {minutes}, {usd}{note}{unpriced}"


class Budget:
    """Budget of a run, and the spending so far."""

    def __init__(self, limits: BudgetSpec, cost: Callable[[str, Usage], float | None]) -> None:
        """Take the limits, and `cost`, which returns the dollars of a call from model and usage."""
        self._limits: dict[str, float] = limits.model_dump(exclude_none=True)
        self._cost = cost
        self._paid = Totals()
        self._started = time.monotonic()
        self._is_reported = False

    def count(self, trace: Trace, event: Event) -> None:
        """Charge an event; call it for each new event, and once for those of earlier processes."""
        if not (self._limits and event.is_billable and event.origin == "live"):
            return
        match event:
            case ModelCall(completion=Completion(finish_reason="interrupted", usage=Usage(input_tokens=None)) as reply):
                # Its tokens are unknown, so it is charged as a call of assumed length.
                cost = self._cost(event.model, ASSUMED_CALL_USAGE)
                event = replace(event, completion=replace(reply, usage=ASSUMED_CALL_USAGE), cost_usd=cost)
        self._paid = Totals.sum((self._paid, billed_totals([event])))

    @property
    def is_spent(self) -> bool:
        """True if no more conversations may start."""
        return self._has_reached(1.0)

    @property
    def is_overdrawn(self) -> bool:
        """True if running conversations must stop, too."""
        return self._has_reached(OVERDRAFT_FACTOR)

    def _has_reached(self, fraction: float) -> bool:
        if not self._limits:
            return False
        paid, minutes = self._paid, (time.monotonic() - self._started) / 60
        tokens = exact_sum((paid.input_tokens, paid.output_tokens))
        spent = {"usd": paid.cost_usd, "calls": paid.llm_calls, "tokens": tokens, "minutes": minutes}
        why = ""
        for name, limit in self._limits.items():
            if (used := spent[name]) is None:
                counted = "dollars" if name == "usd" else "they"
                why = f"a reply reported no tokens, so {counted} can no longer be counted; the run stops here"
            elif used >= fraction * limit and not why:
                numbers = (
                    f"${paid.cost_usd or 0.0:.4f}, {paid.llm_calls} calls, {tokens or 0} tokens, {minutes:.1f} minutes"
                )
                why = f"the budget is spent: {numbers}; the run stops here and can be resumed"
        if why and not self._is_reported:
            log.warning("%s", why)
            self._is_reported = True
        return bool(why)
