"""The cache claim: memories before the user's message or in the system prompt, greedy or minimal trimming.

    python evals/bench/prefix_cache.py                                              100 turns, scripted model
    python evals/bench/prefix_cache.py --model local/qwen2.5-coder-0.5b --turns 40 --conversations 2

The conversations are what users say in `datasets/memory`, one conversation after the other; the clock continues by a
minute a turn, every turn is remembered, and three memories come with each prompt. With the scripted model the shares
are what a cache could serve; an embedded model, whose cache is switched on here, reports what its own did serve.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

from msgspec.structs import replace

import agentlab as al
from agentlab.core.prices import load_prices
from agentlab.core.trace import exact_sum
from agentlab.data.datasets import load_dataset
from agentlab.evals.cost import CacheRules, PrefixUse, prefix_uses
from agentlab.models.local import model as local

DATASET = Path(__file__).parents[2] / "datasets" / "memory"
PRICES = ("openai/gpt-4.1-mini", "gemini/gemini-2.5-flash")
HOSTED = CacheRules(block=128, minimum=1024)
VARIANTS = [(role, trimming) for role in ("user", "system") for trimming in ("greedy", "minimal")]
REPLY = "That is good to know, thank you for telling me. Shall I keep it in mind for the next time we talk about it?"


def conversations(count: int, turns: int) -> list[list[str]]:
    texts = [turn.user for conversation in load_dataset(DATASET).conversations for turn in conversation.turns]
    if count * turns > len(texts):
        raise SystemExit(f"{DATASET.name} has {len(texts)} turns; ask for less")
    return [texts[begin:end] for begin, end in pairwise(range(0, (count + 1) * turns, turns))]


def minutes() -> Iterator[datetime]:
    now = datetime(2026, 1, 1, 9)
    while True:
        yield now
        now += timedelta(minutes=1)


def measure(flow: dict[str, Any], name: str | None, talks: list[list[str]], rules: CacheRules) -> list[PrefixUse]:
    """Return the calls of a variant over all conversations; its own model starts with an empty cache."""
    if name:
        model: Any = local.connect(name.removeprefix("local/"), prompt_cache=512)
    else:
        model = al.Scripted([REPLY], loop=True)
    embedder = "local/all-minilm-l6-v2" if name else "hashing/hashing-64"
    uses: list[PrefixUse] = []
    with al.Lab(
        flows=[flow], model=model, embedder=embedder, memory="sqlite", generation={"max_tokens": 32, "seed": 7}
    ) as lab:
        for number, talk in enumerate(talks):
            clock = minutes()
            chat = lab.chat(documents=(), clock=lambda clock=clock: next(clock))
            for turn, text in enumerate(talk):
                chat.say_sync(text)
                if (turn + 1) % 20 == 0:
                    print(f"{flow['label']}: conversation {number + 1}, turn {turn + 1}", file=sys.stderr)
            uses += prefix_uses(chat.trace, rules)
    return uses


def summarize(label: str, uses: list[PrefixUse]) -> dict[str, Any]:
    """Return a row of the table: shares of input tokens, and dollars without and with a cache."""
    usages = [use.call.completion.usage for use in uses if use.call.completion]
    tokens = sum(usage.input_tokens or 0 for usage in usages)
    reported = exact_sum(usage.cached_tokens for usage in usages)
    row: dict[str, Any] = {
        "flow": label,
        "calls": len(uses),
        "input_tokens": tokens,
        "ideal_share": sum(use.ideal for use in uses) / tokens,
        "reported_share": None if reported is None else reported / tokens,
        "breaks": sum(use.broken_at is not None for use in uses),
        "lost_tokens": sum(use.lost for use in uses),
    }
    prices = load_prices()
    for model in PRICES:
        for name, served in ((f"$ {model}", [0] * len(uses)), (f"$ {model}, ideal cache", [use.ideal for use in uses])):
            pairs = zip(usages, served, strict=True)
            row[name] = exact_sum(prices.cost(model, replace(usage, cached_tokens=count)) for usage, count in pairs)
    row["seconds / call"] = sum(use.call.seconds for use in uses) / len(uses)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="an embedded model (default: a scripted one)")
    parser.add_argument("--turns", type=int, default=100)
    parser.add_argument("--conversations", type=int, default=3)
    parser.add_argument("--only", choices=[", ".join(variant) for variant in VARIANTS], help="a variant (default: all)")
    parser.add_argument("--history", type=int, help="history limit in tokens (default: 4,000; embedded model: 1,000)")
    arguments = parser.parse_args()
    limit = arguments.history or (1000 if arguments.model else 4000)
    chunk = limit // 4
    flows: list[Any] = [
        {
            "flow": "coordinator",
            "label": f"{position}, {trimming}",
            "context_in": position,
            "trim_chunk_size": chunk if trimming == "greedy" else 0,
            "max_history_tokens": limit,
            "gate": "all",
            "tools": [],
        }
        for position, trimming in VARIANTS
        if arguments.only in (None, f"{position}, {trimming}")
    ]
    rules = CacheRules() if arguments.model else HOSTED
    talks = conversations(arguments.conversations, arguments.turns)
    uses = {flow["label"]: measure(flow, arguments.model, talks, rules) for flow in flows}
    rows = [summarize(label, made) for label, made in uses.items()]
    print(f"{arguments.conversations} conversations of {arguments.turns} turns, at most {limit} tokens of history,")
    print(f"trimmed by {chunk} (greedy) or as little as possible (minimal), {arguments.model or 'scripted'}, {rules}\n")
    print(f"| {' | '.join(rows[0])} |")
    print(f"|{' --- |' * len(rows[0])}")
    for row in rows:
        print(f"| {' | '.join(map(brief, row.values()))} |")


def brief(cell: Any) -> str:
    return "-" if cell is None else f"{cell:.4g}" if isinstance(cell, float) else str(cell)


if __name__ == "__main__":
    main()
