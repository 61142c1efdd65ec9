"""What a run will take: said before it starts, and only as far as it can be known."""

from __future__ import annotations

from dataclasses import dataclass

from agentlab.data.datasets import Dataset
from agentlab.workbench.workbench import Workbench

INPUT_TOKENS_GUESSED, OUTPUT_TOKENS_GUESSED = 800, 60
WRITE_CALLS_GUESSED = 2
"""Of a flow that fills its memory itself, for each thing it is told: what to do, and the arguments."""


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """What a run will take, as far as it can be known before; None where it cannot."""

    conversations: int
    turns: int
    llm_calls: int | None
    minutes: float | None
    usd: float | None

    def __str__(self) -> str:
        calls = "an unknown number of" if self.llm_calls is None else f"about {self.llm_calls}"
        minutes = "unknown time" if self.minutes is None else f"about {max(1, round(self.minutes))} min"
        usd = "price unknown" if self.usd is None else f"about ${self.usd:.2f}"
        return f"{self.conversations} conversations, {self.turns} turns, {calls} model calls, {minutes}, {usd}"


def estimate(bench: Workbench, datasets: tuple[Dataset, ...]) -> Estimate:
    """Calls from what each flow says of itself; minutes where the model knows its pace; dollars by the price table."""
    conversations = sum(len(d.conversations) for d in datasets) * len(bench.variants) * bench.spec.epochs
    turns = sum(d.turns for d in datasets) * bench.spec.epochs
    writes = 0
    if bench.spec.ingest == "flow":
        told = sum(len(session.turns) for d in datasets for sessions in d.told.values() for session in sessions)
        writes = WRITE_CALLS_GUESSED * told * bench.spec.epochs
    calls = {
        v.label: None if v.calls_per_turn is None else v.calls_per_turn * turns + (writes if v.memory else 0)
        for v in bench.variants
    }
    minutes: float | None = 0.0
    usd: float | None = 0.0
    for variant in bench.variants:
        made = calls[variant.label]
        pace, price = bench.seconds_per_call(variant.model), bench.prices.of(variant.model)
        minutes = None if minutes is None or made is None or pace is None else minutes + made * pace / 60
        if usd is None or made is None or price is None:
            usd = None
        else:
            usd += made * (INPUT_TOKENS_GUESSED * price.input + OUTPUT_TOKENS_GUESSED * price.output) / 1e6
    known = [made for made in calls.values() if made is not None]
    return Estimate(
        conversations=conversations,
        turns=turns * len(bench.variants),
        llm_calls=round(sum(known)) if len(known) == len(calls) else None,
        minutes=minutes,
        usd=usd,
    )
