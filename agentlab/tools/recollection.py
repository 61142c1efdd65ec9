"""What the memory tools share: what they say when there is no memory to ask, and how a fact is shown to a model.

    ID: fact_3 | Content: Ann plays the oboe.

A fact is one line, and nothing in its text can open an entry of its own: line breaks become spaces, the separators of
the list are defused. That holds for what is shown only; what is stored stays as it was told.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.messages import Fact
from agentlab.core.names import MEMORY_UNAVAILABLE

if TYPE_CHECKING:
    from agentlab.session.session import Session

SEPARATOR = "\n---\n"
_RULE = re.compile(r"-{3,}")
_FIELD = re.compile(r"\|(?=\s*content\s*:)", re.IGNORECASE)
_INVISIBLE = re.compile(r"[\x00-\x1f\x7f-\x9f\u200b\u200e\u200f\u2028-\u202e\u2060\u2066-\u2069\ufeff]")
"""Controls, zero-width spaces and marks that turn the writing direction round: they would hide a separator."""


async def with_memory(session: Session, consequence: str, work: Callable[[], Awaitable[str]]) -> str:
    """The result of `work`, or a sentence for the model where there is no memory; the trace is told why."""
    try:
        if session.memory is None:
            raise MemoryUnavailable("this session has no long-term memory")
        return await work()
    except MemoryUnavailable as failure:
        session.notify(MEMORY_UNAVAILABLE, str(failure))
        return f"Long-term memory is not available at the moment: {consequence}. Go on without it."


def entry(fact: Fact) -> str:
    return f"ID: {one_line(fact.id).replace('|', '/')} | Content: {one_line(fact.text)}"


def one_line(text: str) -> str:
    line = " ".join(_INVISIBLE.sub(" ", text).split())
    return _FIELD.sub("/", _RULE.sub("--", line))
