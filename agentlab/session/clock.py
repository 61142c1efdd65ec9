"""Gives every event its place in the trace: turn, parent, what it came after, and when on the modelled clock.

The modelled clock runs on the measured or recorded seconds of each piece of work, as if nothing had ever waited in a
queue. So a replay, which does nothing but look up, writes the same numbers as the run that was recorded.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from msgspec.structs import replace

from agentlab.core.events import Decision, Event, Notice, Phase, Search, ToolRun, shorten
from agentlab.core.protocols import CallSite
from agentlab.core.stream import NoticeItem, StepEnded, StepStarted, Stream
from agentlab.core.trace import Trace, longest_path

log = logging.getLogger(__name__)
_LOGGED_EVENTS = (Decision, Search, ToolRun)
"""What tells in a log why a turn came out as it did."""
RecordedDuration = Callable[[Any, float], tuple[float, str]]
"""Takes what was done in this process, as JSON, and the seconds measured; gives the seconds to write, and origin."""


class Scope(NamedTuple):
    """Where in the trace the running code is: the event it belongs to, and what it came after."""

    turn: int = 0
    parent: int | None = None
    after: tuple[int, ...] = ()
    background: bool = False
    path: tuple[int, ...] = ()
    """The branches of parallel work that lead here, by number; below zero, pieces of background work."""


class Clock:
    """The clock of one conversation. Tasks that work side by side each have a scope of their own."""

    def __init__(self, trace: Trace, stream: Stream, recorded_duration: RecordedDuration) -> None:
        self.trace = trace
        self.stream = stream
        self._recorded_duration = recorded_duration
        self._now = 0.0
        self._last_end = 0.0
        """When the last of all events ended."""
        self._began: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._children: dict[int, list[Event]] = {}
        self._turn_scope = Scope()
        self._turn_task: asyncio.Task[Any] | None = None
        self._scopes: WeakKeyDictionary[asyncio.Task[Any], Scope] = WeakKeyDictionary()
        self._has_branches = False

    @property
    def scope(self) -> Scope:
        task = self._branch() if self._has_branches else None
        # A task that nobody announced, such as one that a flow made itself, begins where its turn stands.
        return self._turn_scope if task is None else self._scopes.get(task, self._turn_scope)

    @scope.setter
    def scope(self, scope: Scope) -> None:
        if (task := self._branch()) is None:
            self._turn_scope = scope
        else:
            self._has_branches = True
            self._scopes[task] = scope

    def _branch(self) -> asyncio.Task[Any] | None:
        """The running task, where it is another than that of the turn."""
        task = _running_task()
        return None if task is self._turn_task else task

    @property
    def place(self) -> CallSite:
        scope = self.scope
        return CallSite(turn=scope.turn, path=scope.path)

    def begin_turn(self, turn: int) -> None:
        self._turn_task = _running_task()
        self._turn_scope = Scope(turn=turn)
        self._now = self._last_end
        self._began.clear()

    def enter_branch(self, outer: Scope, number: int) -> None:
        """The running task is one of several that work side by side since `outer`."""
        self.scope = outer._replace(path=(*outer.path, number))

    def enter_background(self, outer: Scope, number: int) -> None:
        """What the running task does from here on belongs to no other event, and nothing waits for it."""
        self.scope = outer._replace(parent=None, background=True, path=(*outer.path, -1 - number))

    def set_predecessors(self, events: tuple[int, ...]) -> None:
        """What comes next waits for all of `events`."""
        self.scope = self.scope._replace(after=events)

    @property
    def elapsed(self) -> float:
        """Modelled seconds of the turn so far, where the running code is."""
        return max(0.0, self._time_at(self.scope) - self._now)

    def _time_at(self, scope: Scope) -> float:
        if not scope.after:
            return self._now if scope.parent is None else self._began.get(scope.parent, self._now)
        return max([self._ended.get(before, 0.0) for before in scope.after])

    def open(self, phase: Phase | None) -> dict[str, Any]:
        """The first fields of an event that begins now."""
        scope = self.scope
        event_id = self.trace.next_id()
        self._began[event_id] = start = self._time_at(scope)
        return {
            "id": event_id,
            "phase": phase,
            "start": start,
            "turn": scope.turn,
            "parent": scope.parent,
            "after": scope.after,
            "background": scope.background,
        }

    def emit_start(self, event: Event) -> None:
        """Tell the stream what begins; nothing has come of it yet."""
        self.stream.emit(StepStarted(event.turn, event))

    def close(self, event: Event) -> None:
        """Write the event down; what comes next comes after it."""
        if event.parent is not None:
            self._children.setdefault(event.parent, []).append(event)
        self._ended[event.id] = end = event.start + event.seconds
        self._last_end = max(self._last_end, end)
        self.scope = Scope(event.turn, event.parent, (event.id,), event.background, self.scope.path)
        self.trace.append(event)
        if isinstance(event, _LOGGED_EVENTS):
            where = f"{self.trace.flow}/{self.trace.conversation} turn {event.turn + 1}"
            log.info("%s: %s  %s", where, event.title, shorten(event.detail))
        if self.stream.has_listeners:
            ended = NoticeItem(event.turn, event) if isinstance(event, Notice) else StepEnded(event.turn, event)
            self.stream.emit(ended)

    @contextmanager
    def timed(self, kind: type[Event], phase: Phase | None, **facts: Any) -> Iterator[dict[str, Any]]:
        """Make the block one event; what the block puts into the dict it is given becomes fields of the event."""
        outer = self.scope
        opened = self.open(phase)
        if self.stream.has_listeners and kind not in (Decision, Notice):
            self.emit_start(kind(**opened, **facts))
        self.scope = Scope(outer.turn, opened["id"], (), outer.background, outer.path)
        began = time.perf_counter()
        try:
            yield facts
        except BaseException as failure:
            interrupted = isinstance(failure, asyncio.CancelledError)
            facts["error"] = "interrupted" if interrupted else f"{type(failure).__name__}: {failure}"
            raise
        finally:
            seconds = time.perf_counter() - began
            self.close(self._ended_event(kind, opened | facts, seconds))

    def _ended_event(self, kind: type[Event], fields: dict[str, Any], seconds: float) -> Event:
        """A block that took so many seconds: of a whole its longest path counts, of a part what was recorded."""
        parts = self._children.pop(fields["id"], None)
        if parts:
            parts.sort(key=lambda part: part.id)
            fields["seconds"] = longest_path(parts, lambda part: part.seconds)
            fields["origin"] = "replay" if any(part.origin == "replay" for part in parts) else "live"
        event = kind(**fields)
        if not parts and event.duration_identity is not None:
            took, origin = self._recorded_duration(event.duration_identity, seconds)
            event = replace(event, seconds=took, origin=origin)
        return event


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # a thread without a loop, or a script
