"""Trace of a conversation and its folds: totals, sums by phase and by turn, latency.

Every number of a run comes from these folds. An event names its predecessors (`after`), so latency is the longest path
over the events. A wall clock would also measure other work.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from msgspec import Struct

from agentlab.core.errors import ConfigError, RunError
from agentlab.core.escaping import as_markdown, fenced, one_line, printable
from agentlab.core.events import PHASES, Decision, EmbeddingCall, Event, MemoryOp, ModelCall, Search, ToolRun, shorten
from agentlab.core.messages import Completion


class Totals(Struct, frozen=True, kw_only=True, gc=False):
    """Sums over billable events. A sum with an unknown part is None, never a smaller number.

    Calls, operations and seconds of a trace are always known; those of imported answers come from their source.
    `seconds` is the work of leaf events. It is not latency, because parallel work adds up; see `critical_path`.
    """

    llm_calls: int | None = 0
    embedding_calls: int | None = 0
    tool_calls: int | None = 0
    memory_ops: int | None = 0
    input_tokens: int | None = 0
    output_tokens: int | None = 0
    cached_tokens: int | None = 0
    cost_usd: float | None = 0.0
    seconds: float | None = 0.0

    @classmethod
    def sum(cls, parts: Iterable[Totals]) -> Totals:
        """Return the sums of `parts`, exact in any order: parallel work ends in another order in a replay."""
        parts = [*parts]
        if len(parts) < 2:
            return parts[0] if parts else _NOTHING
        return cls(**dict(zip(_NAMES, map(exact_sum, zip(*map(_values, parts), strict=True)), strict=True)))

    def is_close_to(self, other: Totals) -> bool:
        """Return True if all sums are equal, up to the rounding of floats added in another order."""
        return all(
            mine is theirs if None in (mine, theirs) else math.isclose(mine, theirs, rel_tol=1e-9, abs_tol=1e-12)
            for mine, theirs in zip(_values(self), _values(other), strict=True)
        )


def exact_sum(numbers: Iterable[Any]) -> Any:
    """Return the exactly rounded sum; None if a number is unknown (None)."""
    numbers = tuple(numbers)
    if None in numbers:
        return None
    return math.fsum(numbers) if float in map(type, numbers) else sum(numbers)


_NAMES = Totals.__struct_fields__
_values = attrgetter(*_NAMES)
_NOTHING = Totals()
_id = attrgetter("id")


def _price(event: Event, parents: Container[int | None] = ()) -> Totals:
    seconds = 0.0 if event.id in parents else event.seconds
    match event:
        case ModelCall(completion=Completion(usage=usage)):
            return Totals(
                llm_calls=1,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cached_tokens=usage.cached_tokens,
                cost_usd=event.cost_usd,
                seconds=seconds,
            )
        case EmbeddingCall():
            return Totals(embedding_calls=event.texts, seconds=seconds)
        case ToolRun():
            return Totals(tool_calls=1, seconds=seconds)
        case MemoryOp():
            return Totals(memory_ops=1, seconds=seconds)
    return Totals(seconds=seconds)


def fold(events: Iterable[Event]) -> Totals:
    """Return the totals of a trace, a turn or a phase; all events must be from one trace."""
    return Costs.of(list(events)).totals


def billed_totals(events: Iterable[Event]) -> Totals:
    """Return the totals of live events only; replayed ones are not paid for."""
    return Totals.sum(_price(event) for event in events if event.is_billable and event.origin == "live")


def critical_path(events: Iterable[Event]) -> float:
    """Return the latency of one turn in seconds: the longest path over its billable leaf events.

    The paths follow `after` and sum `seconds`. A parent counts as the longest path through its children; background
    work counts 0.
    """
    parts: dict[int | None, list[Event]] = defaultdict(list)
    for event in sorted(events, key=_id):
        if not event.background:
            parts[event.parent].append(event)
    paths: dict[int | None, float] = {}
    # Start at the end: children have higher ids than their parent.
    for parent, siblings in reversed(parts.items()):
        paths[parent] = longest_path(siblings, lambda e: paths.get(e.id, e.seconds if e.is_billable else 0.0))
    return paths.get(None, 0.0)


def longest_path(siblings: Iterable[Event], weight: Callable[[Event], float]) -> float:
    """Return the seconds of the longest path through events with one parent, in the order of their ids."""
    done: dict[int, float] = {}
    for event in siblings:
        done[event.id] = max([done.get(before, 0.0) for before in event.after], default=0.0) + weight(event)
    return max(done.values(), default=0.0)


class Trace:
    """Events of one conversation played through one flow; append-only."""

    def __init__(self, flow: str, conversation: str, epoch: int = 0, attempt: int = 0) -> None:
        self.flow = flow
        self.conversation = conversation
        self.epoch = epoch
        self.attempt = attempt
        """Number of earlier attempts: a killed run starts the conversation again."""
        self.events: list[Event] = []
        self.listeners: list[Callable[[Trace, Event], None]] = []
        self._next = 0

    def next_id(self) -> int:
        self._next += 1
        return self._next - 1

    def append(self, event: Event) -> None:
        self.events.append(event)
        for listen in self.listeners:
            listen(self, event)

    def at(self, index: int) -> list[Event]:
        """Return the events of a turn by its index, which rows and events carry."""
        return sorted([event for event in self.events if event.turn == index], key=_id)

    def of_turn(self, turn: int) -> list[Event]:
        """Return the events of a turn, counted from 1."""
        return self.at(turn_index(turn))

    def turns(self) -> list[int]:
        """Return the numbers of the turns, counted from 1."""
        return sorted({event.turn + 1 for event in self.events})

    def totals(self, turn: int | None = None) -> Totals:
        """Return the sums of a turn, counted from 1, or of the conversation."""
        return fold(self.events if turn is None else self.of_turn(turn))

    def latency(self, turn: int) -> float:
        """Return the seconds of the longest path of a turn, counted from 1."""
        return critical_path(self.of_turn(turn))

    def check(self) -> None:
        """Raise RunError unless sum over phases = sum over calls = sum over turns = totals."""
        check_totals(self.events, f"{self.flow}/{self.conversation}")

    def steps(self, turn: int | None = None, details: bool = True, full: bool = False) -> str:
        """Return the trace as an indented tree, one line an event; `full` adds requests and results.

        `turn` counts from 1; without it the tree has every turn. Raises ConfigError for a turn below 1.
        """
        turns = self.turns() if turn is None else [turn]
        lines: list[str] = []
        for number in turns:
            if turn is None:
                lines.append(f"turn {number}")
            lines.extend(_tree(self.of_turn(number), details, full))
        return "\n".join(lines)

    def __repr__(self) -> str:
        label = one_line(f"{self.flow}/{self.conversation}")
        return f"<Trace {label}: {len(self.events)} events in {len(self.turns())} turns>"

    def _repr_markdown_(self) -> str:
        title = as_markdown(f"{self.flow} · {self.conversation}")
        return f"**{title}**\n\n{fenced(self.steps())}"


def turn_index(turn: int) -> int:
    """Return the index of a turn that a user counts from 1; raises ConfigError for less than 1."""
    if turn < 1:
        raise ConfigError(f"turn {turn}: turns are counted from 1")
    return turn - 1


def format_totals(trace: Trace, turn: int) -> str:
    """Return calls, tokens, latency and cost of a turn in one line."""
    totals = trace.totals(turn)
    counts = {"model call": totals.llm_calls, "embedding call": totals.embedding_calls, "tool call": totals.tool_calls}
    counts["memory operation"] = totals.memory_ops
    parts = [f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counts.items() if number != 0]
    cost = "cost unknown" if totals.cost_usd is None else f"${totals.cost_usd:.4f}"
    spent = tokens(totals.input_tokens, totals.output_tokens)
    return " · ".join([*parts, spent, seconds(trace.latency(turn)), cost])


def tokens(input_tokens: int | None, output_tokens: int | None) -> str:
    if input_tokens is None and output_tokens is None:
        return "tokens unknown"
    before, after = ("?" if count is None else str(count) for count in (input_tokens, output_tokens))
    return f"{before} in, {after} out"


def seconds(count: float | None) -> str:
    return "time unknown" if count is None else f"{count:.2f} s"


class Costs(Struct, frozen=True):
    """Sums of a trace: in total, by phase and by turn."""

    totals: Totals
    phases: Mapping[str, Totals]
    """Sums by phase, in the order of `PHASES`. The seconds of a tool with children count in their phases."""
    turns: Mapping[int, Totals]
    """Sums by turn, for turns with billable events."""

    @classmethod
    def of(cls, events: Sequence[Event]) -> Costs:
        parents = {event.parent for event in events}
        parts: list[Totals] = []
        phases: dict[Any, list[Totals]] = defaultdict(list)
        turns: dict[int, list[Totals]] = defaultdict(list)
        for event in events:
            if event.is_billable:
                parts.append(_price(event, parents))
                phases[event.phase].append(parts[-1])
                turns[event.turn].append(parts[-1])
        return cls(
            Totals.sum(parts),
            {phase: Totals.sum(phases[phase]) for phase in sorted(phases, key=PHASES.index)},
            {turn: Totals.sum(of_turn) for turn, of_turn in turns.items()},
        )

    def of_turn(self, turn: int) -> Totals:
        return self.turns.get(turn, _NOTHING)


def check_totals(events: Sequence[Event], label: str) -> Costs:
    """Return the sums of the events; raises RunError if the sums by phase, by turn and by call differ.

    `label` names the conversation in the error.
    """
    seen = {event.id for event in events}
    if len(seen) < len(events):
        duplicate, _ = Counter(event.id for event in events).most_common(1)[0]
        raise RunError(f"{label}: duplicate event {duplicate} in the ledger")
    parents = {event.parent for event in events}
    if lost := parents - seen - {None}:
        orphan = next(event for event in events if event.parent in lost)
        raise RunError(f"{label}: event {orphan.id} belongs to event {orphan.parent}, which is not in the ledger")
    costs = Costs.of(events)
    work = [event for event in events if event.is_billable]
    answered = [(e, e.completion.usage) for e in work if isinstance(e, ModelCall) and e.completion is not None]
    calls = Totals(
        llm_calls=len(answered),
        embedding_calls=sum(e.texts for e in work if isinstance(e, EmbeddingCall)),
        tool_calls=sum(isinstance(e, ToolRun) for e in work),
        memory_ops=sum(isinstance(e, MemoryOp) for e in work),
        input_tokens=exact_sum([usage.input_tokens for _, usage in answered]),
        output_tokens=exact_sum([usage.output_tokens for _, usage in answered]),
        cached_tokens=exact_sum([usage.cached_tokens for _, usage in answered]),
        cost_usd=exact_sum([call.cost_usd for call, _ in answered]),
        seconds=exact_sum([e.seconds for e in work if e.id not in parents]),
    )
    sums = {"phases": Totals.sum(costs.phases.values()), "turns": Totals.sum(costs.turns.values()), "calls": calls}
    for name, total in sums.items():
        if not total.is_close_to(costs.totals):
            raise RunError(f"{label}: the sum over {name} is {total}, the totals are {costs.totals}")
    return costs


def whole(event: Event) -> str:
    """Return the whole request and result of a model call, tool run or search; "" for other events."""
    match event:
        case ModelCall(request=request, completion=completion):
            messages = [*request.messages, *([completion.message] if completion else [])]
            lines = []
            for message in messages:
                calls = [f"calls {call.name} {call.malformed or call.arguments}" for call in message.tool_calls]
                role = message.name or message.role if message.role == "agent" else message.role
                lines += [f"[{role}] {message.text}", *calls]
            return "\n".join(lines)
        case ToolRun(call=call, output=output):
            return f"[arguments] {call.malformed or call.arguments}\n[output] {output}"
        case Search(query=query, passages=passages):
            return "\n".join([f"[query] {query}", *(f"[{passage.id}] {passage}" for passage in passages)])
    return ""


def _tree(events: list[Event], details: bool, full: bool) -> list[str]:
    children: dict[int | None, list[Event]] = defaultdict(list)
    for event in events:
        children[event.parent].append(event)
    lines: list[str] = []

    def draw(siblings: list[Event], indent: str) -> None:
        for position, event in enumerate(siblings):
            last = position == len(siblings) - 1
            # Two spaces separate our columns; `one_line` leaves no double space within one.
            text = shorten(one_line(event.title), 160)
            if details:
                if event.is_billable:
                    text += f"  {event.seconds:.2f}s"
                if event.detail:
                    is_refused = isinstance(event, Decision) and event.choice is False
                    text += f"{':' if is_refused else ' '} {shorten(one_line(event.detail), 160)}"
            if event.error:
                text += f"  FAILED: {shorten(one_line(event.error), 200)}"
            lines.append(f"{indent}{'└─' if last else '├─'} {text}")
            below = indent + ("   " if last else "│  ")
            if full:
                lines.extend(f"{below}  {line}" for line in printable(whole(event)).splitlines())
            draw(children[event.id], below)

    draw(children[None], "")
    return lines
