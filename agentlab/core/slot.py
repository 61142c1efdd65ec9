"""What a flow or a tool keeps from turn to turn of a conversation: a typed place in the session.

    STATE: Slot[State] = Slot(open_state)
    state = session.kept(STATE)

Two slots never meet, whatever they hold.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Slot(Generic[T]):
    """A place that each session fills for itself, at first use, with what `factory` makes of the session."""

    def __init__(self, factory: Callable[[Any], T]) -> None:
        self.factory = factory
