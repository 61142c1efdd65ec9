"""Gives every event its place in the trace: turn, parent, what it came after, and when on the modelled clock.

The modelled clock runs on the measured or recorded seconds of each piece of work, as if nothing had ever waited in a
queue. So a replay, which does nothing but look up, writes the same numbers as the run that was recorded.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

from agentlab.core.errors import NotRecorded
from agentlab.core.events import Event, Notice, Phase
from agentlab.core.names import NOT_RECORDED
from agentlab.core.trace import Trace, longest_path

Lasted = Callable[[Any, float], tuple[float, str]]
"""Takes what was done in this process, as JSON, and the seconds measured; gives the seconds to write, and origin."""


@dataclass(frozen=True)
class Scope:
    """Where in the trace the running code is: the event it belongs to, and what it came after."""

    turn: int = 0
    parent: int | None = None
    after: tuple[int, ...] = ()
    background: bool = False
    path: tuple[int, ...] = ()
    """The branches of parallel work that lead here, by number; below zero, pieces of background work."""


_scope: ContextVar[Scope] = ContextVar("agentlab_scope", default=Scope())  # noqa: B039 (it is frozen)


class Ledger:
    def __init__(self, trace: Trace, lasted: Lasted) -> None:
        self.trace = trace
        self._lasted = lasted
        self._clock = 0.0
        self._began: dict[int, float] = {}
        self._ended: dict[int, float] = {}
        self._parts: dict[int, list[Event]] = {}

    @property
    def scope(self) -> Scope:
        return _scope.get()

    def begin_turn(self, turn: int) -> None:
        _scope.set(Scope(turn=turn))
        self._clock = max(self._ended.values(), default=0.0)
        self._began.clear()

    def enter_branch(self, number: int) -> None:
        """The running task is one of several that work side by side."""
        scope = _scope.get()
        _scope.set(replace(scope, path=(*scope.path, number)))

    def go_background(self, number: int) -> None:
        """What the running task does from here on belongs to no other event, and nothing waits for it."""
        scope = _scope.get()
        _scope.set(replace(scope, parent=None, background=True, path=(*scope.path, -1 - number)))

    def came_after(self, events: tuple[int, ...]) -> None:
        """What comes next waits for all of `events`."""
        scope = _scope.get()
        _scope.set(Scope(scope.turn, scope.parent, events, scope.background, scope.path))

    def open(self, phase: Phase | None) -> dict[str, Any]:
        """The first fields of an event that begins now."""
        scope = _scope.get()
        event_id = self.trace.next_id()
        outer = self._clock if scope.parent is None else self._began.get(scope.parent, self._clock)
        start = max((self._ended.get(before, 0.0) for before in scope.after), default=outer)
        self._began[event_id] = start
        where = {"turn": scope.turn, "parent": scope.parent, "after": scope.after, "background": scope.background}
        return {"id": event_id, "phase": phase, "start": start, **where}

    def close(self, event: Event) -> None:
        if event.parent is not None:
            self._parts.setdefault(event.parent, []).append(event)
        self._ended[event.id] = event.start + event.seconds
        self.trace.append(event)
        self.came_after((event.id,))

    @contextlib.contextmanager
    def timed(self, kind: type[Event], phase: Phase | None, **facts: Any) -> Iterator[dict[str, Any]]:
        """Make the block one event; what the block puts into the yielded dict becomes fields of the event."""
        opened = self.open(phase)
        outer = _scope.get()
        _scope.set(Scope(outer.turn, opened["id"], (), outer.background, outer.path))
        began = time.perf_counter()
        try:
            yield facts
        except BaseException as failure:
            facts["error"] = f"{type(failure).__name__}: {failure}"
            raise
        finally:
            _scope.set(outer)
            event = kind(**opened, **facts)
            seconds, origin = self._measured(event, time.perf_counter() - began)
            self.close(event if seconds == 0.0 else replace(event, seconds=seconds, origin=origin))

    async def answered(self, work: Awaitable[Any], kind: type[Event], phase: Phase, **facts: Any) -> Any:
        """The answer of the wire that `work` waits for, as one event with the seconds that the wire names."""
        opened = self.open(phase)
        try:
            answer = await work
        except Exception as failure:
            self.close(kind(**opened, **facts, error=f"{type(failure).__name__}: {failure}"))
            if isinstance(failure, NotRecorded):
                with self.timed(Notice, None, name=NOT_RECORDED, text=str(failure), data={"cause": failure.cause}):
                    pass
            raise
        measured = {"seconds": answer.seconds, "waited": answer.waited, "origin": answer.origin}
        measured |= {"error": answer.error} if getattr(answer, "error", None) else {}
        self.close(kind(**{**opened, **measured}, **facts))
        return answer

    def _measured(self, event: Event, seconds: float) -> tuple[float, str]:
        """Seconds and origin: of a whole the longest path through its parts, of a part what it took when recorded."""
        parts = sorted(self._parts.pop(event.id, ()), key=lambda part: part.id)
        if parts:
            origin = "replay" if any(part.origin == "replay" for part in parts) else "live"
            return longest_path(parts, lambda part: part.seconds), origin
        return (0.0, "live") if event.work is None else self._lasted(event.work, seconds)
