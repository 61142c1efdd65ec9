"""What a run would have cost and how long it would have taken elsewhere: other prices, speeds, caches; no call is made.

    Elsewhere(prices=load_prices("prices.yaml"), decode=40).table(open_run("results/a"))

Every turn is folded anew from the ledger of the run with other numbers in its events. What was said stays as it was,
and with it the number of calls and tokens: a faster model that says other things is another run.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import ConfigError, RunError
from agentlab.core.events import Event, ModelCall, ToolRun
from agentlab.core.messages import Usage
from agentlab.core.prices import PriceTable
from agentlab.core.trace import add_up, critical_path, fold
from agentlab.evals.stats.statistics import by_cluster, mean_intervals
from agentlab.evals.store.run import Run

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Elsewhere:
    """What is different; None and False leave the recorded number."""

    prices: PriceTable | None = None
    model: str | None = None
    """Whose price all calls have."""
    cached: float | None = None
    """The share of the input tokens that a cache serves, 0 to 1; needs `prices` to show in dollars."""
    prefill: float | None = None
    """Input tokens a second."""
    decode: float | None = None
    """Output tokens a second."""
    per_call: float = 0.0
    """Seconds a call takes before it reads; only with a speed."""
    parallel_tools: bool = False
    """Tools that one reply asked for run side by side."""

    def __post_init__(self) -> None:
        if self.cached is not None and not 0 <= self.cached <= 1:
            raise ConfigError(f"the cached share {self.cached} is not between 0 and 1")
        if any(speed is not None and speed <= 0 for speed in (self.prefill, self.decode)) or self.per_call < 0:
            raise ConfigError("a speed in tokens a second is above 0, and seconds a call are not below it")

    def turn(self, events: Iterable[Event]) -> list[Event]:
        """The events of one turn as they would have been there."""
        moved = [self._call(event) if isinstance(event, ModelCall) else event for event in events]
        return side_by_side(moved) if self.parallel_tools else moved

    def _call(self, call: ModelCall) -> ModelCall:
        if call.completion is None:
            return call
        usage = call.completion.usage
        if self.cached is not None and usage.input_tokens is not None:
            usage = replace(usage, cached_tokens=round(self.cached * usage.input_tokens))
        cost = call.cost_usd
        if self.prices is not None:
            cost = self.prices.cost(self.model or call.model, usage)
        return replace(
            call,
            completion=replace(call.completion, usage=usage),
            cost_usd=cost,
            seconds=self._seconds(usage, call.seconds),
        )

    def _seconds(self, usage: Usage, recorded: float) -> float:
        """By the given speeds: a call waits, reads what no cache has, and writes. Where a speed is not given, reading
        takes no time, or what was recorded is all writing."""
        if self.prefill is None and self.decode is None:
            return recorded
        if usage.input_tokens is None or usage.output_tokens is None:
            return recorded
        fresh = usage.input_tokens - (usage.cached_tokens or 0)
        reading = fresh / self.prefill if self.prefill else 0.0
        writing = usage.output_tokens / self.decode if self.decode else recorded
        return self.per_call + reading + writing

    def table(self, run: Run) -> pd.DataFrame:
        """One row a flow: dollars a turn and mean seconds, as they were and as they would be, with 95 % intervals of
        the differences over conversations."""
        import pandas as pd

        rows = []
        for flow in run.result.flows:
            then: list[tuple[float | None, float]] = []
            now: list[tuple[float | None, float]] = []
            names = []
            for row in run.played():
                trace = run.traces.get(row.play)
                if row.flow == flow and trace is not None:
                    events = trace.of_turn(row.turn)
                    moved = self.turn(events)
                    then.append((fold(events).cost_usd, critical_path(events)))
                    now.append((fold(moved).cost_usd, critical_path(moved)))
                    names.append(row.conversation)
            if names:
                rows.append({"flow": flow, "turns": len(names), **_compared(then, now, names)})
        if not rows:
            raise RunError(f"{run.path} holds no calls, so none can be had elsewhere")
        return pd.DataFrame(rows).set_index("flow")


def _compared(then: list[tuple[Any, float]], now: list[tuple[Any, float]], names: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for place, name in enumerate(("USD / turn", "latency s")):
        a, b = [turn[place] for turn in then], [turn[place] for turn in now]
        sums = add_up(a), add_up(b)
        means = [None if total is None else total / len(a) for total in sums]
        found |= {name: means[0], f"{name} there": means[1]}
        known = None not in sums and bool(a)
        differences = [y - x for x, y in zip(a, b, strict=True)] if known else []
        found[f"{name} difference, 95 %"] = mean_intervals([by_cluster(differences, names)])[0][1] if known else None
    return found


def side_by_side(events: list[Event]) -> list[Event]:
    """The events with tools that one reply asked for begun together; what waited for the last of them waits for all."""
    groups: dict[int, tuple[int, ...]] = {}
    begins: dict[int, tuple[int, ...]] = {}
    ordered = sorted(events, key=lambda event: event.id)
    last: dict[tuple[int | None, bool], Event] = {}
    for event in ordered:
        before = last.get((event.parent, event.background))
        if isinstance(event, ToolRun) and isinstance(before, ToolRun) and event.after == (before.id,):
            begins[event.id] = begins.get(before.id, before.after)
            groups[event.id] = (*groups.pop(before.id, (before.id,)), event.id)
        last[event.parent, event.background] = event
    return [
        replace(
            event,
            after=begins.get(event.id)
            or tuple(dict.fromkeys(other for waited in event.after for other in groups.get(waited, (waited,)))),
        )
        if event.id in begins or any(waited in groups for waited in event.after)
        else event
        for event in ordered
    ]
