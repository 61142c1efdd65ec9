"""Gives every event its position in the trace: turn, parent, predecessors and modelled start time.

The modelled clock adds the measured or recorded seconds of work and no queueing. So a replay, which only looks up
recordings, writes the same numbers as the recorded run.
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

from agentlab.core.events import Decision, Event, MemoryOp, ModelCall, Notice, Phase, Search, ToolRun, shorten
from agentlab.core.stream import NoticeItem, StepEnded, StepStarted, Stream
from agentlab.core.trace import Trace, longest_path

log = logging.getLogger(__name__)
_LOGGED_EVENTS = (Decision, MemoryOp, ModelCall, Search, ToolRun)
"""Events that the log shows, because they explain the reply of a turn."""
RecordedDuration = Callable[[Any, float], tuple[float, str]]
"""Function of the work done in this process (JSON) and its measured seconds; returns seconds and origin to store."""


class Scope(NamedTuple):
    """Position of the running code in the trace: turn, parent event and predecessors."""

    turn: int = 0
    parent: int | None = None
    after: tuple[int, ...] = ()
    background: bool = False
    path: tuple[int, ...] = ()
    """Numbers of the parallel branches that lead here; negative numbers are background tasks."""


class Clock:
    """Clock of one conversation. Each concurrent task has its own scope."""

    def __init__(self, trace: Trace, stream: Stream, recorded_duration: RecordedDuration) -> None:
        self.trace = trace
        self.stream = stream
        self._recorded_duration = recorded_duration
        self._now = 0.0
        self._last_end = 0.0
        """Modelled time at which the last event ended."""
        self._started: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._children: dict[int, list[Event]] = {}
        self._turn_scope = Scope()
        self._turn_task: asyncio.Task[Any] | None = None
        self._scopes: WeakKeyDictionary[asyncio.Task[Any], Scope] = WeakKeyDictionary()
        self._has_branches = False

    @property
    def scope(self) -> Scope:
        task = self._branch() if self._has_branches else None
        # A task without a scope, such as one that a flow creates itself, starts at the scope of its turn.
        return self._turn_scope if task is None else self._scopes.get(task, self._turn_scope)

    @scope.setter
    def scope(self, scope: Scope) -> None:
        if (task := self._branch()) is None:
            self._turn_scope = scope
        else:
            self._has_branches = True
            self._scopes[task] = scope

    def _branch(self) -> asyncio.Task[Any] | None:
        """Return the running task if it is not the task of the turn, else None."""
        task = _running_task()
        return None if task is self._turn_task else task

    def begin_turn(self, turn: int) -> None:
        self._turn_task = _running_task()
        self._turn_scope = Scope(turn=turn)
        self._now = self._last_end
        self._started.clear()

    @property
    def elapsed(self) -> float:
        """Modelled seconds from the start of the turn to the running code."""
        return max(0.0, self._time_at(self.scope) - self._now)

    def _time_at(self, scope: Scope) -> float:
        if not scope.after:
            return self._now if scope.parent is None else self._started.get(scope.parent, self._now)
        return max([self._ended.get(before, 0.0) for before in scope.after])

    def open(self, phase: Phase | None) -> dict[str, Any]:
        """Return the first fields of an event that starts now."""
        scope = self.scope
        event_id = self.trace.next_id()
        self._started[event_id] = start = self._time_at(scope)
        return {
            "id": event_id,
            "phase": phase,
            "start": start,
            "turn": scope.turn,
            "parent": scope.parent,
            "after": scope.after,
            "background": scope.background,
        }

    def close(self, event: Event) -> None:
        """Append an ended event to the trace; the next event waits for it."""
        if event.parent is not None:
            self._children.setdefault(event.parent, []).append(event)
        self._ended[event.id] = end = event.start + event.seconds
        self._last_end = max(self._last_end, end)
        self.scope = Scope(event.turn, event.parent, (event.id,), event.background, self.scope.path)
        self.trace.append(event)
        if isinstance(event, _LOGGED_EVENTS):
            label = f"{self.trace.flow}/{self.trace.conversation} turn {event.turn + 1}"
            log.info("%s: %s  %s", label, event.title, shorten(event.detail))
        if self.stream.has_listeners:
            ended = NoticeItem(event.turn, event) if isinstance(event, Notice) else StepEnded(event.turn, event)
            self.stream.emit(ended)

    @contextmanager
    def timed(self, kind: type[Event], phase: Phase | None, **facts: Any) -> Iterator[dict[str, Any]]:
        """Make the block one event; the block adds fields of the event to the dict that it gets."""
        outer = self.scope
        opened = self.open(phase)
        if self.stream.has_listeners and kind not in (Decision, Notice):
            self.stream.emit(StepStarted(outer.turn, kind(**opened, **facts)))
        self.scope = Scope(outer.turn, opened["id"], (), outer.background, outer.path)
        started = time.perf_counter()
        try:
            yield facts
        except BaseException as failure:
            interrupted = isinstance(failure, asyncio.CancelledError)
            facts["error"] = "interrupted" if interrupted else f"{type(failure).__name__}: {failure}"
            raise
        finally:
            seconds = time.perf_counter() - started
            self.close(self._ended_event(kind, opened | facts, seconds))

    def _ended_event(self, kind: type[Event], fields: dict[str, Any], seconds: float) -> Event:
        """Return the event of a block: with children, `seconds` is their longest path, else recorded or measured."""
        parts = self._children.pop(fields["id"], None)
        if parts:
            parts.sort(key=lambda part: part.id)
            fields["seconds"] = longest_path(parts, lambda part: part.seconds)
            fields["origin"] = "replay" if any(part.origin == "replay" for part in parts) else "live"
        event = kind(**fields)
        if not parts and event.duration_identity is not None:
            stored_seconds, origin = self._recorded_duration(event.duration_identity, seconds)
            event = replace(event, seconds=stored_seconds, origin=origin)
        return event


def _running_task() -> asyncio.Task[Any] | None:
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # a thread without a loop, or a script
