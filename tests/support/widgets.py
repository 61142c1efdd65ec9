"""Helpers for the chat widget: a model that waits for a signal, and readers of the widget."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from agentlab.core.messages import Completion, Message, Request, Usage
from agentlab.models.scripted import call
from agentlab.notebook.chat import ChatWidget

EVIL = "<script>alert('x')</script>"
LOOKUP = call("lookup_documents", document_names=[], query="goal width")
ANSWER = "The goal is 7.32 m wide [1]."


class Slow:
    """Says one word at a time and waits before the word that is called `pause` until `go` is set."""

    name, parallel = "slow", None

    def __init__(self, reply: str, pause: str = "") -> None:
        self.words = reply.split()
        self.pause = pause
        self.go = threading.Event()

    async def complete(self, request: Request, emit: Callable[[str], None]) -> Completion:
        for word in self.words:
            if word == self.pause:
                await until(self.go.is_set)
            emit(f"{word} ")
        message = Message(role="agent", text=" ".join(self.words))
        return Completion(message=message, usage=Usage(input_tokens=9, output_tokens=len(self.words), cached_tokens=0))

    async def close(self) -> None:
        pass


async def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end, "it did not happen within 20 s"
        await asyncio.sleep(0.01)


def lines(chat: ChatWidget) -> list[str]:
    return [step.value for step in chat.turns[-1].steps.children]


def everything(widget) -> str:
    """All HTML that a widget and its children would show."""
    own = getattr(widget, "value", "") if type(widget).__name__ == "HTML" else ""
    return own + "".join(everything(child) for child in getattr(widget, "children", ()))
