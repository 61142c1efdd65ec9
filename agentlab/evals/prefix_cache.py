"""How much of each prompt had been sent before: what a provider's prefix cache could have served, and what it did.

    uses = prefix_uses(trace, CacheRules(block=128, minimum=1024, ttl=300))
    uses[3].ideal, uses[3].reported, uses[3].broken_at

A cache keeps what a call began with. What a later call of the same conversation begins with, too, it need not read
again: up to the first difference, in whole blocks, and only while it is remembered. The prompt is laid out as providers
do it: tools, output schema, messages. The tokens of its parts are estimated from the prompt's own count, as reported,
in proportion to characters; where none is reported, at four characters a token.

Prompt caching as its providers describe it: OpenAI (blocks of 128 tokens from 1,024 on, 5 to 10 minutes), Anthropic
(from 1,024 tokens on, 5 minutes), llama.cpp (single tokens, for as long as its slot is not taken).

The clock is the trace's: what the models take, without the pauses of whoever talks with them. What a model itself wrote
counts once it is part of a prompt; a server that keeps it may report more than the ideal.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import takewhile
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import ConfigError
from agentlab.core.events import ModelCall
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Request, to_json
from agentlab.core.prices import PriceTable, load_prices
from agentlab.core.trace import Trace, add_up

if TYPE_CHECKING:
    from agentlab.evals.store.run import Run

Line = dict[str, Any]
"""Of a table: what a column is called, and the cell."""


@dataclass(frozen=True, kw_only=True)
class CacheRules:
    """What a provider's cache does."""

    block: int = 1
    """Tokens are served in multiples of this."""
    minimum: int = 0
    """Shorter prefixes, in tokens, are not served."""
    ttl: float = 300.0
    """Seconds after its last use in which a prefix is remembered, on the trace's own clock."""

    def __post_init__(self) -> None:
        if self.block < 1 or self.minimum < 0 or self.ttl < 0:
            raise ConfigError("a cache has blocks of one token or more, and a minimum and a time to live of 0 or more")


@dataclass(frozen=True, kw_only=True)
class PrefixUse:
    """One call, and what it shares with the calls before it; all counts in tokens."""

    call: ModelCall
    input: int
    ideal: int
    """What the rules allow to be served from the cache."""
    reported: int | None
    """What the provider said it served; None where it said nothing."""
    broken_at: str | None
    """The part of the prompt in which it left the nearest earlier one, before that had ended; None where it did not."""
    lost: int = 0
    """How much of that earlier prompt has to be read again because of it."""


def prefix_uses(trace: Trace, rules: CacheRules) -> list[PrefixUse]:
    """Every accepted call of the conversation, in order."""
    earlier: list[tuple[ModelCall, list[tuple[str, str]]]] = []
    uses = []
    for call in sorted(trace.events, key=lambda event: event.id):
        if not isinstance(call, ModelCall) or call.completion is None:
            continue
        usage = call.completion.usage
        parts = _parts(call.request)
        length = sum(len(text) for _, text in parts)
        tokens = length // CHARACTERS_PER_TOKEN if usage.input_tokens is None else usage.input_tokens
        per_character = Fraction(tokens, length) if length else Fraction()
        # Seconds since each earlier call ended; one that is still under way has left nothing in the cache.
        ages = [(call.start - (made.start + made.seconds), made, was) for made, was in earlier]
        alive = [was for age, made, was in ages if call.model == made.model and 0 <= age <= rules.ttl]
        # Of several that share as much the newest: it is what the conversation goes on from.
        found = [(*_shared(was, parts), was) for was in reversed(alive)]
        shared, broken_at, nearest = max(found, default=(0, None, []), key=itemgetter(0))
        ideal = int(shared * per_character) // rules.block * rules.block
        whole = min(length, sum(len(text) for _, text in nearest))
        uses.append(
            PrefixUse(
                call=call,
                input=tokens,
                ideal=ideal if ideal >= rules.minimum else 0,
                reported=usage.cached_tokens,
                broken_at=broken_at,
                lost=int(whole * per_character) - int(shared * per_character) if broken_at else 0,
            )
        )
        earlier.append((call, parts))
    return uses


def summarize(flow: str, uses: Sequence[PrefixUse], prices: PriceTable, models: Iterable[str]) -> Line:
    """One row of the table: shares of input tokens, and dollars at the prices of `models` without and with a cache."""
    tokens = sum(use.input for use in uses)
    reported = add_up(use.reported for use in uses)
    row: Line = {
        "flow": flow,
        "calls": len(uses),
        "input_tokens": tokens,
        "ideal_share": sum(use.ideal for use in uses) / max(1, tokens),
        "reported_share": None if reported is None else reported / max(1, tokens),
        "breaks": sum(use.broken_at is not None for use in uses),
        "lost_tokens": sum(use.lost for use in uses),
    }
    for model in models:
        row[f"$ {model}"] = add_up(_cost(use, 0, model, prices) for use in uses)
        row[f"$ {model}, ideal cache"] = add_up(_cost(use, use.ideal, model, prices) for use in uses)
    return row


def tables(run: Run, rules: CacheRules, models: Sequence[str] = ()) -> tuple[list[Line], list[Line]]:
    """One row a flow with its shares and dollars, and one row for each way in which a flow leaves its prefix."""
    prices = load_prices(run.folder.header["spec"].get("prices"))
    for model in models:
        if prices.of(model) is None:
            raise ConfigError(f"{model} has no price; add it to a table of your own and name that under `prices`")
    by_flow: dict[str, list[PrefixUse]] = defaultdict(list)
    for (flow, _, _), trace in run.traces.items():
        by_flow[flow] += prefix_uses(trace, rules)
    lost: dict[tuple[str, str, str], list[int]] = defaultdict(list)
    for flow, uses in by_flow.items():
        for use in uses:
            if use.broken_at is not None:
                lost[flow, str(use.call.phase), use.broken_at].append(use.lost)
    breaks = [
        {"flow": flow, "phase": phase, "broken_at": where, "times": len(tokens), "lost_tokens": sum(tokens)}
        for (flow, phase, where), tokens in lost.items()
    ]
    shares = [summarize(flow, uses, prices, models) for flow, uses in by_flow.items()]
    return shares, sorted(breaks, key=itemgetter("lost_tokens"), reverse=True)


def _parts(request: Request) -> list[tuple[str, str]]:
    """The prompt in the order in which it is read, each part with what it is called."""
    parts = [(f"tool {tool.name}", json.dumps(to_json(tool))) for tool in request.tools]
    if request.output_schema is not None:
        parts.append(("output schema", json.dumps(request.output_schema)))
    for number, message in enumerate(request.messages):
        name = f"{'first' if number == 0 else 'later'} {message.role} message"
        parts.append((name, json.dumps(to_json(message), ensure_ascii=False)))
    return parts


def _shared(one: Sequence[tuple[str, str]], other: Sequence[tuple[str, str]]) -> tuple[int, str | None]:
    """Characters that both begin with, and the part of `other` in which they differ; None where one of them ends."""
    shared = 0
    for (_, mine), (name, yours) in zip(one, other, strict=False):
        if mine != yours:
            alike = takewhile(lambda pair: pair[0] == pair[1], zip(mine, yours, strict=False))
            return shared + sum(1 for _ in alike), name
        shared += len(mine)
    return shared, None


def _cost(use: PrefixUse, cached: int, model: str, prices: PriceTable) -> float | None:
    assert use.call.completion is not None
    return prices.cost(model, replace(use.call.completion.usage, input_tokens=use.input, cached_tokens=cached))
