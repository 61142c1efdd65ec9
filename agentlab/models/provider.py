"""What makes a provider: four methods, between the internal format and its own.

    translate            the request, in the provider's words
    call                 one stateless call with the whole conversation, streamed
    parse                what came back, as a completion
    format_tool_result   the answer to one tool call, in the provider's words

`complete` puts them one after the other. It runs inside the session's traced verb, so that retries, recordings and the
ledger are the same for every provider, and an orchestration knows none of them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Generic, TypeVar

from agentlab.core.messages import Completion, Request
from agentlab.core.protocols import Emit

Wired = TypeVar("Wired")
"""A request as the provider takes it."""
Raw = TypeVar("Raw")
"""What the provider sent back."""


class Provider(ABC, Generic[Wired, Raw]):
    """The base of an adapter; it is a `Model` once it has a `name`, `parallel` and these four methods."""

    name: str
    parallel: int | None = None

    @abstractmethod
    def translate(self, request: Request) -> Wired:
        """Put the request into the provider's form; raises BadRequest or ContextOverflow for what cannot be put."""

    @abstractmethod
    async def call(self, wired: Wired, emit: Emit) -> Raw:
        """Ask once, handing pieces of the answer's text to `emit` as they arrive; raises ModelError."""

    @abstractmethod
    def parse(self, raw: Raw) -> Completion:
        """The answer's text, all its tool calls with an id each, usage and finish reason; raises ModelError."""

    @abstractmethod
    def format_tool_result(self, call_id: str, name: str, result: str) -> Any:
        """The answer to the tool call `call_id`, as `translate` puts it among the messages."""

    async def complete(self, request: Request, emit: Emit) -> Completion:
        return self.parse(await self.call(self.translate(request), emit))
