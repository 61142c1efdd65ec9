"""Data of the page of a run: turns as rows, flows as columns, and traces up to a size limit.

Rows are turns of conversations, in order. A series is one flow in one epoch: a column of values over the rows.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import yaml

from agentlab.core.events import PHASES, Event, Notice, Step, shorten, to_row
from agentlab.core.messages import Request, to_json
from agentlab.core.trace import Trace
from agentlab.data.conversations import Turn
from agentlab.evals.compare.causes import RULES, causes
from agentlab.evals.compare.headline import recommend
from agentlab.evals.compare.pairs import FlowPair, compare
from agentlab.evals.compare.ship import sides_of
from agentlab.evals.report.packing import TextPool, deflated
from agentlab.evals.report.show import expected
from agentlab.evals.stats.intervals import Column, mean_interval, score_ends
from agentlab.evals.stats.statistics import Interval, by_cluster
from agentlab.evals.store.fold import recording_misses, reply_calls
from agentlab.evals.store.measures import TurnKey, Values, in_order, measure
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import StoredRun

ROWS_OF_A_CHUNK = 64
"""Rows whose texts are deflated together; the page inflates them when one is on the screen."""
MAX_TRACE_BYTES = 12_000_000
MAX_REPLY_BYTES = 6_000_000
"""Size limits in bytes: traces of the best conversations are left out, replies are truncated."""
LENGTHS = (None, 2000, 600, 200)
"""Lengths of a reply to try, in characters, until all replies fit."""
MAX_SLICES = 24
"""Most values of a property that makes slices."""
REPLY_CUT = "reply cut"
"""Kind of every reply that ended at max_tokens; the cause "cut off" covers only poor turns."""
ALWAYS = ("kind", "id", "turn")
RowKey = tuple[str, int]
"""Conversation and turn: the key of a row."""
Mean = tuple[float | None, Interval, int]
"""Mean, 95 % interval, and number of turns."""


class FlowSeries(NamedTuple):
    """One flow in one epoch: its turns and their measures, by row."""

    flow: int
    """Index of the flow in `Content.sides`."""
    epoch: int
    turns: dict[RowKey, TurnRow]
    values: dict[RowKey, Values]


class Content:
    """Gathers the data of the runs on one page."""

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self.runs = runs
        self.sides = sides_of(runs)
        self.verdict, self.comparison = recommend(*runs)
        self.primary = self.comparison.primary if self.comparison else ()
        self.values: list[dict[TurnKey, Values]] = [side.run.turn_values[side.flow] for side in self.sides]
        self.rows: list[RowKey] = sorted({(key[0], key[1]) for rows in self.values for key in rows})
        self.numbers = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in self.rows))}
        """Conversation -> its index."""
        self.measures = in_order(name for rows in self.values for row in rows.values() for name in row)
        self.intervals = [
            [_mean(name, [(key[0], row[name]) for key, row in turns if name in row]) for name in self.measures]
            for turns in (sorted(rows.items()) for rows in self.values)
        ]
        """Mean, interval and number of turns, for each flow and measure."""
        turns = {(id(run), row.flow, *row.key): row for run in runs for row in run.rows()}
        self.series: list[FlowSeries] = []
        for number, (side, rows) in enumerate(zip(self.sides, self.values, strict=True)):
            for epoch in sorted({key[2] for key in rows}):
                values = {(name, turn): rows[name, turn, at] for name, turn, at in rows if at == epoch}
                own = {row: turns[id(side.run), side.flow, *row, epoch] for row in values}
                self.series.append(FlowSeries(number, epoch, own, values))
        self._expected = {name: conversation for run in runs for name, conversation in run.conversations.items()}

    @cached_property
    def pairs(self) -> tuple[FlowPair, ...]:
        """Pairs to draw: each flow against the one of the headline, by default against the first."""
        pairs, flow = self.comparison.pairs if self.comparison else (), self.verdict.flow
        if flow in (None, self.sides[0].name) or len(self.runs) > 1:
            return pairs
        return compare(self.runs[0], flows=sorted(self.runs[0].result.flows, key=lambda name: name != flow)).pairs

    @property
    def axes(self) -> tuple[str, str]:
        """First axes of a figure: dollars, or input tokens if a flow has no price; and the measure behind `right`."""
        has_prices = all(side.run.means[side.flow].get("cost_usd") for side in self.sides)
        qualities = [name for name in (*self.primary, *self.measures) if measure(name).better == "higher"]
        return "cost_usd" if has_prices else "input_tokens", self.verdict.measure or next(iter(qualities), "failed")

    @property
    def caption(self) -> str:
        """Numbers of turns and conversations, and the date, below each figure."""
        date = self.runs[0].header.get("started", "")[:10]
        return f"n = {len(self.rows)} turns, {len(self.numbers)} conversations; {date}"

    def as_json(self) -> dict[str, Any]:
        """Return the data of the page, without the headline."""
        return {
            "flows": [side.name for side in self.sides],
            "measures": [self._measure(name, name in self.primary) for name in self.measures],
            "axis": self.measures.index(self.axes[1]),
            "rows": self._rows(),
            "series": [self._series(series) for series in self.series],
            "phases": [side.run.result.flows[side.flow].phases for side in self.sides],
            "phase_order": PHASES,
            "runs": [_run(run) for run in self.runs],
            **self._replies(),
            **self._causes_and_traces(),
        }

    def _measure(self, name: str, is_primary: bool) -> dict[str, Any]:
        column = measure(name)
        quality = column.better == "higher"
        return {"name": name, "title": column.title, "quality": quality, "higher": quality, "primary": is_primary}

    def _rows(self) -> dict[str, Any]:
        return {
            "conversations": [*self.numbers],
            "conversation": [self.numbers[conversation] for conversation, _ in self.rows],
            "turn": [turn for _, turn in self.rows],
            "slices": self._slices(),
        }

    def _slices(self) -> dict[str, list[str]]:
        """Return property -> value of each row, or ""; only properties with 2 to MAX_SLICES values."""
        slices: dict[str, list[str]] = defaultdict(lambda: [""] * len(self.rows))
        data = {key: row for series in self.series for key, row in series.turns.items()}
        for number, key in enumerate(self.rows):
            row, turn = data[key], self.turn(key)
            properties: dict[str, Any] = {"data set": row.dataset, "turn": "first" if key[1] == 0 else "later"}
            if conversation := self._expected.get(key[0]):
                properties |= {f"conversation {name}": value for name, value in conversation.metadata.items()}
            elif isinstance(row.category, str):
                properties["conversation category"] = row.category
            if turn is not None:
                properties |= {f"turn {name}": value for name, value in turn.metadata.items()}
                properties["expected"] = _expected_kind(turn)
            for name, value in properties.items():
                if isinstance(value, (str, bool, int)):
                    slices[name][number] = str(value)
        sizes = {name: len({*values}) for name, values in slices.items()}
        return {name: values for name, values in slices.items() if 1 < sizes[name] <= MAX_SLICES}

    def turn(self, key: RowKey) -> Turn | None:
        return next(filter(None, (run.expected_turn(*key) for run in self.runs)), None)

    def _series(self, series: FlowSeries) -> dict[str, Any]:
        """Return the values over the rows; None if the measure does not apply or is unknown."""
        columns = [[_short(series.values.get(key, {}).get(name)) for key in self.rows] for name in self.measures]
        has_turn = [int(key in series.turns) for key in self.rows]
        own = {"flow": series.flow, "epoch": series.epoch, "has_turn": _brief(has_turn)}
        return own | {"values": [*map(_brief, columns)]}

    def _replies(self) -> dict[str, Any]:
        """Return deflated chunks of rows: question, expectations, one reply or error per series, and history.

        History is the earlier turns of the data set that no flow answers.
        """
        chunks: list[str] = []
        for limit in LENGTHS:
            chunks = [
                deflated([self._texts_of_row(key, limit) for key in self.rows[begin : begin + ROWS_OF_A_CHUNK]])
                for begin in range(0, len(self.rows), ROWS_OF_A_CHUNK)
            ]
            if sum(map(len, chunks)) <= MAX_REPLY_BYTES:
                break
        return {"chunks": chunks, "rows_of_a_chunk": ROWS_OF_A_CHUNK, "replies_cut_at": limit}

    def _texts_of_row(self, key: RowKey, limit: int | None) -> list[Any]:
        replies: list[Any] = []
        question = ""
        for series in self.series:
            row = series.turns.get(key)
            question = row.user if row else question
            text = None if row is None else (row.reply.text if row.reply else row.error or "")
            replies.append(text if text is None or limit is None or len(text) <= limit else text[:limit] + " …")
        earlier = enumerate(self._expected[key[0]].turns[: key[1]] if key[0] in self._expected else [])
        history = [[number, turn.user, *turn.reference_answers[:1]] for number, turn in earlier if not turn.scored]
        return [question[:limit], [*expected(self.turn(key))], replies, history]

    def _causes_and_traces(self) -> dict[str, Any]:
        """Return the causes of all turns, and the deflated traces of the worst conversations, up to MAX_TRACE_BYTES.

        The causes have kind, text, and flow and row of each turn: the most frequent first, cut replies last. The trace
        of a series is `{"turn": {"events", "scores"}}`; long texts are in separate pages. Each trace is decoded once.
        """
        affected: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
        texts, traces, used = TextPool(), {}, 0
        rows = {name: [*numbered] for name, numbered in groupby(enumerate(self.rows), lambda row: row[1][0])}
        for name in self._worst_first():
            fits = used + texts.bytes <= MAX_TRACE_BYTES
            own = []
            for series in self.series:
                side = self.sides[series.flow]
                numbers = {key[1]: number for number, key in rows[name] if key in series.turns}
                turns = [series.turns[name, turn] for turn in numbers]
                trace = side.run.traces.get((side.flow, name, series.epoch))
                for turn, cause in _causes_of(side.run, turns, trace):
                    affected[cause].add((series.flow, numbers[turn]))
                own.append({row.turn: _turn(row, trace) for row in turns} if fits else {})
            if fits:
                data = self._expected.get(name)
                relevant = {number: turn.relevant_doc_ids for number, turn in enumerate(data.turns)} if data else {}
                traces[name] = deflated(texts.pack({"series": own, "relevant": relevant}))
                used += len(traces[name])
        texts.close()
        order = sorted(affected.items(), key=lambda item: (item[0][0] == REPLY_CUT, -len(item[1]), item[0]))
        return {
            "causes": [{"kind": kind, "text": text, "at": sorted(positions)} for (kind, text), positions in order],
            "traces": [*map(traces.get, self.numbers)],
            "texts": texts.pages,
            "text_starts": texts.starts,
        }

    def _worst_first(self) -> list[str]:
        """Return the conversations, most failed turns first, then lowest mean of primary qualities first."""
        qualities = [name for name in self.primary if measure(name).better == "higher"]
        failed: Counter[str] = Counter()
        values_of: dict[str, list[float]] = defaultdict(list)
        for rows in self.values:
            for key, row in rows.items():
                failed[key[0]] += int(row.get("failed") or 0)
                values_of[key[0]] += [value for name in qualities if (value := row.get(name)) is not None]
        means = {name: math.fsum(values) / len(values) if values else 1.0 for name, values in values_of.items()}
        return sorted(failed, key=lambda name: (-failed[name], means[name], name))


def _run(run: StoredRun) -> dict[str, Any]:
    """Return the details of a run, with the spec that repeats it."""
    header = run.header
    spec = {key: value for key, value in header["spec"].items() if value not in (None, {}, "", [])}
    result = run.result
    return {
        "id": run.run_id,
        "path": str(run.path),
        "model": result.model,
        "mode": result.mode,
        "status": result.status,
        "data": [f"{name} {entry['sha256'][:12]}" for name, entry in header["datasets"].items()],
        "origin": {name: header.get(name, {}) for name in ("started", "commit", "versions", "machine")},
        "spec": yaml.safe_dump(spec, sort_keys=False, allow_unicode=True),
        "has_expectations": bool(run.conversations),
    }


def _expected_kind(turn: Turn) -> str:
    if turn.unanswerable:
        return "to decline"
    if turn.no_call or turn.expected_calls:
        return "no call" if turn.no_call else "calls"
    return "an answer" if turn.reference_answers else "nothing"


def _causes_of(run: StoredRun, turns: Sequence[TurnRow], trace: Trace | None) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield turn, and kind and text of its cause, for poor turns, calls that are not recorded, and cut replies."""
    for each in causes(run, turns):
        kind, text = each.cause, RULES[each.cause][1]
        if kind in ("error", "cut off"):
            text = shorten(each.why, 160)
        if kind == "retrieval miss" and each.event is None:
            kind, text = "did not search", "the answer is wrong, and the flow did not search the documents"
        yield each.turn, ("failed" if kind == "error" else kind, text)
    numbers = {row.turn for row in turns}
    for miss in recording_misses(trace) if trace else ():
        if miss.turn in numbers:
            yield miss.turn, ("not recorded", str(miss.data.get("cause", "")) or shorten(miss.text))
    for turn, call in (reply_calls(trace) if trace else {}).items():
        if turn in numbers and call.stop == "length":
            yield turn, (REPLY_CUT, f"at {call.request.max_tokens} tokens")


def _is_listed(event: Event) -> bool:
    """Return False for a step, which only groups events, and for the reply, which is above the trace."""
    return event.error is not None or not (
        isinstance(event, Step) or (isinstance(event, Notice) and event.name == "reply")
    )


def _mean(name: str, graded: Sequence[tuple[str, float | None]]) -> Mean:
    """Return mean, interval and number of turns; the mean is unknown if one value (conversation, value) is unknown."""
    if not graded or None in (value for _, value in graded):
        return None, None, len(graded)
    clusters, values = zip(*graded, strict=True)
    ends = score_ends(np.array(values)) if measure(name).is_bounded else None
    return *mean_interval(Column(*by_cluster(values, clusters), ends)), len(graded)


def _turn(row: TurnRow, trace: Trace | None) -> dict[str, Any]:
    events = trace.at(row.turn) if trace else ()
    scores = [[metric, _short(score.value), score.reason] for metric, score in (row.scores or {}).items()]
    return {"events": [_event(event) for event in events if _is_listed(event)], "scores": scores}


def _event(event: Event) -> dict[str, Any]:
    """Return an event without empty fields."""
    row = {name: value for name, value in to_row(event, _encoded).items() if name in ALWAYS or value}
    row |= {name: _short(row[name]) for name in ("start", "seconds", "waited") if name in row}
    return row | {"title": event.title}


def _encoded(value: Any) -> Any:
    """Return a value as JSON, a request with the messages and tools that `TextPool` packs."""
    return {"messages": value.messages, "tools": value.tools} if isinstance(value, Request) else to_json(value)


def _short(value: float | None) -> float | int | None:
    """Round to four digits, which are enough to read."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def _brief(column: list[Any]) -> Any:
    """Return a single value if all values are equal."""
    return column[0] if column and all(value == column[0] for value in column) else column
