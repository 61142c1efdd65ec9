"""An unavailable memory costs its time limit once, not in every turn."""

from __future__ import annotations

import asyncio
import contextlib
import time
from contextlib import contextmanager

import pytest

from agentlab.core.errors import MemoryUnavailable
from agentlab.memory import base
from agentlab.memory.base import StoredMemory
from agentlab.memory.exact import VectorTable
from agentlab.memory.unavailable import UnavailableMemory, open_or_unavailable
from support.doubles import FlatEmbedder


class LateMemory(StoredMemory):
    """A backend that is slow to report that it is unavailable."""

    def __init__(self, seconds: float) -> None:
        super().__init__("away", "nowhere", FlatEmbedder(), "user")
        self.seconds = seconds
        self.received = 0
        self.is_back = False

    @contextmanager
    def _facts(self, *, write):
        if not self.is_back:
            self.received += 1
            time.sleep(self.seconds)
            raise OSError("no route")
        yield VectorTable(self)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(base, "SLOW_SECONDS", 0.02)
    monkeypatch.setattr(base, "RETRY_SECONDS", 0.05)


async def failures(memory, count=3):
    for _ in range(count):
        with pytest.raises(MemoryUnavailable, match="no route"):
            await memory.facts()


async def test_slow_backend_is_retried_in_the_background_alone(monkeypatch):
    monkeypatch.setattr(base, "RETRY_SECONDS", 60)
    memory = LateMemory(0.05)
    await failures(memory)
    assert memory.received == 1
    await memory.close()


async def test_slow_backend_that_returns_is_used_again():
    memory = LateMemory(0.05)
    await failures(memory, 1)
    while memory.received < 3:
        await failures(memory, 1)
        await asyncio.sleep(0.01)
    memory.is_back = True
    while True:
        with contextlib.suppress(MemoryUnavailable):
            assert await memory.facts() == ()
            break
        await asyncio.sleep(0.01)
    await memory.close()


async def test_fast_failing_backend_is_retried_each_time():
    memory = LateMemory(0.0)
    await failures(memory)
    assert memory.received == 3


@pytest.mark.parametrize(("preload", "embedded"), [(True, 1), (False, 0)])
async def test_one_that_does_not_respond_is_opened_and_waits_for_its_return(preload, embedded):
    memory = await open_or_unavailable("away", lambda: LateMemory(0.05), preload=preload)
    assert isinstance(memory, LateMemory) and memory.received == embedded
    await memory.close()


async def test_one_that_cannot_be_opened_has_a_stand_in():
    def connect():
        raise MemoryUnavailable("no route")

    memory = await open_or_unavailable("away", connect)
    assert isinstance(memory, UnavailableMemory)
    await failures(memory)
