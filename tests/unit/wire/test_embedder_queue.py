"""Retryable embedding errors are retried, but not forever and no other errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from agentlab.core.errors import BadRequest, ModelError, RateLimited, ServerFault
from agentlab.core.trace import Trace
from agentlab.models.scripted import Scripted
from agentlab.wire.queue import QueuedEmbedder
from support.doubles import gateway_to
from support.embedders import Counting


class Flaky(Counting):
    """Fails a given number of times."""

    def __init__(self, *failures: ModelError) -> None:
        super().__init__()
        self.failures = list(failures)

    async def embed(self, texts: Sequence[str]) -> Any:
        if self.failures:
            raise self.failures.pop(0)
        return await super().embed(texts)


async def test_retryable_embeddings_are_retried_and_pauses_are_no_latency(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("agentlab.wire.retries.BACKOFF_SECONDS", 0.05)
    embedder = Flaky(ServerFault("busy"), RateLimited("slowly"))
    queued = QueuedEmbedder("counting/1", "", lambda: embedder)
    result = await gateway_to(Scripted([]), Trace("f", "c"), embedder).embed("a")
    assert embedder.received == ["a"]
    assert result.seconds < 0.05 < result.waited
    embedder.failures = [ServerFault("busy")] * 3
    assert (await queued.embed(["b"])).shape == (1, 8)


@pytest.mark.parametrize(
    ("failures", "kind"), [([ServerFault("busy")] * 4, ServerFault), ([BadRequest("never")], BadRequest)]
)
async def test_embedder_is_retried_only_for_retryable_errors_and_not_forever(
    failures: list[ModelError], kind: type[ModelError]
) -> None:
    embedder = Flaky(*failures)
    result = await gateway_to(Scripted([]), Trace("f", "c"), embedder).embed("a")
    assert isinstance(result.failure, kind)
    assert embedder.received == embedder.failures == []
