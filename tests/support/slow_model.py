"""A model that answers when it is let."""

from __future__ import annotations

import asyncio

from agentlab.core.messages import Completion, Message

HELLO = (Message(role="user", text="Hello"),)


class Slow:
    """Streams two pieces, then pauses."""

    name, parallel = "slow", 1

    def __init__(self, seconds: float = 30.0) -> None:
        self.seconds = seconds
        self.received = 0
        self.cancelled = False

    async def complete(self, request, emit):
        self.received += 1
        emit("Half an ")
        emit("answer")
        try:
            await asyncio.sleep(self.seconds)
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return Completion(message=Message(role="agent", text="Half an answer, and the rest"))

    async def close(self):
        pass
