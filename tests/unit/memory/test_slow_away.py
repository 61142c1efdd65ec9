"""An unavailable memory costs its time limit once, not in every turn."""

from __future__ import annotations

import asyncio
import time
from contextlib import contextmanager

import pytest

from agentlab.core.errors import MemoryUnavailable
from agentlab.memory import base
from agentlab.memory.base import StoredMemory
from agentlab.memory.unavailable import UnavailableMemory, open_or_unavailable
from support.doubles import FlatEmbedder


class Away(StoredMemory):
    """A backend that is slow to report that it is unavailable."""

    def __init__(self, seconds: float) -> None:
        super().__init__("away", "nowhere", FlatEmbedder(), "user")
        self.seconds = seconds
        self.asked = 0

    @contextmanager
    def _facts(self, *, write):
        self.asked += 1
        time.sleep(self.seconds)
        raise OSError("no route")
        yield


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(base, "SLOW_SECONDS", 0.02)
    monkeypatch.setattr(base, "UNAVAILABLE_TTL_SECONDS", 0.3)
    monkeypatch.setattr("agentlab.memory.unavailable.SLOW_SECONDS", 0.02)


async def test_slow_backend_is_retried_after_its_pause():
    memory = Away(0.05)
    for _ in range(3):
        with pytest.raises(MemoryUnavailable, match="no route"):
            await memory.facts()
    assert memory.asked == 1
    await asyncio.sleep(0.3)
    with pytest.raises(MemoryUnavailable):
        await memory.facts()
    assert memory.asked == 2


async def test_fast_failing_backend_is_retried_each_time():
    memory = Away(0.0)
    for _ in range(3):
        with pytest.raises(MemoryUnavailable):
            await memory.facts()
    assert memory.asked == 3


async def test_one_that_could_not_be_opened_is_opened_again_after_a_while():
    slow = await open_or_unavailable("away", lambda: Away(0.05))
    quick = await open_or_unavailable("away", lambda: Away(0.0))
    assert isinstance(slow, UnavailableMemory) and isinstance(quick, UnavailableMemory)
    assert not slow.should_retry and quick.should_retry
