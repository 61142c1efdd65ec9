"""Session state of a flow or a tool: a typed key, whose value lasts as long as the conversation.

    STATE: StateKey[State] = StateKey(open_state)
    state = session.state(STATE)

Each key has its own value, even if two keys have the same type.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class StateKey(Generic[T]):
    """Key of a value that each session creates at first use, by `factory(session)`."""

    def __init__(self, factory: Callable[[Any], T]) -> None:
        self.factory = factory
