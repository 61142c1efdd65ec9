"""Imported answers graded one at a time: scores and summary of a run whose rows need not fit in memory.

What is held is a sum and a count for each flow, measure and conversation, a byte for each turn that a stored number is
known of, and eight bytes for each latency, since a quantile needs them all.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np
from msgspec.structs import replace

from agentlab.core.messages import from_json
from agentlab.core.names import IMPORTED
from agentlab.data.conversations import Conversation
from agentlab.data.datasets import Dataset
from agentlab.evals.grade.grader import NotSaid, asked_about, grade
from agentlab.evals.grade.sources import Sources
from agentlab.evals.stats.statistics import mean_intervals
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.ledger import rows_of
from agentlab.evals.store.pace import ROWS_BETWEEN_REPORTS
from agentlab.evals.store.rows import (
    BEGUN_AGAIN,
    FlowSummary,
    Graded,
    Latency,
    MetricSummary,
    Summary,
    TurnRow,
    encode,
)

STORED = "published_"
"""How the measures begin that the source gave along with the answers; more is better."""
SUMS = (
    *("llm_calls", "embedding_calls", "tool_calls", "memory_ops"),
    *("input_tokens", "output_tokens", "cached_tokens", "cost_usd"),
)


def stored_numbers(published: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    """What was noted for an answer as numbers by name (`em`, `automatic_RougeL`); of several raters the median."""
    for name, value in published.items():
        if isinstance(value, (int, float)):
            yield before + name, _float(value)
        elif isinstance(value, Mapping) and before.startswith("human"):
            ratings = [_float(rating) for rating in value.values() if isinstance(rating, (int, float))]
            if ratings:
                yield before + name, statistics.median(ratings)
        elif isinstance(value, Mapping):
            yield from stored_numbers(value, f"{before}{name}_")


def _float(number: float) -> float:
    """Infinite for a whole number that no float holds; an import refuses it."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


class Said:
    """What is known of an imported answer, by the names of a TurnOutcome or a Reply; asking for more raises NotSaid."""

    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)

    def __getattr__(self, name: str) -> Any:
        raise NotSaid(f"the source does not say: {name}")


def as_line(row: Any) -> bytes:
    """A row of a run folder."""
    try:
        return msgspec.json.encode(row) + b"\n"
    except ValueError:
        # Half a surrogate pair, which a model may write, becomes its JSON escape.
        return encode(row).encode("utf-8", "backslashreplace") + b"\n"


def read_turns(folder: RunFolder) -> Iterator[TurnRow]:
    """The turns of a run as they stand in its files, one at a time."""
    for file in folder.held("turns.jsonl"):
        for row in rows_of(file, lambda content: from_json(TurnRow, content), TurnRow):
            if row.turn != BEGUN_AGAIN:
                yield row


def grade_rows(
    folder: RunFolder,
    data: Dataset,
    scorers: Sequence[Any],
    embed: Callable[[Sequence[str]], np.ndarray] | None = None,
    on_progress: Callable[[int, int], None] = lambda done, total: None,
) -> list[str]:
    """Put scores into an imported run's turns and write its summary; without `embed` what needs it is not known.

    `on_progress` is told how many turns are graded, and of how many. Returns the measures that there are now, those
    that the source gave among them.
    """
    conversations = {conversation.id: conversation for conversation in data.conversations}
    sources = Sources(data.documents)
    applies, total = _turns_with_numbers(folder, conversations)
    numbered = {name: number for number, name in enumerate(conversations)}
    tallies: dict[str, _Tally] = defaultdict(lambda: _Tally(numbered))
    known: dict[str, Any] = {} if embed is None else {"embed": embed}

    def lines() -> Iterator[bytes]:
        for done, row in enumerate(read_turns(folder)):
            if done % ROWS_BETWEEN_REPORTS == 0:
                on_progress(done, total)
            conversation = conversations[row.conversation]
            tally = tallies[row.flow]
            tally.add(row)
            sources.take(row, conversation)
            turn = conversation.turns[row.turn]
            scores: dict[str, Graded] = {}
            for asked in asked_about(turn, scorers):
                said: Any = None
                if row.reply is not None:
                    found = known | sources.known_to(asked[0])
                    before, tools = conversation.turns[: row.turn], conversation.tools
                    said = Said(reply=Said(text=row.reply.text), turns_before=before, tools=tools, **found)
                scores |= grade(folder.path, row, turn, [asked], said)
            scores |= _stored(row, applies)
            for metric, score in scores.items():
                tally.score(row.conversation, metric, score.value)
            yield as_line(replace(row, scores=scores))

    folder.replace_lines("turns.jsonl", lines())
    on_progress(total, total)
    header = folder.header
    summary = Summary(
        run_id=header["run_id"],
        status="complete",
        datasets=[data.name],
        conversations=len(data.conversations),
        turns=sum(tally.turns for tally in tallies.values()),
        model=header["spec"]["model"],
        mode=IMPORTED,
        flows={flow["label"]: tallies[flow["label"]].summary() for flow in header["spec"]["flows"]},
    )
    folder.write_json("summary.json", summary)
    return list(dict.fromkeys(name for tally in tallies.values() for name in tally.scores))


def _turns_with_numbers(
    folder: RunFolder, conversations: Mapping[str, Conversation]
) -> tuple[dict[str, Callable[[TurnRow], bool]], int]:
    """Stored measure -> whether a system has it on a turn: there the others' is unknown, elsewhere it is no issue.

    And how many turns there are.
    """
    begins, size = {}, 0
    for name, conversation in conversations.items():
        begins[name] = size
        size += len(conversation.turns)
    found: dict[str, bytearray] = defaultdict(lambda: bytearray(size))
    total = 0
    for row in read_turns(folder):
        total += 1
        for name, _ in stored_numbers(row.published or {}):
            found[name][begins[row.conversation] + row.turn] = 1

    def on(there: bytearray) -> Callable[[TurnRow], bool]:
        return lambda row: bool(there[begins[row.conversation] + row.turn])

    return {name: on(there) for name, there in found.items()}, total


def _stored(row: TurnRow, applies: Mapping[str, Callable[[TurnRow], bool]]) -> dict[str, Graded]:
    numbers = dict(stored_numbers(row.published or {}))
    found = {}
    for name, on in applies.items():
        if on(row):
            why = "as its authors noted it" if name in numbers else "the source does not say"
            found[STORED + name] = Graded(numbers.get(name), why)
    return found


class _Tally:
    """Of one flow, the conversations by their numbers."""

    def __init__(self, numbered: Mapping[str, int]) -> None:
        self._numbered = numbered
        self.turns = self.errors = 0
        self.sums: dict[str, Any] = dict.fromkeys((*SUMS, "retrieval_steps"), 0)
        self.latencies: array[float] | None = array("d")
        self.scores: dict[str, tuple[array[float], array[float]]] = defaultdict(
            lambda: (self._column(), self._column())
        )
        self.unknown: set[str] = set()

    def _column(self) -> array[float]:
        return array("d", bytes(8 * len(self._numbered)))

    def add(self, row: TurnRow) -> None:
        self.turns += 1
        self.errors += row.error is not None
        for name, before in self.sums.items():
            more = row.retrieval_steps if name == "retrieval_steps" else getattr(row.totals, name)
            self.sums[name] = None if before is None or more is None else before + more
        latency = row.latency_s if isinstance(row.latency_s, (int, float)) else None
        if latency is None:
            self.latencies = None
        elif self.latencies is not None:
            self.latencies.append(latency)

    def score(self, conversation: str, metric: str, value: float | None) -> None:
        sums, counts = self.scores[metric]
        place = self._numbered[conversation]
        if value is None:
            self.unknown.add(metric)
        else:
            sums[place] += value
        counts[place] += 1

    def _per_turn(self, name: str) -> Any:
        return None if self.sums[name] is None else self.sums[name] / self.turns

    def summary(self) -> FlowSummary:
        columns = [(np.frombuffer(sums), np.frombuffer(counts)) for sums, counts in self.scores.values()]
        scores = {}
        for metric, (_, counts), (mean, interval) in zip(self.scores, columns, mean_intervals(columns), strict=True):
            n = int(counts.sum())
            unknown = metric in self.unknown
            scores[metric] = MetricSummary(mean=None if unknown else mean, ci95=None if unknown else interval, n=n)
        times = np.frombuffer(self.latencies) if self.latencies else None
        latency = Latency(mean=None, p50=None, p95=None)
        if times is not None:
            p50, p95 = np.quantile(times, [0.5, 0.95]).tolist()
            latency = Latency(mean=float(times.mean()), p50=p50, p95=p95)
        return FlowSummary(
            turns=self.turns,
            errors=self.errors,
            **self.sums,
            **{f"{name}_per_turn": self._per_turn(name) for name in SUMS[:3]},
            memory_unavailable=None,
            fallback_rate=None,
            latency_s=latency,
            phases={},
            scores=scores,
        )
