"""Running sums: exact, and the same whatever comes first and however it is shared out."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.core.events import EmbeddingCall, Event, ModelCall
from agentlab.core.messages import Completion, Message, Request, Usage
from agentlab.core.trace import Totals, Trace
from agentlab.evals.store.fold import Exact, Fold, Sum
from agentlab.evals.store.rows import Graded, TurnRow, encode
from agentlab.evals.store.summary import summarise

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False).filter(lambda number: number == 0 or abs(number) > 1e-12)
HEADER = {
    "run_id": "r",
    "datasets": {"d": {"conversations": 7}},
    "spec": {"flows": [{"flow": "f", "label": None}, {"flow": "g", "label": "G"}], "mode": "live", "model": "m"},
    "models": {},
}


def add_up(numbers: Sequence[float | None]) -> float | None:
    total = Exact()
    for number in numbers:
        total.add(number)
    found: float | None = total.value
    return found


@given(st.lists(NUMBERS, max_size=40), st.randoms())
def test_a_sum_is_rounded_once(numbers: list[float], chance: random.Random) -> None:
    assert add_up(numbers) == math.fsum(numbers)
    chance.shuffle(numbers)
    cut = chance.randrange(len(numbers) + 1)
    one, other = Exact(), Exact()
    for number in numbers[:cut]:
        one.add(number)
    for number in numbers[cut:]:
        other.add(number)
    one.merge(other)
    assert one.value == math.fsum(numbers)


def test_a_sum_with_an_unknown_part_is_unknown_and_one_of_whole_numbers_is_whole() -> None:
    assert add_up([1, None, 2]) is None
    assert isinstance(add_up([1, 2]), int) and isinstance(add_up([1, 2.0]), float)
    unknown, known = Sum(), Sum()
    unknown.add(Totals(cost_usd=None, llm_calls=1))
    known.add(Totals(cost_usd=0.5, llm_calls=1))
    known.merge(unknown)
    assert (known.totals.cost_usd, known.totals.llm_calls, known.totals.seconds) == (None, 2, 0.0)


def played(flow: str, name: str, chance: random.Random) -> tuple[Trace, list[TurnRow]]:
    trace, rows = Trace(flow, name), []
    for turn in range(chance.randint(1, 3)):
        shared = {"turn": turn, "phase": "answer", "seconds": chance.random()}
        usage = Usage(input_tokens=chance.randint(1, 99), output_tokens=2, cached_tokens=0)
        said = Completion(message=Message(role="agent", text="x"), usage=usage)
        request = Request(messages=(Message(role="user", text="?"),))
        call = ModelCall(id=2 * turn, model="m", request=request, completion=said, cost_usd=chance.random(), **shared)
        events: list[Event] = [call, EmbeddingCall(id=2 * turn + 1, model="e", **shared)]
        trace.events += events
        scores = {metric: Graded(chance.random(), "") for metric in ("b", "a")[: 1 + turn]}
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
                totals=trace.totals(turn),
                latency_s=trace.latency(turn),
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
            folds[number % parts].take(trace, rows)
        whole = Fold(())
        for fold in folds:
            whole.merge(fold.flows)
        return encode(summarise(HEADER, whole.flows, complete=True))

    expected = summary(conversations, 1)
    chance.shuffle(conversations)
    assert summary(conversations, shards) == expected
    assert summary(conversations[1:], 1) != expected, "each of them counts"
