"""What the page of a run shows, as plain data: turns as rows, flows as columns, and the traces as far as there is room.

Rows are turns of conversations, in their order; a play is one flow in one epoch, a column of values over the rows. All
of it is folded from the run folder.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import yaml

from agentlab.core.constants import NOT_RECORDED
from agentlab.core.events import PHASES, Event, ModelCall, Notice, Step, shorten, to_row
from agentlab.core.trace import Trace
from agentlab.data.conversations import Turn
from agentlab.evals.compare.causes import RULES, causes
from agentlab.evals.compare.pairs import Comparison
from agentlab.evals.compare.ship import sides_of
from agentlab.evals.report.packing import TextPool, deflated
from agentlab.evals.report.show import expected
from agentlab.evals.stats.statistics import Interval, by_cluster, mean_intervals
from agentlab.evals.store.measures import TurnKey, Values, in_order, measure
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import StoredRun

ROWS_OF_A_CHUNK = 64
"""Of which questions and replies are deflated together, and read once one of them is on the screen."""
MAX_TRACE_BYTES = 12_000_000
MAX_REPLY_BYTES = 6_000_000
"""Bytes of the page; beyond that traces are left out, the best turns first, and replies cut."""
LENGTHS = (None, 2000, 600, 200)
"""Characters of a reply to try, until the replies fit."""
MAX_SLICES = 24
"""Values of a property that still divide the turns into something to look at."""
CUT_OFF = "cut off"
"""Here all that ended at max_tokens; the rule of this name knows those that were wrong."""
ALWAYS = ("kind", "id", "turn")
Place = tuple[str, int]
"""Conversation and turn: a row."""


class Played(NamedTuple):
    """One flow in one epoch: its turns and what they measure, by place."""

    flow: int
    """Its number among the sides."""
    epoch: int
    turns: dict[Place, TurnRow]
    values: dict[Place, Values]


class Content:
    """Of the runs that stand on one page."""

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self.runs = runs
        self.sides = sides_of(runs)
        self.values: list[dict[TurnKey, Values]] = [side.run.turn_values[side.flow] for side in self.sides]
        self.rows: list[Place] = sorted({(key[0], key[1]) for rows in self.values for key in rows})
        self.numbers = {name: number for number, name in enumerate(dict.fromkeys(name for name, _ in self.rows))}
        """By conversation."""
        self.measures = in_order(name for rows in self.values for row in rows.values() for name in row)
        self.intervals = self._mean_intervals()
        turns = {(id(run), row.flow, *row.key): row for run in runs for row in run.rows()}
        self.plays: list[Played] = []
        for number, (side, rows) in enumerate(zip(self.sides, self.values, strict=True)):
            for epoch in sorted({key[2] for key in rows}):
                values = {(name, turn): rows[name, turn, of] for name, turn, of in rows if of == epoch}
                own = {place: turns[id(side.run), side.flow, *place, epoch] for place in values}
                self.plays.append(Played(number, epoch, own, values))
        self._expected = {name: conversation for run in runs for name, conversation in run.conversations.items()}

    def as_json(self, comparison: Comparison | None) -> dict[str, Any]:
        """All of it but the verdict."""
        primary = comparison.primary if comparison else ()
        return {
            "flows": [side.name for side in self.sides],
            "measures": [self._measure(name, name in primary) for name in self.measures],
            "means": self.intervals,
            "pairs": self._pairs(comparison),
            "rows": self._rows(),
            "plays": [self._play(play) for play in self.plays],
            "causes": [*self._causes()],
            "phases": [side.run.result.flows[side.flow].phases for side in self.sides],
            "phase_order": PHASES,
            "runs": [_run(run) for run in self.runs],
            **self._replies(),
            **self._traces(primary),
        }

    def _mean_intervals(self) -> list[list[tuple[float | None, Interval, int]]]:
        """Return of each flow and measure the mean, its interval and the number of turns."""
        graded = [
            [(key[0], row[name]) for key, row in turns if name in row]
            for turns in (sorted(rows.items()) for rows in self.values)
            for name in self.measures
        ]
        # A part is not the whole.
        known = {place: of for place, of in enumerate(graded) if of and None not in (value for _, value in of)}
        columns = [by_cluster([v or 0.0 for _, v in of], [name for name, _ in of]) for of in known.values()]
        means = dict(zip(known, mean_intervals(columns), strict=True))
        found = [(*means.get(place, (None, None)), len(of)) for place, of in enumerate(graded)]
        return [found[begin : begin + len(self.measures)] for begin in range(0, len(found), len(self.measures))]

    def _measure(self, name: str, decides: bool) -> dict[str, Any]:
        found = measure(name)
        quality = found.better == "higher"
        return {"name": name, "title": found.title, "quality": quality, "higher": quality, "decides": decides}

    def _pairs(self, comparison: Comparison | None) -> list[dict[str, Any]]:
        return [
            {
                "a": pair.a,
                "b": pair.b,
                "differences": [
                    {
                        "measure": self.measures.index(d.measure.name),
                        "difference": _short(d.difference),
                        "ci95": d.ci95 and [_short(end) for end in d.ci95],
                        "p": _short(d.p_adjusted),
                        "n": d.n,
                        "reading": d.verdict,
                    }
                    for d in pair.differences
                    if d.difference is not None
                ],
            }
            for pair in (comparison.pairs if comparison else ())
        ]

    def _rows(self) -> dict[str, Any]:
        return {
            "conversations": [*self.numbers],
            "conversation": [self.numbers[conversation] for conversation, _ in self.rows],
            "turn": [turn for _, turn in self.rows],
            "slices": self._slices(),
        }

    def _slices(self) -> dict[str, list[str]]:
        """Property -> its value for each row, "" where it has none; those that divide the turns into a few parts."""
        found: dict[str, list[str]] = defaultdict(lambda: [""] * len(self.rows))
        data = {place: row for play in self.plays for place, row in play.turns.items()}
        for number, place in enumerate(self.rows):
            row, turn = data[place], self.turn(place)
            about: dict[str, Any] = {"data set": row.dataset, "turn": "first" if place[1] == 0 else "later"}
            if conversation := self._expected.get(place[0]):
                about |= {f"conversation {name}": value for name, value in conversation.metadata.items()}
            elif isinstance(row.category, str):
                about["conversation category"] = row.category
            if turn is not None:
                about |= {f"turn {name}": value for name, value in turn.metadata.items()}
                about["expected"] = _asks_for(turn)
            for name, value in about.items():
                if isinstance(value, (str, bool, int)):
                    found[name][number] = str(value)
        sizes = {name: len({*values}) for name, values in found.items()}
        return {name: values for name, values in found.items() if 1 < sizes[name] <= MAX_SLICES}

    def turn(self, place: Place) -> Turn | None:
        conversation = self._expected.get(place[0])
        return conversation.turns[place[1]] if conversation and 0 <= place[1] < len(conversation.turns) else None

    def _play(self, play: Played) -> dict[str, Any]:
        """Return the values over the rows; None where the measure does not apply or is not known."""
        columns = [[_short(play.values.get(place, {}).get(name)) for place in self.rows] for name in self.measures]
        there = [int(place in play.turns) for place in self.rows]
        return {"flow": play.flow, "epoch": play.epoch, "there": _brief(there), "values": [*map(_brief, columns)]}

    def _causes(self) -> Iterator[dict[str, Any]]:
        """What went wrong, most frequent first: of each cause its kind and the flow and row of every turn it struck."""
        struck: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        number = {place: row for row, place in enumerate(self.rows)}
        for play in self.plays:
            traces = self.sides[play.flow].run.traces
            for place, row in play.turns.items():
                at = play.flow, number[place]
                if row.error is not None:
                    struck["failed", shorten(row.error, 160)].append(at)
                trace = traces.get(row.play)
                for cause in {*_problem_kinds(trace.of_turn(row.turn) if trace else ())}:
                    struck[cause].append(at)
        flows = {(id(side.run), side.flow): flow for flow, side in enumerate(self.sides)}
        for run in self.runs:
            for each in causes(run):
                if each.cause not in ("error", CUT_OFF):  # shown already
                    at = flows[id(run), each.flow], number[each.conversation, each.turn]
                    struck[each.cause, RULES[each.cause][1]].append(at)
        for (kind, text), places in sorted(struck.items(), key=lambda item: (-len(item[1]), item[0])):
            yield {"kind": kind, "text": text, "at": sorted({*places})}

    def _replies(self) -> dict[str, Any]:
        """Chunks of questions, of what is expected, and of replies or errors, a list a play in the order of `plays`."""
        chunks: list[str] = []
        for most in LENGTHS:
            chunks = [
                deflated([self._texts_of_row(place, most) for place in self.rows[begin : begin + ROWS_OF_A_CHUNK]])
                for begin in range(0, len(self.rows), ROWS_OF_A_CHUNK)
            ]
            if sum(map(len, chunks)) <= MAX_REPLY_BYTES:
                break
        return {"chunks": chunks, "rows_of_a_chunk": ROWS_OF_A_CHUNK, "replies_cut_at": most}

    def _texts_of_row(self, place: Place, most: int | None) -> list[Any]:
        replies: list[Any] = []
        asked = ""
        for play in self.plays:
            row = play.turns.get(place)
            asked = row.user if row else asked
            text = None if row is None else (row.reply.text if row.reply else row.error or "")
            replies.append(text if text is None or most is None or len(text) <= most else text[:most] + " …")
        return [asked[:most], [*expected(self.turn(place))], replies]

    def _traces(self, primary: Sequence[str]) -> dict[str, Any]:
        """Of each conversation its deflated traces in all plays, the worst conversations first, until the room is used.

        A trace is `{"turn": {"events", "scores"}}` a play; texts stand in pages of their own.
        """
        texts, traces, used = TextPool(), {}, 0
        for name in self._worst_first(primary):
            if used + texts.bytes > MAX_TRACE_BYTES:
                break
            places = [place for place in self.rows if place[0] == name]
            plays = []
            for play in self.plays:
                side = self.sides[play.flow]
                trace = side.run.traces.get((side.flow, name, play.epoch))
                plays.append({place[1]: _turn(play.turns[place], trace) for place in places if place in play.turns})
            gold = self._expected.get(name)
            relevant = {number: turn.relevant_doc_ids for number, turn in enumerate(gold.turns)} if gold else {}
            traces[name] = deflated(texts.pack({"plays": plays, "relevant": relevant}))
            used += len(traces[name])
        texts.close()
        return {
            "traces": [*map(traces.get, self.numbers)],
            "texts": texts.pages,
            "text_starts": texts.starts,
        }

    def _worst_first(self, primary: Sequence[str]) -> list[str]:
        """Conversations with failed turns first, then by the quality that decides."""
        qualities = [name for name in primary if measure(name).better == "higher"]
        failed: Counter[str] = Counter()
        lacking: dict[str, list[float]] = defaultdict(list)
        for rows in self.values:
            for key, row in rows.items():
                failed[key[0]] += int(row.get("failed") or 0)
                lacking[key[0]] += [value for name in qualities if (value := row.get(name)) is not None]
        means = {name: math.fsum(values) / len(values) if values else 1.0 for name, values in lacking.items()}
        return sorted(failed, key=lambda name: (-failed[name], means[name], name))


def _run(run: StoredRun) -> dict[str, Any]:
    """Where the run is from, and the spec that makes it again."""
    header = run.header
    spec = {key: value for key, value in header["spec"].items() if value not in (None, {}, "", [])}
    result = run.result
    return {
        "id": run.run_id,
        "path": str(run.path),
        "model": result.model,
        "mode": result.mode,
        "status": result.status,
        "data": [f"{name} {about['sha256'][:12]}" for name, about in header["datasets"].items()],
        "conversations": result.conversations,
        "turns": result.turns,
        "started": header.get("started", ""),
        "commit": header.get("commit", ""),
        "versions": [f"{name} {version}" for name, version in header.get("versions", {}).items()],
        "machine": " ".join(map(str, header.get("machine", {}).values())),
        "spec": yaml.safe_dump(spec, sort_keys=False, allow_unicode=True),
        "gold": bool(run.conversations),
    }


def _asks_for(turn: Turn) -> str:
    if turn.unanswerable:
        return "to decline"
    if turn.no_call or turn.expected_calls:
        return "no call" if turn.no_call else "calls"
    return "an answer" if turn.reference_answers else "nothing"


def _problem_kinds(events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    for event in events:
        if isinstance(event, ModelCall) and event.completion and event.completion.finish_reason == "length":
            yield CUT_OFF, f"by max_tokens ({event.request.max_tokens})"
        if isinstance(event, Notice) and event.name == NOT_RECORDED:
            yield "not recorded", str(event.data.get("cause", "")) or shorten(event.text)


def _is_listed(event: Event) -> bool:
    """A step only groups what happens inside it, and the reply stands above the trace."""
    return event.error is not None or not (
        isinstance(event, Step) or (isinstance(event, Notice) and event.name == "reply")
    )


def _turn(row: TurnRow, trace: Trace | None) -> dict[str, Any]:
    events = trace.of_turn(row.turn) if trace else ()
    scores = [[metric, _short(score.value), score.reason] for metric, score in (row.scores or {}).items()]
    return {"events": [_event(event) for event in events if _is_listed(event)], "scores": scores}


def _event(event: Event) -> dict[str, Any]:
    """An event without what is empty; the tools of a request as one text, which most requests share."""
    row: dict[str, Any] = {name: value for name, value in to_row(event).items() if name in ALWAYS or value}
    row |= {name: _short(row[name]) for name in ("start", "seconds", "waited") if name in row}
    if "tools" in (request := row.get("request", {})):
        row["request"] = request | {"tools": "\n".join(map(_tool, request["tools"]))}
    return row | {"title": event.title}


def _tool(spec: Mapping[str, Any]) -> str:
    return f"{spec['name']}: {spec.get('description', '')} {json.dumps(spec.get('parameters', {}), ensure_ascii=False)}"


def _short(value: float | None) -> float | int | None:
    """Four digits, which is what anybody reads."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short


def _brief(column: list[Any]) -> Any:
    """One value where all are the same."""
    return column[0] if column and all(value == column[0] for value in column) else column
