"""What the page of a run shows, as plain data: turns as rows, flows as columns, and the traces as far as there is room.

Rows are turns of conversations, in their order; a play is one flow in one epoch, a column of values over the rows. All
of it is folded from the run folder.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import yaml

from agentlab.core.events import PHASES, Event, ModelCall, Notice, Step, shorten, to_row
from agentlab.core.names import NOT_RECORDED
from agentlab.data.conversations import Turn
from agentlab.evals.compare.causes import RULES, causes
from agentlab.evals.compare.pairs import Comparison
from agentlab.evals.compare.ship import sides_of
from agentlab.evals.report.packing import Texts, deflated
from agentlab.evals.report.show import expected
from agentlab.evals.stats.statistics import Interval, by_cluster, mean_intervals
from agentlab.evals.store.measures import Key, Values, in_order, measure
from agentlab.evals.store.rows import TurnRow
from agentlab.evals.store.run import StoredRun

ROWS_OF_A_CHUNK = 64
"""Of which questions and replies are deflated together, and read once one of them is on the screen."""
TRACES_AT_MOST = 12_000_000
REPLIES_AT_MOST = 6_000_000
"""Bytes of the page; beyond that traces are left out, the best turns first, and replies cut."""
LENGTHS = (None, 2000, 600, 200)
"""Characters of a reply to try, until the replies fit."""
SLICES_AT_MOST = 24
"""Values of a property that still divide the turns into something to look at."""
CUT_OFF = "cut off"
"""Here all that ended at max_tokens; the rule of this name knows those that were wrong."""
ALWAYS = ("kind", "id", "turn")
Place = tuple[str, int]
"""Conversation and turn: a row."""


class Content:
    """Of the runs that stand on one page."""

    def __init__(self, runs: Sequence[StoredRun]) -> None:
        self.runs = runs
        self.sides = sides_of(runs)
        self.values: list[dict[Key, Values]] = [side.run.measured[side.flow] for side in self.sides]
        self.rows: list[Place] = sorted({(key[0], key[1]) for rows in self.values for key in rows})
        self.measures = in_order(name for rows in self.values for row in rows.values() for name in row)
        self.intervals = self._mean_intervals()
        played = {(id(run), row.play, row.turn): row for run in runs for row in run.rows()}
        self.played: list[dict[Key, TurnRow]] = [
            {(c, t, e): played[id(side.run), (side.flow, c, e), t] for c, t, e in rows}
            for side, rows in zip(self.sides, self.values, strict=True)
        ]
        self._epochs = [sorted({key[2] for key in rows}) for rows in self.played]
        self._gold = {name: conversation for run in runs for name, conversation in run.conversations.items()}

    def as_json(self, comparison: Comparison | None) -> dict[str, Any]:
        """All of it but the verdict."""
        primary = comparison.primary if comparison else ()
        return {
            "flows": [side.name for side in self.sides],
            "measures": [self._measure(name, name in primary) for name in self.measures],
            "means": self.intervals,
            "pairs": self._pairs(comparison),
            "rows": self._rows(),
            "plays": [*self._plays()],
            "causes": [*self._causes()],
            "phases": [side.run.result.flows[side.flow].phases for side in self.sides],
            "phase_order": PHASES,
            "runs": [_run(run) for run in self.runs],
            **self._replies(),
            **self._traces(primary),
        }

    def _mean_intervals(self) -> list[list[tuple[float | None, Interval, int]]]:
        """Of each flow and measure the mean, its interval and the number of turns."""
        found: list[list[tuple[float | None, Interval, int]]] = []
        columns, places = [], []
        for number, rows in enumerate(self.values):
            found.append([])
            for name in self.measures:
                graded = [(key[0], row[name]) for key, row in sorted(rows.items()) if name in row]
                known = [(conversation, value) for conversation, value in graded if value is not None]
                found[-1].append((None, None, len(graded)))
                if known and len(known) == len(graded):  # a part is not the whole
                    places.append((number, len(found[-1]) - 1))
                    columns.append(by_cluster([value for _, value in known], [name for name, _ in known]))
        for (number, place), (mean, interval) in zip(places, mean_intervals(columns), strict=True):
            found[number][place] = (mean, interval, found[number][place][2])
        return found

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
                        "reading": d.word,
                    }
                    for d in pair.differences
                    if d.difference is not None
                ],
            }
            for pair in (comparison.pairs if comparison else ())
        ]

    def _rows(self) -> dict[str, Any]:
        names = list(dict.fromkeys(conversation for conversation, _ in self.rows))
        number = {name: place for place, name in enumerate(names)}
        return {
            "conversations": names,
            "conversation": [number[conversation] for conversation, _ in self.rows],
            "turn": [turn for _, turn in self.rows],
            "slices": self._slices(),
        }

    def _slices(self) -> dict[str, list[str]]:
        """Property -> its value for each row, "" where it has none; those that divide the turns into a few parts."""
        found: dict[str, list[str]] = defaultdict(lambda: [""] * len(self.rows))
        data = {(key[0], key[1]): row for rows in self.played for key, row in rows.items()}
        for number, place in enumerate(self.rows):
            row, turn = data[place], self.turn(place)
            about: dict[str, Any] = {"data set": row.dataset, "turn": "first" if place[1] == 0 else "later"}
            if conversation := self._gold.get(place[0]):
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
        return {name: values for name, values in found.items() if 1 < sizes[name] <= SLICES_AT_MOST}

    def turn(self, place: Place) -> Turn | None:
        conversation = self._gold.get(place[0])
        return conversation.turns[place[1]] if conversation and 0 <= place[1] < len(conversation.turns) else None

    def _plays(self) -> Iterator[dict[str, Any]]:
        """Of each flow and epoch the values over the rows; None where the measure does not apply or is not known."""
        for number, (rows, epochs) in enumerate(zip(self.values, self._epochs, strict=True)):
            for epoch in epochs:
                columns = [
                    [_short(rows.get((*place, epoch), {}).get(name)) for place in self.rows] for name in self.measures
                ]
                there = [(*place, epoch) in rows for place in self.rows]
                yield {
                    "flow": number,
                    "epoch": epoch,
                    "there": _brief([int(is_there) for is_there in there]),
                    "values": [_brief(column) for column in columns],
                }

    def _causes(self) -> Iterator[dict[str, Any]]:
        """What went wrong, most frequent first: of each cause its kind and the flow and row of every turn it struck."""
        struck: dict[tuple[str, str], list[tuple[int, int]]] = defaultdict(list)
        number = {place: row for row, place in enumerate(self.rows)}
        why = {id(run): causes(run) for run in self.runs}
        for flow, played in enumerate(self.played):
            traces = self.sides[flow].run.traces
            for key, row in played.items():
                at = flow, number[key[0], key[1]]
                if row.error is not None:
                    struck["failed", shorten(row.error, 160)].append(at)
                trace = traces.get(row.play)
                for cause in {*_troubles(trace.of_turn(row.turn) if trace else ())}:
                    struck[cause].append(at)
            for each in why[id(self.sides[flow].run)]:
                if each.flow == self.sides[flow].flow and each.cause not in ("error", CUT_OFF):  # shown already
                    struck[each.cause, RULES[each.cause][1]].append((flow, number[each.conversation, each.turn]))
        for (kind, text), places in sorted(struck.items(), key=lambda item: (-len(item[1]), item[0])):
            yield {"kind": kind, "text": text, "at": sorted({*places})}

    def _replies(self) -> dict[str, Any]:
        """Chunks of questions, of what is expected, and of replies or errors, a list a play in the order of `plays`."""
        chunks: list[str] = []
        for most in LENGTHS:
            chunks = [
                deflated([self._said(place, most) for place in self.rows[begin : begin + ROWS_OF_A_CHUNK]])
                for begin in range(0, len(self.rows), ROWS_OF_A_CHUNK)
            ]
            if sum(map(len, chunks)) <= REPLIES_AT_MOST:
                break
        return {"chunks": chunks, "rows_of_a_chunk": ROWS_OF_A_CHUNK, "replies_cut_at": most}

    def _said(self, place: Place, most: int | None) -> list[Any]:
        replies: list[Any] = []
        asked = ""
        for rows, epochs in zip(self.played, self._epochs, strict=True):
            for epoch in epochs:
                row = rows.get((*place, epoch))
                asked = row.user if row else asked
                text = None if row is None else (row.reply.text if row.reply else row.error or "")
                replies.append(text if text is None or most is None or len(text) <= most else text[:most] + " …")
        return [asked[:most], [*expected(self.turn(place))], replies]

    def _traces(self, primary: Sequence[str]) -> dict[str, Any]:
        """Of each conversation its deflated traces in all plays, the worst conversations first, until the room is used.

        A trace is `{"turn": {"events", "scores"}}` a play; texts stand in pages of their own.
        """
        texts, traces, used = Texts(), {}, 0
        turns_of = [defaultdict[tuple[str, int], list[int]](list) for _ in self.played]
        for found, rows in zip(turns_of, self.played, strict=True):
            for conversation, turn, epoch in sorted(rows):
                found[conversation, epoch].append(turn)
        conversations = self._worst_first(primary)
        for name in conversations:
            if used + texts.bytes > TRACES_AT_MOST:
                break
            plays: list[dict[int, Any]] = []
            for side, rows, turns, epochs in zip(self.sides, self.played, turns_of, self._epochs, strict=True):
                for epoch in epochs:
                    play = (side.flow, name, epoch)
                    trace = side.run.traces.get(play)
                    plays.append(
                        {
                            turn: {
                                "events": [_event(e) for e in (trace.of_turn(turn) if trace else ()) if _is_told(e)],
                                "scores": [
                                    [metric, _short(score.value), score.reason]
                                    for metric, score in (rows[name, turn, epoch].scores or {}).items()
                                ],
                            }
                            for turn in turns[name, epoch]
                        }
                    )
            gold = self._gold.get(name)
            relevant = {number: turn.relevant_doc_ids for number, turn in enumerate(gold.turns)} if gold else {}
            traces[name] = deflated(texts.pack({"plays": plays, "relevant": relevant}))
            used += len(traces[name])
        texts.close()
        return {
            "traces": [traces.get(name) for name in dict.fromkeys(conversation for conversation, _ in self.rows)],
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


def _troubles(events: Sequence[Event]) -> Iterator[tuple[str, str]]:
    for event in events:
        if isinstance(event, ModelCall) and event.completion and event.completion.finish_reason == "length":
            yield CUT_OFF, f"by max_tokens ({event.request.max_tokens})"
        if isinstance(event, Notice) and event.name == NOT_RECORDED:
            yield "not recorded", str(event.data.get("cause", "")) or shorten(event.text)


def _is_told(event: Event) -> bool:
    """A step only groups what happens inside it, and the reply stands above the trace."""
    return event.error is not None or not (
        isinstance(event, Step) or (isinstance(event, Notice) and event.name == "reply")
    )


def _event(event: Event) -> dict[str, Any]:
    """An event without what is empty; the tools of a request as one text, which most requests share."""
    row: dict[str, Any] = {name: value for name, value in to_row(event).items() if name in ALWAYS or value}
    row["title"] = event.title
    for name in ("start", "seconds", "waited"):
        if name in row:
            row[name] = _short(row[name])
    if isinstance(event, ModelCall):
        request: dict[str, Any] = dict(row["request"])
        if "tools" in request:
            request["tools"] = "\n".join(map(_tool, request["tools"]))
        row["request"] = request
    return row


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
