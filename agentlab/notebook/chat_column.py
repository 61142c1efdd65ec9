"""One column of the chat widget or of `show_flows`: a conversation with a flow on a model."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from agentlab.core.errors import AgentlabError
from agentlab.core.stream import StreamItem
from agentlab.core.trace import Trace
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.notebook.answers import STOPPED, FlowAnswer

log = logging.getLogger(__name__)


def ignore(item: StreamItem) -> None:
    """Ignore an item of the stream."""


class ChatColumn:
    """A conversation with a flow, which opens at the first question; `options` are those of `Lab.chat`.

    `on_question` gets the questions that MCP servers ask the user; without it they are declined.
    """

    def __init__(
        self, lab: Lab, flow: str, model: str = "", on_question: Callable[[Any], None] | None = None, **options: Any
    ) -> None:
        self._on_question = on_question
        self.flow = flow
        self.model = model or lab.bench.variant(flow).model
        self._open = partial(lab.chat, flow, model=self.model, on_event=self._deliver, **options)
        self.chat: Chat | None = None
        self._listeners: dict[int, Callable[[StreamItem], None]] = {}
        self._on_item: Callable[[StreamItem], None] = ignore
        self._stopped = False

    def __str__(self) -> str:
        return f"{self.flow} on {self.model}"

    async def open(self) -> Chat:
        """Return the conversation, opened at the first call; a thread reads its corpus while runs use the loop."""
        if self.chat is None:
            self.chat = await asyncio.to_thread(self._open)
            if self._on_question is not None:
                self.chat.stream.on("question", self._on_question)
        return self.chat

    async def answer(self, question: str, on_item: Callable[[StreamItem], None] = ignore, **speaker: Any) -> FlowAnswer:
        """Return the reply, or the error; `on_item` gets every stream item of the turn."""
        reply = error = None
        turn = len(self._listeners)
        self._on_item = on_item
        try:
            chat = None if self._stopped else await self.open()
            if chat is None or self._stopped:
                raise asyncio.CancelledError
            reply = await chat.say(question, **speaker)
        except asyncio.CancelledError:
            error = STOPPED
        except Exception as failure:
            # A flow under construction: the error line in the widget is enough.
            log.debug("the flow failed", exc_info=True)
            error = str(failure) if isinstance(failure, AgentlabError) else f"{type(failure).__name__}: {failure}"
        self._stopped = False
        trace = Trace(self.flow, "") if self.chat is None else self.chat.trace
        return FlowAnswer(flow=self.flow, model=self.model, trace=trace, turn=turn, reply=reply, error=error)

    def _deliver(self, item: StreamItem) -> None:
        # Background work belongs to the turn that started it, even after later questions.
        self._listeners.setdefault(item.turn, self._on_item)(item)

    def stop(self) -> None:
        """Cancel the running answer, or else the next one."""
        self._stopped = True
        if self.chat is not None:
            self.chat.stop()

    async def close(self) -> None:
        if self.chat is not None:
            await self.chat.close()
