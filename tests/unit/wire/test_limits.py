"""Limits of providers, by a clock that the tests set: what is learnt, who waits, whose turn it is."""

from __future__ import annotations

import asyncio
import functools

import pytest

from agentlab.core.errors import RateLimited, Unreachable
from agentlab.models.keys import KeyRing
from agentlab.wire.limits import Limits, seconds_of
from agentlab.wire.queue import QueuedModel
from support.slow_model import HELLO, Slow
from support.virtual_time import VirtualTime, at_once


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def headers(limit: int, remaining: int, reset: str, what: str = "requests") -> dict[str, str]:
    return {
        f"x-ratelimit-limit-{what}": str(limit),
        f"x-ratelimit-remaining-{what}": str(remaining),
        f"x-ratelimit-reset-{what}": reset,
    }


async def let(limits: Limits, flow: str = "a", tokens: int = 0) -> asyncio.Task[float]:
    """Somebody who asks for a place; done once there is one."""
    asking = asyncio.create_task(limits.enter(flow, tokens))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return asking


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("6m0s", 360), ("250ms", 0.25), ("1h2m3.5s", 3723.5), ("12.5", 12.5), ("soon", 0), ("", 0), ("-1", 0)],
)
def test_the_ways_to_write_seconds(text, seconds):
    assert seconds_of(text) == pytest.approx(seconds)


async def test_nothing_said_and_nothing_refused_lets_everybody_go_after_the_first_answer():
    limits = Limits(clock=Clock())
    asking = [await let(limits) for _ in range(50)]
    assert sum(task.done() for task in asking) == limits.in_flight == 4
    limits.leave(answered=True)
    await settled()
    assert all(task.done() for task in asking)


async def test_what_a_provider_allows_is_learnt_and_kept_to():
    clock = Clock()
    limits = Limits(clock=clock)
    await limits.enter("a")
    # 10 of 600 are left, and in 59 s all are there again: ten a second.
    limits.learn("key", headers(600, 10, "59s"))
    limits.leave(answered=True)
    assert limits.per_minute == {"requests": 600}
    asking = [await let(limits) for _ in range(20)]
    # Six are left alone, a hundredth, and of the other four a third goes: others with the same key hear of them, too.
    assert sum(task.done() for task in asking) == 2
    clock.now += 0.5
    # What one who was sent before that third says is no news.
    limits.learn("key", headers(600, 15, "58.5s"), sent=clock.now - 1)
    limits.leave(answered=True)
    await settled()
    assert sum(task.done() for task in asking) == 7
    limits.learn("key", headers(600, 15, "58.5s"), sent=clock.now)
    limits.leave(answered=True)
    await settled()
    assert sum(task.done() for task in asking) > 7
    for task in asking:
        task.cancel()


class Provider:
    """Lets ten requests a second through, sixty at once at the beginning, and answers after `latency` seconds."""

    def __init__(self, loop: VirtualTime, latency: float) -> None:
        self.loop, self.latency = loop, latency
        self.left, self.at, self.answered, self.refused = 60.0, 0.0, 0, 0

    async def answer(self, limits: Limits) -> None:
        while True:
            if await self._ask(limits):
                return
            await asyncio.sleep(0.5)

    async def _ask(self, limits: Limits) -> bool:
        await limits.enter("a")
        sent, now = limits.sending("key"), self.loop.time()
        self.left, self.at = min(600.0, self.left + 10 * (now - self.at)), now
        is_answered = self.left >= 1
        self.left -= is_answered
        told = headers(600, int(self.left), f"{(600 - self.left) / 10:.3f}s")
        await asyncio.sleep(self.latency if is_answered else 0.01)
        limits.learn("key", told, sent)
        limits.leave(answered=is_answered, refused=None if is_answered else (1 - self.left) / 10, sent=sent)
        self.answered += is_answered
        self.refused += not is_answered
        return is_answered


@pytest.mark.parametrize("latency", [0.05, 1.0])
def test_workers_of_one_run_know_that_they_share(latency):
    refused = {}

    async def play(loop: VirtualTime, sharers: int) -> None:
        provider = Provider(loop, latency)
        left = iter(range(900))

        async def worker(limits: Limits) -> None:
            for _ in left:
                await provider.answer(limits)

        processes = [Limits(sharers=sharers, clock=loop.time) for _ in range(4)]
        await asyncio.gather(*(worker(limits) for limits in processes for _ in range(25)))
        refused[sharers] = provider.refused
        assert provider.answered >= 0.9 * (60 + 10 * loop.time())
        assert all(limits.per_minute["requests"] == pytest.approx(600, abs=1) for limits in processes)

    for sharers in (1, 4):
        at_once(functools.partial(play, sharers=sharers))
    assert refused[4] <= 0.015 * 900 and refused[4] < refused[1] / 1.5


@pytest.mark.parametrize("latency", [0.05, 1.0])
@pytest.mark.parametrize("apart", [None, 0.0, 0.02, 0.5, 5.0])
def test_processes_that_share_a_key_and_know_nothing_of_each_other_use_all_of_it_and_are_hardly_refused(latency, apart):
    found = []

    async def play(loop: VirtualTime) -> None:
        provider = Provider(loop, latency)

        async def process(start: float, calls: int) -> None:
            await asyncio.sleep(start)
            limits, left = Limits(clock=loop.time), iter(range(calls))

            async def worker() -> None:
                for _ in left:
                    await provider.answer(limits)

            await asyncio.gather(*(worker() for _ in range(100)))

        starts = [0.0] if apart is None else [0.0, apart]
        await asyncio.gather(*(process(start, 900 // len(starts)) for start in starts))
        found.append((provider.answered / (60 + 10 * loop.time()), provider.refused))

    at_once(play)
    ((used, refused),) = found
    assert used >= 0.9 and refused <= 0.01 * 900


@pytest.mark.parametrize("tokens", [4096, 5800])
async def test_a_large_call_goes_at_once_where_there_is_room_for_it(tokens):
    limits = Limits(clock=Clock())
    await limits.enter("a", 100)
    limits.learn("key", headers(6000, 5900, "1s", "tokens"), limits.sending("key"))
    limits.leave(answered=True)
    large, next_one = await let(limits, tokens=tokens), await let(limits, tokens=tokens)
    assert large.done() and not next_one.done()
    next_one.cancel()


async def test_what_a_provider_gives_back_is_used_again():
    clock = Clock()
    limits = Limits(clock=clock)
    for _ in range(5):  # each is charged 4,000 and uses 100
        await limits.enter("a", 4000)
        sent = limits.sending("key")
        clock.now += 1
        limits.learn("key", headers(6000, 5900, "1s", "tokens"), sent)
        limits.leave(answered=True)
    assert limits.waited == 0


@pytest.mark.parametrize("given", [{"requests": 30}, {"tokens": 3000}, {"requests": 30, "tokens": 3000}])
async def test_a_limit_of_the_spec_holds_whatever_the_provider_allows(given):
    clock = Clock()
    limits = Limits(**given, clock=clock)
    gone = 0
    for _ in range(600):
        asking = await let(limits, tokens=100)
        if asking.done():
            limits.learn("key", headers(60000, 59000, "1s"), clock.now)
            limits.leave(answered=True)
            gone += 1
        asking.cancel()
        await settled()
        clock.now += 0.1
    assert 28 <= gone <= 31
    assert limits.per_minute.get("requests") == given.get("requests", 60000)


async def test_who_gives_up_at_the_head_of_the_line_lets_the_next_one_through():
    limits = Limits(tokens=6000, clock=Clock())
    large, small = await let(limits, tokens=3000), await let(limits, tokens=20)
    assert not small.done()
    large.cancel()
    await settled()
    assert small.done()


def test_all_keys_are_used():
    used = {"one": 0, "two": 0}

    async def play(loop: VirtualTime) -> None:
        limits, left, at = Limits(clock=loop.time), dict.fromkeys(used, 2.0), dict.fromkeys(used, 0.0)
        keys = KeyRing(tuple(used))

        async def worker() -> None:
            while loop.time() < 600:
                await limits.enter("a")
                key = keys.take(limits.rank)
                sent, now = limits.sending(key), loop.time()
                left[key], at[key] = min(20.0, left[key] + (now - at[key]) / 3), now
                assert left[key] >= 1, "nothing is refused"
                left[key] -= 1
                used[key] += 1
                await asyncio.sleep(1)
                limits.learn(key, headers(20, int(left[key]), f"{(20 - left[key]) * 3:.3f}s"), sent)
                limits.leave(answered=True)

        await asyncio.gather(worker(), worker())

    at_once(play)
    assert min(used.values()) >= 0.9 * 200


async def test_tokens_count_too_and_a_call_larger_than_a_minute_is_not_held_for_ever():
    clock = Clock()
    limits = Limits(tokens=600, clock=clock)
    large = await let(limits, tokens=5000)
    assert not large.done()
    clock.now += 60
    limits._pump()
    await settled()
    assert large.done()


async def test_flows_take_turns():
    limits = Limits(concurrent=1, clock=Clock())
    await limits.enter("many")
    order: list[str] = []

    async def ask(flow: str) -> None:
        await limits.enter(flow)
        order.append(flow)
        limits.leave(answered=True)

    asking = [asyncio.create_task(ask(flow)) for flow in ("many", "many", "many", "few")]
    await asyncio.sleep(0)
    limits.leave(answered=True)
    await asyncio.gather(*asking)
    assert order == ["many", "few", "many", "many"]


async def test_a_refusal_halves_what_is_in_flight_once_and_answers_bring_it_back():
    clock = Clock()
    limits = Limits(clock=clock)
    await limits.enter("a")
    limits.leave(answered=True)
    for _ in range(40):
        await limits.enter("a")
    sent, clock.now = clock.now, clock.now + 1
    for _ in range(10):
        limits.leave(refused=0.0, sent=sent)
    for _ in range(30):
        limits.leave(answered=True)
    assert limits.summary()["refused"] == 10
    asking = [await let(limits) for _ in range(40)]
    assert sum(task.done() for task in asking) == 21, "those sent together tell one thing, and 30 answers another"


async def test_who_is_told_to_stay_away_stays_away():
    clock = Clock()
    limits = Limits(clock=clock)
    await limits.enter("a")
    limits.leave(refused=7.0, sent=clock.now)
    waiting = await let(limits)
    assert not waiting.done()
    clock.now += 7
    limits._pump()
    await settled()
    assert waiting.done()


async def test_who_is_told_again_and_again_to_stay_away_for_a_day_stays_away_for_a_minute_in_all():
    clock = Clock()
    limits = Limits(clock=clock)
    for _ in range(3):
        await limits.enter("a")
        limits.leave(refused=86_400.0, sent=clock.now)
        clock.now += 60
    limits.leave(refused=0.0) if (await let(limits)).done() else pytest.fail("it still waits")
    await limits.enter("a")
    limits.leave(answered=True)
    await limits.enter("a")
    limits.leave(refused=86_400.0, sent=clock.now)
    assert not (await let(limits)).done(), "after an answer a refusal is a new one"


async def test_one_who_leaves_the_line_leaves_a_place():
    limits = Limits(concurrent=1, clock=Clock())
    await limits.enter("a")
    first, second = await let(limits), await let(limits)
    first.cancel()
    limits.leave(answered=True)
    await settled()
    assert second.done() and limits.in_flight == 1
    third = await let(limits)
    limits.leave(answered=True)
    third.cancel()
    await settled()
    assert limits.in_flight == 0, "it had the place already, and gave it back"


async def test_a_key_with_more_left_is_taken_first():
    limits = Limits(clock=Clock())
    ring = KeyRing(["one", "two"])
    limits.learn("one", headers(100, 5, "1m"))
    limits.learn("two", headers(100, 90, "1m"))
    assert [ring.take(limits.rank) for _ in range(3)] == ["two"] * 3
    assert [ring.take() for _ in range(2)] == ["one", "two"]


async def failing(failure):
    raise failure


async def test_the_queue_of_a_model_tells_its_limits_how_a_call_ended():
    limits = Limits(clock=Clock())
    queued = QueuedModel("slow", "", lambda: Slow(0), limits)
    await queued.ask(lambda model: model.complete(HELLO, lambda text: None), "a")
    for failure in (RateLimited("no", "slow", 3.0), Unreachable("gone", "slow")):
        with pytest.raises(type(failure)):
            await queued.ask(lambda model, failure=failure: failing(failure), "a")
        limits._closed_until = 0.0
    assert (limits.answered, limits.refused, limits.in_flight) == (1, 1, 0)
