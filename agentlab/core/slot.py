"""Session state of a flow or a tool: a typed slot, which keeps its value as long as the conversation.

    STATE: Slot[State] = Slot(open_state)
    state = session.state(STATE)

Each slot has its own value, even if two slots have the same type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Slot(Generic[T]):
    """Key of a value that each session creates at first use, by `factory(session)`."""

    def __init__(self, factory: Callable[[Any], T]) -> None:
        self.factory = factory
