"""Work that is handed to threads in crowds: each gets its own result back, whatever becomes of the others."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from agentlab.evals.grade.grading_threads import (
    QUICK_SECONDS,
    SECONDS_BETWEEN_RETURNS,
    SLOW_SECONDS,
    GradingThreads,
)


def test_each_gets_its_own_result_or_failure() -> None:
    def work(number: int) -> int:
        if number % 7 == 0:
            raise ValueError(str(number))
        return number * 2

    async def play() -> list[int | BaseException]:
        threads = GradingThreads[int]()
        try:
            each = (threads.run(lambda number=number: work(number)) for number in range(200))
            return await asyncio.gather(*each, return_exceptions=True)
        finally:
            threads.close()

    for number, found in enumerate(asyncio.run(play())):
        assert str(found) == (str(number) if number % 7 == 0 else str(number * 2))


def test_who_is_broken_off_takes_nobody_along_and_leaves_its_work_undone() -> None:
    begun, go_on, done = threading.Event(), threading.Event(), list[str]()

    def slow() -> str:
        begun.set()
        go_on.wait(10)
        return "slow"

    def note(name: str) -> str:
        done.append(name)
        return name

    async def play() -> tuple[str, str]:
        threads = GradingThreads[str]()
        first = asyncio.create_task(threads.run(slow))
        await asyncio.to_thread(begun.wait, 10)
        dropped = asyncio.create_task(threads.run(lambda: note("dropped")))
        last = asyncio.create_task(threads.run(lambda: note("last")))
        await asyncio.sleep(0)
        dropped.cancel()
        await asyncio.sleep(0)
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await dropped
        found = await first, await last
        threads.close()
        return found

    assert asyncio.run(play()) == ("slow", "last")
    assert done == ["last"]


def test_a_result_comes_back_while_others_still_wait_for_theirs() -> None:
    released = threading.Event()

    def take(seconds: float) -> str:
        time.sleep(seconds)
        return "quick"

    async def play() -> str:
        threads = GradingThreads[str]()
        quick = asyncio.create_task(threads.run(lambda: take(2 * SECONDS_BETWEEN_RETURNS)))
        slow = asyncio.create_task(threads.run(lambda: "slow" if released.wait(10) else "late"))
        found = await asyncio.wait_for(asyncio.shield(quick), 8)
        released.set()
        assert await slow == "slow"
        threads.close()
        return found

    assert asyncio.run(play()) == "quick"


def test_nothing_waits_for_ever_once_new_work_comes_to_idle_threads() -> None:
    async def play() -> list[int]:
        threads, found = GradingThreads[int](), list[int]()
        for number in range(300):
            found.append(await threads.run(lambda number=number: number))
        threads.close()
        return found

    assert asyncio.run(play()) == list(range(300))


def test_slow_work_is_done_side_by_side() -> None:
    both = threading.Barrier(2)

    async def play() -> list[int]:
        threads = GradingThreads[int]()
        await threads.run(lambda: time.sleep(2 * SLOW_SECONDS) or 0)
        found = await asyncio.gather(*(threads.run(lambda: both.wait(10)) for _ in range(2)))
        threads.close()
        return sorted(found)

    assert asyncio.run(play()) == [0, 1]


def computing(seconds: float) -> int:
    """The thread it was done in, after so many seconds of work."""
    began = time.thread_time()
    while time.thread_time() - began < seconds:
        pass
    return threading.get_ident()


def test_what_only_computes_and_was_quick_is_done_at_once_until_it_is_not():
    async def play() -> tuple[list[bool], list[bool]]:
        threads, here = GradingThreads[int](), threading.get_ident()

        async def done_here(seconds: float, only_computes: bool) -> bool:
            return await threads.run(lambda: computing(seconds), only_computes=only_computes) == here

        computes = [await done_here(seconds, True) for seconds in (0, 0, 2 * QUICK_SECONDS, 0, 0)]
        waits = [await done_here(0, False) for _ in range(3)]
        threads.close()
        return computes, waits

    # What nobody knows yet, and what took long the last time, is a thread's.
    assert asyncio.run(play()) == ([False, True, True, False, True], [False, False, False])


def test_what_is_done_at_once_may_fail():
    async def play() -> None:
        threads = GradingThreads[int]()
        await threads.run(lambda: 0, only_computes=True)
        with pytest.raises(ZeroDivisionError):
            await threads.run(lambda: 1 // 0, only_computes=True)
        threads.close()

    asyncio.run(play())
