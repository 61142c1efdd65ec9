"""What a run will take, as far as it can be known before it starts, and what it may spend."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import Usage
from agentlab.core.trace import Totals, Trace, billed_totals, exact_sum
from agentlab.data.datasets import Dataset
from agentlab.workbench.spec import BudgetSpec
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
ASSUMED_CALL_USAGE = Usage(input_tokens=800, cached_tokens=0, output_tokens=60)
OVERDRAFT_FACTOR = 1.1
"""Shares of a budget that finishing the conversations under way may come to."""
WRITE_CALLS_GUESSED = 2
"""Of a flow that fills its memory itself, for each thing it is told: what to do, and the arguments."""


def estimate(bench: Workbench, datasets: Sequence[Dataset]) -> str:
    """Calls from what each flow says of itself; minutes where the model knows its pace; dollars by the price table."""
    variants, spec = bench.variants, bench.spec
    conversations = sum(len(d.conversations) for d in datasets) * len(variants) * spec.epochs
    turns = sum(d.turns for d in datasets) * spec.epochs
    writes = 0
    if spec.ingest == "flow":
        told = sum(
            len(session.turns) for d in datasets for sessions in d.memory_sessions.values() for session in sessions
        )
        writes = WRITE_CALLS_GUESSED * told * spec.epochs
    calls = [v.says("CALLS_PER_TURN", 1.0) * turns + (writes if v.memory else 0) for v in variants]
    # A flow that does not say how often it asks is taken to ask once a turn.
    about = "at least" if any(v.says("CALLS_PER_TURN") is None for v in variants) else "about"
    flows = f" over {len(variants)} flows" if len(variants) > 1 else ""
    work = f"{conversations} conversations, {turns * len(variants)} turns{flows}, {about} {sum(calls):.0f} model calls"
    if spec.mode == "replay":
        return f"{work}, all from recordings: no model is asked, nothing is billed"

    def total(per_call: Callable[[str], float | None]) -> float | None:
        found = [(made, per_call(v.model)) for made, v in zip(calls, variants, strict=True)]
        summed: float | None = exact_sum(None if each is None else made * each for made, each in found)
        return summed

    seconds, dollars = total(bench.seconds_per_call), total(lambda model: bench.prices.cost(model, ASSUMED_CALL_USAGE))
    minutes = "unknown time" if seconds is None else f"about {max(1, round(seconds / 60))} min"
    usd = "price unknown" if dollars is None else f"about ${dollars:.2f}"
    known = "; what is recorded is not asked again" if spec.mode == "auto" else ""
    lacking = "".join(
        f"\n{model} has no price, so what it costs stays unknown; give it one with --set prices=prices.yaml, a file"
        f" with models: {{{model}: {{input: 0.25, output: 2.00}}}}, dollars per million tokens"
        for model in dict.fromkeys(v.model for v in variants)
        if bench.prices.price_of(model) is None
    )
    return f"{work}, {minutes}, {usd}{known}{lacking}"


class Budget:
    """The limits of a run, and what was paid for."""

    def __init__(self, limits: BudgetSpec, cost: Callable[[str, Usage], float | None]) -> None:
        """`cost` is in dollars, of a call of a model."""
        self._limits: dict[str, float] = limits.model_dump(exclude_none=True)
        self._cost = cost
        self._paid = Totals()
        self._began = time.monotonic()
        self._has_told = False

    def count(self, trace: Trace, event: Event) -> None:
        """To be called with each new event, and once with those of earlier sittings."""
        if not (self._limits and event.is_billable and event.origin == "live"):
            return
        paid = billed_totals([event])
        if isinstance(event, ModelCall) and _is_broken_off(event):
            # Nobody knows its tokens: it counts as a call of middling length.
            paid = Totals(
                llm_calls=1,
                input_tokens=ASSUMED_CALL_USAGE.input_tokens,
                output_tokens=ASSUMED_CALL_USAGE.output_tokens,
                cost_usd=self._cost(event.model, ASSUMED_CALL_USAGE),
            )
        self._paid = Totals.sum((self._paid, paid))

    @property
    def is_spent(self) -> bool:
        """Whether no more conversations are to begin."""
        return self._has_reached(1.0)

    @property
    def is_overdrawn(self) -> bool:
        """Whether those under way are not to be finished either."""
        return self._has_reached(OVERDRAFT_FACTOR)

    def _has_reached(self, share: float) -> bool:
        if not self._limits:
            return False
        paid, minutes = self._paid, (time.monotonic() - self._began) / 60
        tokens = exact_sum((paid.input_tokens, paid.output_tokens))
        spent = {"usd": paid.cost_usd, "calls": paid.llm_calls, "tokens": tokens, "minutes": minutes}
        why = ""
        for name, most in self._limits.items():
            if (reached := spent[name]) is None:
                counted = "dollars" if name == "usd" else "they"
                why = f"a reply reported no tokens, so {counted} can no longer be counted; the run stops here"
            elif reached >= share * most and not why:
                told = (
                    f"${paid.cost_usd or 0.0:.4f}, {paid.llm_calls} calls, {tokens or 0} tokens, {minutes:.1f} minutes"
                )
                why = f"the budget is spent: {told}; the run stops here and can be resumed"
        if why and not self._has_told:
            log.warning("%s", why)
            self._has_told = True
        return bool(why)


def _is_broken_off(call: ModelCall) -> bool:
    said = call.completion
    return said is not None and said.finish_reason == "interrupted" and said.usage.input_tokens is None
