"""A flow on a model, and the conversation with it: one column of the chat widget, or of `show_flows`."""

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
    """Watch nothing."""


class ChatColumn:
    """Its chat, with `options`, is opened when it is first asked; without a `model` that is the flow's own."""

    def __init__(self, lab: Lab, flow: str, model: str = "", **options: Any) -> None:
        self.flow = flow
        self.model = model or lab.bench.variant(flow).model
        self._open = partial(lab.chat, flow, model=self.model, on_event=self._deliver, **options)
        self.chat: Chat | None = None
        self._watching: dict[int, Callable[[StreamItem], None]] = {}
        self._on_item: Callable[[StreamItem], None] = ignore
        self._stopped = False

    def __str__(self) -> str:
        return f"{self.flow} on {self.model}"

    async def answer(self, question: str, on_item: Callable[[StreamItem], None] = ignore, **speaker: Any) -> FlowAnswer:
        """The reply, or why there is none; `on_item` is called with what the stream says of the turn."""
        reply = error = None
        turn = len(self._watching)
        self._on_item = on_item
        try:
            if self.chat is None and not self._stopped:
                # In a thread: reading a large corpus must not hold up a run that shares the lab's loop.
                self.chat = await asyncio.to_thread(self._open)
            if self.chat is None or self._stopped:
                raise asyncio.CancelledError
            reply = await self.chat.say(question, **speaker)
        except asyncio.CancelledError:
            error = STOPPED
        except Exception as failure:
            # A flow somebody is still writing: the line in the widget is enough to know where to look.
            log.debug("the flow failed", exc_info=True)
            error = str(failure) if isinstance(failure, AgentlabError) else f"{type(failure).__name__}: {failure}"
        self._stopped = False
        trace = Trace(self.flow, "") if self.chat is None else self.chat.trace
        return FlowAnswer(flow=self.flow, model=self.model, trace=trace, turn=turn, reply=reply, error=error)

    def _deliver(self, item: StreamItem) -> None:
        # What goes on in the background belongs to the turn it began in, whatever was asked since.
        self._watching.setdefault(item.turn, self._on_item)(item)

    def stop(self) -> None:
        """Break off the answer under way, or the next one."""
        self._stopped = True
        if self.chat is not None:
            self.chat.stop()

    async def close(self) -> None:
        if self.chat is not None:
            await self.chat.close()
