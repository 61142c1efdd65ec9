"""What a run will take, as far as it can be known before it starts, and what it may spend."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import Usage
from agentlab.core.names import Mode
from agentlab.core.trace import Totals, Trace, add_up, billed
from agentlab.data.datasets import Dataset
from agentlab.workbench.spec import BudgetSpec
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
CALL_GUESSED = Usage(input_tokens=800, cached_tokens=0, output_tokens=60)
OVERDRAFT = 1.1
"""Shares of a budget that finishing the conversations under way may come to."""
WRITE_CALLS_GUESSED = 2
"""Of a flow that fills its memory itself, for each thing it is told: what to do, and the arguments."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run will take, as far as it can be known before; None where it cannot."""

    flows: int
    conversations: int
    turns: int
    """Both over all flows and epochs."""
    llm_calls: float
    at_least: bool
    """True where a flow does not say how often it asks (`CALLS_PER_TURN`): one call a turn is then assumed."""
    seconds: float | None
    usd: float | None
    mode: Mode = "live"
    unpriced: tuple[str, ...] = ()
    """Models that will be asked and that no price table has."""

    def __str__(self) -> str:
        calls = f"{'at least' if self.at_least else 'about'} {self.llm_calls:.0f}"
        flows = f" over {self.flows} flows" if self.flows > 1 else ""
        what = f"{self.conversations} conversations, {self.turns} turns{flows}, {calls} model calls"
        if self.mode == "replay":
            return f"{what}, all from recordings: no model is asked, nothing is billed"
        minutes = "unknown time" if self.seconds is None else f"about {max(1, round(self.seconds / 60))} min"
        usd = "price unknown" if self.usd is None else f"about ${self.usd:.2f}"
        known = "; what is recorded is not asked again" if self.mode == "auto" else ""
        lacking = "".join(
            f"\n{model} has no price, so what it costs stays unknown; give it one with --set prices=prices.yaml, a file"
            f" with models: {{{model}: {{input: 0.25, output: 2.00}}}}, dollars per million tokens"
            for model in self.unpriced
        )
        return f"{what}, {minutes}, {usd}{known}{lacking}"


def estimate(bench: Workbench, datasets: tuple[Dataset, ...]) -> Estimate:
    """Calls from what each flow says of itself; minutes where the model knows its pace; dollars by the price table."""
    conversations = sum(len(d.conversations) for d in datasets) * len(bench.variants) * bench.spec.epochs
    turns = sum(d.turns for d in datasets) * bench.spec.epochs
    writes = 0
    if bench.spec.ingest == "flow":
        told = sum(len(session.turns) for d in datasets for sessions in d.told.values() for session in sessions)
        writes = WRITE_CALLS_GUESSED * told * bench.spec.epochs
    calls = [v.says("CALLS_PER_TURN", 1.0) * turns + (writes if v.memory else 0) for v in bench.variants]

    def total(per_call: Iterable[float | None]) -> float | None:
        sums = zip(calls, per_call, strict=True)
        found: float | None = add_up(None if each is None else made * each for made, each in sums)
        return found

    return Estimate(
        flows=len(bench.variants),
        conversations=conversations,
        turns=turns * len(bench.variants),
        llm_calls=sum(calls),
        at_least=any(v.says("CALLS_PER_TURN") is None for v in bench.variants),
        seconds=total(bench.seconds_per_call(v.model) for v in bench.variants),
        usd=total(bench.prices.cost(v.model, CALL_GUESSED) for v in bench.variants),
        mode=bench.spec.mode,
        unpriced=tuple(dict.fromkeys(v.model for v in bench.variants if bench.prices.of(v.model) is None)),
    )


class Budget:
    """The limits of a run, and what was paid for."""

    def __init__(self, limits: BudgetSpec, cost: Callable[[str, Usage], float | None]) -> None:
        """`cost` is in dollars, of a call of a model."""
        self._limits = limits
        self._is_limited = limits != BudgetSpec()
        self._cost = cost
        self._paid = Totals()
        self._began = time.monotonic()
        self._has_told = False

    def count(self, trace: Trace, event: Event) -> None:
        """To be called with each new event, and once with those of earlier sittings."""
        if not (self._is_limited and event.costed and event.origin == "live"):
            return
        paid = billed([event])
        if isinstance(event, ModelCall) and _is_broken_off(event):
            # Nobody knows its tokens: it counts as a call of middling length.
            paid = Totals(
                llm_calls=1,
                input_tokens=CALL_GUESSED.input_tokens,
                output_tokens=CALL_GUESSED.output_tokens,
                cost_usd=self._cost(event.model, CALL_GUESSED),
            )
        self._paid = Totals.sum((self._paid, paid))

    @property
    def is_spent(self) -> bool:
        """Whether no more conversations are to begin."""
        return self._has_reached(1.0)

    @property
    def is_overdrawn(self) -> bool:
        """Whether those under way are not to be finished either."""
        return self._has_reached(OVERDRAFT)

    def _has_reached(self, share: float) -> bool:
        if not self._is_limited:
            return False
        usd, calls, tokens, minutes = (getattr(self._limits, name) for name in ("usd", "calls", "tokens", "minutes"))
        totals = self._paid
        paid, used = totals.cost_usd, add_up((totals.input_tokens, totals.output_tokens))
        if usd is not None and paid is None:
            self._tell("a reply reported no tokens, so dollars can no longer be counted; the run stops here")
            return True
        if tokens is not None and used is None:
            self._tell("a reply reported no tokens, so they can no longer be counted; the run stops here")
            return True
        passed = (time.monotonic() - self._began) / 60
        spent = ((paid, usd), (totals.llm_calls, calls), (used, tokens), (passed, minutes))
        over = any(most is not None and reached is not None and reached >= share * most for reached, most in spent)
        if over:
            told = f"${paid or 0.0:.4f}, {totals.llm_calls} calls, {used or 0} tokens, {passed:.1f} minutes"
            self._tell(f"the budget is spent: {told}; the run stops here and can be resumed")
        return over

    def _tell(self, why: str) -> None:
        if not self._has_told:
            log.warning("%s", why)
        self._has_told = True


def _is_broken_off(call: ModelCall) -> bool:
    said = call.completion
    return said is not None and said.finish_reason == "interrupted" and said.usage.input_tokens is None
