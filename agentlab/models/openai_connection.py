"""The way to a server that speaks OpenAI's protocols, as chat models and embedders both take it.

    connection = Connection("http://127.0.0.1:8000/v1", keys, timeout=120)
    vectors = await connection.ask("openai/e", lambda client: client.embeddings.create(model="e", input=["offside"]))

The official SDK does the talking, on its aiohttp transport (six times faster than its default one with many calls in
flight) and with its own retries off: what may go through later is asked again by the queue before every model and
embedder, with the next of several keys.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

from agentlab.core.errors import ContextOverflow, ModelError, Refused, ServerFault, Unreachable
from agentlab.models.keys import KeyRing
from agentlab.models.provider import error_of_status, seconds_in

if TYPE_CHECKING:
    from openai import AsyncOpenAI

Answered = TypeVar("Answered")
SILENCE_SECONDS = 120.0
_OVERFLOW = ("context_length_exceeded", "exceed_context_size", "maximum context length", "context size")


class Connection:
    """One server and its keys; `base_url` is None for OpenAI's own, `timeout` is in seconds, for a whole answer."""

    def __init__(self, base_url: str | None, keys: KeyRing, timeout: float) -> None:
        self.base_url = base_url
        self.keys = keys
        self._timeout = timeout
        self._client: AsyncOpenAI | None = None

    async def ask(self, model: str, send: Callable[[AsyncOpenAI], Awaitable[Answered]]) -> Answered:
        """What `send` gets from the server with the next key; what goes wrong there is a ModelError of `model`."""
        import httpx2
        import openai

        from agentlab.models.bounded_http import bounded_client

        if self._client is None:
            # Without a key of its own: each call brings the one whose turn it is.
            self._client = openai.AsyncOpenAI(
                base_url=self.base_url,
                api_key="none",
                timeout=min(self._timeout, SILENCE_SECONDS),
                max_retries=0,
                http_client=bounded_client(),
            )
        key = self.keys.take()
        try:
            async with asyncio.timeout(self._timeout):
                return await send(self._client.with_options(api_key=key))
        except TimeoutError:
            error: ModelError = Unreachable("no answer in time", model)
        except openai.APIError as problem:
            error = self._error(problem, model)
        except httpx2.HTTPError as problem:
            error = Unreachable(f"the connection broke: {type(problem).__name__}", model)
        # Out here it has neither cause nor context: servers quote the key they refuse, and a log would print it.
        raise self.keys.blame(key, error)

    def _error(self, problem: Any, model: str) -> ModelError:
        """Our error for an exception of the SDK."""
        import openai

        if isinstance(problem.__cause__, ModelError):
            return type(problem.__cause__)(str(problem.__cause__), model)
        said = self.keys.quote(str(getattr(problem, "message", problem)))
        # The aiohttp transport reports a refused connection as a time-out; its cause tells them apart.
        if isinstance(problem, openai.APITimeoutError) and "onnect" not in str(problem.__cause__):
            return Unreachable("no answer in time", model)
        if isinstance(problem, openai.APIConnectionError):
            return Unreachable(f"cannot reach the server: {said}", model)
        if not isinstance(problem, openai.APIStatusError):
            return ServerFault(said, model)
        if problem.status_code == 429 and problem.code == "insufficient_quota":
            return Refused(said, model)
        if problem.status_code in (400, 413) and any(mark in f"{problem.code} {said}" for mark in _OVERFLOW):
            return ContextOverflow(said, model)
        return error_of_status(problem.status_code, said, model, seconds_in(problem.response.headers, "retry-after"))

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()
            self._client = None
