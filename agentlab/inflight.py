"""The seam between sessions and a model: identical requests in flight are asked once, and waiting is told from working.

A model that serves one request at a time would make parallel conversations look slow; the time in its queue is
measured here and kept out of `seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import time
from dataclasses import dataclass

from agentlab.messages import Request, to_json
from agentlab.protocols import Answer, Emit, Model


def request_key(request: Request, epoch: int) -> str:
    """SHA-256 over everything that reaches the model, and the epoch, so that repeats stay repeats."""
    return hashlib.sha256(json.dumps([to_json(request), epoch], sort_keys=True).encode()).hexdigest()


@dataclass
class _Flight:
    task: asyncio.Task[Answer]
    waiting: int = 0


class SharedModel:
    """A model behind a queue; both askers of one request get the same answer with the same `seconds`."""

    def __init__(self, model: Model, parallel: int | None = None) -> None:
        self.model = model
        self.name = model.name
        limits = [limit for limit in (parallel, model.parallel) if limit]
        self._slots: contextlib.AbstractAsyncContextManager[object] = (
            asyncio.Semaphore(min(limits)) if limits else contextlib.nullcontext()
        )
        self._flights: dict[str, _Flight] = {}

    async def complete(self, request: Request, emit: Emit, *, epoch: int) -> Answer:
        key = request_key(request, epoch)
        flight = self._flights.get(key)
        if flight is None:
            task = asyncio.create_task(self._ask(request, emit))
            flight = self._flights[key] = _Flight(task)
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.task)
        finally:
            flight.waiting -= 1
            if flight.waiting == 0 or flight.task.done():
                flight.task.cancel()
                if self._flights.get(key) is flight:
                    del self._flights[key]

    async def _ask(self, request: Request, emit: Emit) -> Answer:
        queued = time.perf_counter()
        async with self._slots:
            began = time.perf_counter()
            completion = await self.model.complete(request, emit)
            done = time.perf_counter()
        return Answer(completion=completion, seconds=done - began, waited=began - queued)

    async def close(self) -> None:
        await self.model.close()
