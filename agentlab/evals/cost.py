"""Recomputes the cost and latency of a run for other prices, a prefix cache or other speeds.

    run = al.open_run("results/a")
    al.Repricing(prices=al.load_prices("prices.yaml"), decode=40).table(run)
    al.Repricing(prices=al.load_prices(), cache=al.CacheRules(block=128, minimum=1024)).table(run)

Each turn is folded again from the ledger of the run, with other numbers in its calls. No model is called. Replies,
calls and tokens stay the same: a faster model with other replies is another run.

A prefix cache keeps the beginning of each prompt. A later call of the same conversation reuses it up to the first
difference, in whole blocks. The prompt is laid out as providers do it: tools, output schema, messages. The tokens of
its parts are estimated from the reported tokens of the prompt, in proportion to characters. The lifetime of a cache
and the pauses of users are left out. Text that a model wrote counts once it is part of a prompt; a server that keeps
it may report more than the ideal.

Prompt caching as its providers describe it: OpenAI (blocks of 128 tokens from 1,024 on), Anthropic (from 1,024 tokens
on), llama.cpp (single tokens).
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, takewhile
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from msgspec.structs import replace

from agentlab.core.errors import ConfigError, RunError
from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import Request, Usage, to_json
from agentlab.core.prices import PriceTable
from agentlab.core.trace import Trace, critical_path, fold
from agentlab.evals.store.run import StoredRun

if TYPE_CHECKING:
    import pandas as pd

FIGURES = ("USD / turn", "input tokens / turn", "cached tokens / turn", "latency s")


@dataclass(frozen=True, kw_only=True)
class CacheRules:
    """Rules of a provider's prefix cache. Raises ConfigError for a block below 1 or a negative minimum.

    OpenAI: `CacheRules(block=128, minimum=1024)`; llama.cpp: `CacheRules()`, single tokens.
    """

    block: int = 1
    """Tokens; the cache serves multiples of it."""
    minimum: int = 0
    """Tokens; the cache serves no shorter prefix."""

    def __post_init__(self) -> None:
        if self.block < 1 or self.minimum < 0:
            raise ConfigError("cache: block must be 1 or more, minimum 0 or more")


@dataclass(frozen=True, kw_only=True)
class PrefixUse:
    """Call and the prefix that it shares with earlier calls; all counts in tokens."""

    call: ModelCall
    parts: list[tuple[str, str]]
    """Parts of the prompt in order, each as a name and a text."""
    ideal: int
    """Tokens that the cache can serve under its rules."""
    broken_at: str | None
    """Name of the part in which the prompt leaves the nearest earlier prompt; None if it does not."""
    lost: int
    """Tokens of that earlier prompt that the cache cannot serve because of this difference."""


def prefix_uses(trace: Trace, rules: CacheRules) -> list[PrefixUse]:
    """Return the answered calls of a conversation, in order."""
    uses: list[PrefixUse] = []
    for call in sorted(trace.events, key=attrgetter("id")):
        if not isinstance(call, ModelCall) or call.completion is None:
            continue
        parts = _parts(call.request)
        per_character = Fraction(call.completion.usage.input_tokens or 0, _length(parts) or 1)
        # A call that is still running is not in the cache yet.
        ended = [
            use.parts
            for use in reversed(uses)
            if use.call.model == call.model and use.call.start + use.call.seconds <= call.start
        ]
        # Equal prefixes: take the newest prompt, which the conversation continues.
        candidates = [(*_shared(earlier, parts), min(_length(earlier), _length(parts))) for earlier in ended]
        shared, broken_at, nearest = max(candidates, default=(0, None, 0), key=itemgetter(0))
        ideal = int(shared * per_character) // rules.block * rules.block
        lost = int(nearest * per_character) - int(shared * per_character) if broken_at else 0
        ideal = ideal if ideal >= rules.minimum else 0
        uses.append(PrefixUse(call=call, parts=parts, ideal=ideal, broken_at=broken_at, lost=lost))
    return uses


def _parts(request: Request) -> list[tuple[str, str]]:
    parts = [(f"tool {tool.name}", json.dumps(to_json(tool))) for tool in request.tools]
    if request.output_schema is not None:
        parts.append(("output schema", json.dumps(request.output_schema)))
    for number, message in enumerate(request.messages):
        name = f"{'first' if number == 0 else 'later'} {message.role} message"
        parts.append((name, json.dumps(to_json(message), ensure_ascii=False)))
    return parts


def _length(parts: list[tuple[str, str]]) -> int:
    return sum(len(text) for _, text in parts)


def _shared(one: list[tuple[str, str]], other: list[tuple[str, str]]) -> tuple[int, str | None]:
    """Return the length of the common prefix, and the part of `other` that differs; None if one prompt ends first."""
    length = 0
    for (_, text), (name, other_text) in zip(one, other, strict=False):
        if text != other_text:
            equal = takewhile(lambda pair: pair[0] == pair[1], zip(text, other_text, strict=False))
            return length + sum(1 for _ in equal), name
        length += len(text)
    return length, None


def breaks(run: StoredRun, rules: CacheRules) -> list[tuple[str, int, int]]:
    """Return (flow, phase and part), number of breaks and lost tokens, the largest loss first."""
    lost: dict[str, list[int]] = defaultdict(list)
    for (flow, _, _), trace in run.traces.items():
        for use in prefix_uses(trace, rules):
            if use.broken_at is not None:
                lost[f"{flow}, {use.call.phase}, {use.broken_at}"].append(use.lost)
    rows = [(location, len(tokens), sum(tokens)) for location, tokens in lost.items()]
    return sorted(rows, key=itemgetter(2), reverse=True)


@dataclass(frozen=True, kw_only=True)
class Repricing:
    """Other prices, cache or speeds for a recorded run; None keeps the recorded number.

    Raises ConfigError for a share outside 0 to 1, a speed of 0 or less, and negative seconds.
    """

    prices: PriceTable | None = None
    """Dollars per token, from `al.load_prices`."""
    model: str | None = None
    """Model whose price every call gets; needs `prices`."""
    cached_share: float | None = None
    """Share of the input tokens that a cache serves, 0 to 1; needs `prices` to change dollars."""
    cache: CacheRules | None = None
    """Rules of the cache, in place of `cached_share`."""
    prefill: float | None = None
    """Input tokens per second."""
    decode: float | None = None
    """Output tokens per second."""
    per_call: float = 0.0
    """Seconds of a call before it reads its input; used only with a speed."""

    def __post_init__(self) -> None:
        if self.cached_share is not None and not 0 <= self.cached_share <= 1:
            raise ConfigError(f"cached_share: {self.cached_share} is not between 0 and 1")
        if any(speed is not None and speed <= 0 for speed in (self.prefill, self.decode)) or self.per_call < 0:
            raise ConfigError("prefill and decode must be above 0 tokens per second, per_call 0 or more seconds")

    def table(self, run: StoredRun) -> pd.DataFrame:
        """Return a data frame with a row for each flow, recorded and repriced.

        Columns: dollars, input tokens and cached tokens per turn, mean latency in seconds (critical path of a turn),
        and the number of turns. NaN: a call has no price or no token count. Raises RunError for a run without calls.
        """
        import pandas as pd

        counted = {(row.trial, row.turn) for row in run.turn_rows()}
        flows, figures = [], []
        for trial, trace in run.traces.items():
            calls = self._calls(trace)
            for turn in trace.turns():
                if (trial, turn - 1) in counted:
                    events = trace.of_turn(turn)
                    repriced = [calls.get(event.id, event) for event in events]
                    flows.append(trial[0])
                    figures.append([*chain(*zip(_figures(events), _figures(repriced), strict=True))])
        if not flows:
            raise RunError(f"{run.path} has no calls to reprice")
        names = [f"{name}{suffix}" for name in FIGURES for suffix in ("", " repriced")]
        by_flow = pd.DataFrame(figures, flows, names, dtype=float).groupby(level=0, sort=False)
        return by_flow.mean(skipna=False).drop(columns="input tokens / turn repriced").assign(turns=by_flow.size())

    def _calls(self, trace: Trace) -> dict[int, Event]:
        """Return the repriced calls of a conversation by id, without failed calls."""
        uses = prefix_uses(trace, self.cache or CacheRules())
        return {use.call.id: self._call(use.call, use.ideal) for use in uses}

    def _call(self, call: ModelCall, ideal: int) -> ModelCall:
        assert call.completion is not None
        usage = call.completion.usage
        if self.cache and usage.input_tokens is not None:
            usage = replace(usage, cached_tokens=ideal)
        elif self.cached_share is not None and usage.input_tokens is not None:
            usage = replace(usage, cached_tokens=round(self.cached_share * usage.input_tokens))
        return replace(
            call,
            completion=replace(call.completion, usage=usage),
            cost_usd=self.prices.cost(self.model or call.model, usage) if self.prices else call.cost_usd,
            seconds=self._seconds(usage, call.seconds),
        )

    def _seconds(self, usage: Usage, recorded: float) -> float:
        """Return the seconds of a call: wait, read the uncached input, write the output.

        Without `prefill` reading takes no time; without `decode` all recorded seconds are writing.
        """
        if (self.prefill is None and self.decode is None) or usage.input_tokens is None or usage.output_tokens is None:
            return recorded
        fresh = usage.input_tokens - (usage.cached_tokens or 0)
        reading = fresh / self.prefill if self.prefill else 0.0
        writing = usage.output_tokens / self.decode if self.decode else recorded
        return self.per_call + reading + writing


def _figures(events: list[Event]) -> list[float | None]:
    totals = fold(events)
    return [totals.cost_usd, totals.input_tokens, totals.cached_tokens, critical_path(events)]
