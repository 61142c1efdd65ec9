"""Running sums: exact, and the same whatever comes first and however it is shared out."""

from __future__ import annotations

import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.core.events import EmbeddingCall, Event, ModelCall
from agentlab.core.messages import Completion, Message, Request, Usage
from agentlab.core.trace import Trace
from agentlab.evals.store.fold import Fold
from agentlab.evals.store.rows import StoredScore, TurnRow, encode
from agentlab.evals.store.summary import summarise

HEADER = {
    "run_id": "r",
    "datasets": {"d": {"conversations": 7}},
    "spec": {"flows": [{"flow": "f", "label": None}, {"flow": "g", "label": "G"}], "mode": "live", "model": "m"},
    "models": {},
}


def played(flow: str, name: str, chance: random.Random) -> tuple[Trace, list[TurnRow]]:
    trace, rows = Trace(flow, name), []
    for turn in range(chance.randint(1, 3)):
        shared = {"turn": turn, "phase": "answer", "seconds": chance.random()}
        usage = Usage(input_tokens=chance.randint(1, 99), output_tokens=2, cached_tokens=0)
        completion = Completion(message=Message(role="agent", text="x"), usage=usage)
        request = Request(messages=(Message(role="user", text="?"),))
        call = ModelCall(
            id=2 * turn, model="m", request=request, completion=completion, cost_usd=chance.random(), **shared
        )
        events: list[Event] = [call, EmbeddingCall(id=2 * turn + 1, model="e", **shared)]
        trace.events += events
        scores = {metric: StoredScore(chance.random(), "") for metric in ("b", "a")[: 1 + turn]}
        rows.append(
            TurnRow(
                flow=flow,
                dataset="d",
                conversation=name,
                turn=turn,
                epoch=0,
                take=0,
                user="?",
                reply=None,
                error="e",
                wall_seconds=0.0,
                totals=trace.totals(turn + 1),
                latency_s=trace.latency(turn + 1),
                memory_tokens=0,
                memory_unavailable=0,
                phases={},
                scores=scores,
            )
        )
    return trace, rows


@settings(max_examples=25)
@given(st.randoms(use_true_random=False), st.integers(1, 4))
def test_neither_order_nor_shares_change_a_byte_of_the_summary(chance: random.Random, shards: int) -> None:
    names = [f"c{n}" for n in range(7)]
    conversations = [played(flow, name, chance) for name in names for flow in ("f", "G")]

    def summary(order: Sequence[tuple[Trace, list[TurnRow]]], parts: int) -> str:
        folds = [Fold(names) for _ in range(parts)]
        for number, (trace, rows) in enumerate(order):
            folds[number % parts].add(trace, rows)
        whole = Fold(())
        for fold in folds:
            whole.merge(fold.flows)
        return encode(summarise(HEADER, whole.flows, complete=True))

    expected = summary(conversations, 1)
    chance.shuffle(conversations)
    assert summary(conversations, shards) == expected
    assert summary(conversations[1:], 1) != expected, "each of them counts"
