"""Limits of providers, by a clock that the tests set: limits from headers, waiting calls, and their order."""

from __future__ import annotations

import asyncio
import functools

import pytest

from agentlab.core.errors import RateLimited, Unreachable
from agentlab.models.keys import KeyRing
from agentlab.wire.limits import RateLimiter, Ticket, parse_duration
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


async def let(limiter: RateLimiter, flow: str = "a", tokens: int = 0) -> asyncio.Task[Ticket]:
    """Waiting caller of the limiter; done once it has acquired a slot."""
    asking = asyncio.create_task(limiter.acquire(flow, tokens))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return asking


def per_minute(limiter: RateLimiter) -> dict[str, float]:
    return limiter.summary()["per_minute"]


async def settled() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1s", 1), ("6m0s", 360), ("250ms", 0.25), ("1h2m3.5s", 3723.5), ("12.5", 12.5), ("soon", 0), ("", 0), ("-1", 0)],
)
def test_the_ways_to_write_seconds(text, seconds):
    assert parse_duration(text) == pytest.approx(seconds)


async def test_first_response_without_limits_frees_all_waiting_calls():
    limiter = RateLimiter(clock=Clock())
    asking = [await let(limiter) for _ in range(50)]
    assert sum(task.done() for task in asking) == limiter.in_flight == 4
    limiter.release(asking[0].result(), answered=True)
    await settled()
    assert all(task.done() for task in asking)


async def test_limits_of_a_provider_are_learnt_and_kept():
    clock = Clock()
    limiter = RateLimiter(clock=clock)
    first = await limiter.acquire("a")
    first.mark_sent("key")
    # 10 of 600 are left, and in 59 s all are there again: ten a second.
    first.observe_headers(headers(600, 10, "59s"))
    limiter.release(first, answered=True)
    assert per_minute(limiter) == {"requests": 600}
    asking = [await let(limiter) for _ in range(20)]
    # Six are left alone, a hundredth, and of the other four a third goes: others with the same key learn them, too.
    assert sum(task.done() for task in asking) == 2
    clock.now += 0.5
    early, late = (task.result() for task in asking[:2])
    # What one who was sent before that third says is no news.
    early.sent = clock.now - 1
    early.observe_headers(headers(600, 15, "58.5s"))
    limiter.release(early, answered=True)
    await settled()
    assert sum(task.done() for task in asking) == 7
    late.mark_sent("key")
    late.observe_headers(headers(600, 15, "58.5s"))
    limiter.release(late, answered=True)
    await settled()
    assert sum(task.done() for task in asking) > 7
    for task in asking:
        task.cancel()


class Provider:
    """Lets ten requests a second through, sixty at once at the beginning, and responds after `latency` seconds."""

    def __init__(self, loop: VirtualTime, latency: float) -> None:
        self.loop, self.latency = loop, latency
        self.left, self.at, self.answered, self.refused = 60.0, 0.0, 0, 0

    async def call(self, limiter: RateLimiter) -> None:
        while True:
            if await self._ask(limiter):
                return
            await asyncio.sleep(0.5)

    async def _ask(self, limiter: RateLimiter) -> bool:
        ticket = await limiter.acquire("a")
        ticket.mark_sent("key")
        now = self.loop.time()
        self.left, self.at = min(600.0, self.left + 10 * (now - self.at)), now
        is_answered = self.left >= 1
        self.left -= is_answered
        text = headers(600, int(self.left), f"{(600 - self.left) / 10:.3f}s")
        await asyncio.sleep(self.latency if is_answered else 0.01)
        ticket.observe_headers(text)
        limiter.release(ticket, answered=is_answered, refused=None if is_answered else (1 - self.left) / 10)
        self.answered += is_answered
        self.refused += not is_answered
        return is_answered


@pytest.mark.parametrize("latency", [0.05, 1.0])
def test_workers_of_one_run_know_their_number(latency):
    refused = {}

    async def play(loop: VirtualTime, sharers: int) -> None:
        provider = Provider(loop, latency)
        left = iter(range(900))

        async def worker(limiter: RateLimiter) -> None:
            for _ in left:
                await provider.call(limiter)

        processes = [RateLimiter(process_count=sharers, clock=loop.time) for _ in range(4)]
        await asyncio.gather(*(worker(limiter) for limiter in processes for _ in range(25)))
        refused[sharers] = provider.refused
        assert provider.answered >= 0.9 * (60 + 10 * loop.time())
        assert all(per_minute(limiter)["requests"] == pytest.approx(600, abs=1) for limiter in processes)

    for sharers in (1, 4):
        at_once(functools.partial(play, sharers=sharers))
    assert refused[4] <= 0.015 * 900 and refused[4] < refused[1] / 1.5


@pytest.mark.parametrize("latency", [0.05, 1.0])
@pytest.mark.parametrize("apart", [None, 0.0, 0.02, 0.5, 5.0])
def test_independent_processes_share_a_key_with_few_refusals(latency, apart):
    results = []

    async def play(loop: VirtualTime) -> None:
        provider = Provider(loop, latency)

        async def process(start: float, calls: int) -> None:
            await asyncio.sleep(start)
            limiter, left = RateLimiter(clock=loop.time), iter(range(calls))

            async def worker() -> None:
                for _ in left:
                    await provider.call(limiter)

            await asyncio.gather(*(worker() for _ in range(100)))

        starts = [0.0] if apart is None else [0.0, apart]
        await asyncio.gather(*(process(start, 900 // len(starts)) for start in starts))
        results.append((provider.answered / (60 + 10 * loop.time()), provider.refused))

    at_once(play)
    ((used, refused),) = results
    assert used >= 0.9 and refused <= 0.01 * 900


@pytest.mark.parametrize("tokens", [4096, 5800])
async def test_a_large_call_goes_at_once_where_there_is_room_for_it(tokens):
    limiter = RateLimiter(clock=Clock())
    ticket = await limiter.acquire("a", 100)
    ticket.mark_sent("key")
    ticket.observe_headers(headers(6000, 5900, "1s", "tokens"))
    limiter.release(ticket, answered=True)
    large, next_one = await let(limiter, tokens=tokens), await let(limiter, tokens=tokens)
    assert large.done() and not next_one.done()
    next_one.cancel()


async def test_returned_headroom_is_used_again():
    clock = Clock()
    limiter = RateLimiter(clock=clock)
    for _ in range(5):  # each is charged 4,000 and uses 100
        ticket = await limiter.acquire("a", 4000)
        ticket.mark_sent("key")
        clock.now += 1
        ticket.observe_headers(headers(6000, 5900, "1s", "tokens"))
        limiter.release(ticket, answered=True)
    assert limiter.waited == 0


@pytest.mark.parametrize("given", [{"requests": 30}, {"tokens": 3000}, {"requests": 30, "tokens": 3000}])
async def test_a_limit_of_the_spec_holds_whatever_the_provider_allows(given):
    clock = Clock()
    limiter = RateLimiter(**given, clock=clock)
    removed = 0
    for _ in range(600):
        asking = await let(limiter, tokens=100)
        if asking.done():
            ticket = asking.result()
            ticket.mark_sent("key")
            ticket.observe_headers(headers(60000, 59000, "1s"))
            limiter.release(ticket, answered=True)
            removed += 1
        asking.cancel()
        await settled()
        clock.now += 0.1
    assert 28 <= removed <= 31
    assert per_minute(limiter).get("requests") == given.get("requests", 60000)


async def test_cancelled_first_waiter_lets_the_next_one_through():
    limiter = RateLimiter(tokens=6000, clock=Clock())
    large, small = await let(limiter, tokens=3000), await let(limiter, tokens=20)
    assert not small.done()
    large.cancel()
    await settled()
    assert small.done()


def test_all_keys_are_used():
    used = {"one": 0, "two": 0}

    async def play(loop: VirtualTime) -> None:
        limiter, left, at = RateLimiter(clock=loop.time), dict.fromkeys(used, 2.0), dict.fromkeys(used, 0.0)
        keys = KeyRing(tuple(used))

        async def worker() -> None:
            while loop.time() < 600:
                ticket = await limiter.acquire("a")
                key, now = keys.next_key(ticket.remaining_share), loop.time()
                ticket.mark_sent(key)
                left[key], at[key] = min(20.0, left[key] + (now - at[key]) / 3), now
                assert left[key] >= 1, "nothing is refused"
                left[key] -= 1
                used[key] += 1
                await asyncio.sleep(1)
                ticket.observe_headers(headers(20, int(left[key]), f"{(20 - left[key]) * 3:.3f}s"))
                limiter.release(ticket, answered=True)

        await asyncio.gather(worker(), worker())

    at_once(play)
    assert min(used.values()) >= 0.9 * 200


def test_token_limit_holds_and_an_oversized_call_still_goes():
    async def play(loop: VirtualTime) -> None:
        await RateLimiter(tokens=600, clock=loop.time).acquire("a", tokens=5000)
        assert loop.time() == pytest.approx(59, abs=1)

    at_once(play)


async def test_flows_take_turns():
    limiter = RateLimiter(concurrent=1, clock=Clock())
    first = await limiter.acquire("many")
    order: list[str] = []

    async def ask(flow: str) -> None:
        ticket = await limiter.acquire(flow)
        order.append(flow)
        limiter.release(ticket, answered=True)

    asking = [asyncio.create_task(ask(flow)) for flow in ("many", "many", "many", "few")]
    await asyncio.sleep(0)
    limiter.release(first, answered=True)
    await asyncio.gather(*asking)
    assert order == ["many", "few", "many", "many"]


async def test_a_refusal_halves_what_is_in_flight_once_and_answers_bring_it_back():
    clock = Clock()
    limiter = RateLimiter(clock=clock)
    limiter.release(await limiter.acquire("a"), answered=True)
    tickets = [await limiter.acquire("a") for _ in range(40)]
    clock.now += 1
    for ticket in tickets[:10]:
        limiter.release(ticket, refused=0.0)
    for ticket in tickets[10:]:
        limiter.release(ticket, answered=True)
    assert limiter.summary()["refused"] == 10
    asking = [await let(limiter) for _ in range(40)]
    assert sum(task.done() for task in asking) == 21, "ten rejections of calls sent together count once"


def test_retry_after_is_respected():
    async def play(loop: VirtualTime) -> None:
        limiter = RateLimiter(clock=loop.time)
        limiter.release(await limiter.acquire("a"), refused=7.0)
        await limiter.acquire("a")
        assert loop.time() == pytest.approx(7, abs=0.01)

    at_once(play)


async def test_repeated_day_long_retry_after_waits_a_minute_in_all():
    clock = Clock()
    limiter = RateLimiter(clock=clock)
    for _ in range(3):
        limiter.release(await limiter.acquire("a"), refused=86_400.0)
        clock.now += 60
    asking = await let(limiter)
    assert asking.done(), "it still waits"
    limiter.release(asking.result(), refused=0.0)
    limiter.release(await limiter.acquire("a"), answered=True)
    limiter.release(await limiter.acquire("a"), refused=86_400.0)
    assert not (await let(limiter)).done(), "after a response a rejection is a new one"


async def test_cancelled_waiter_releases_its_slot():
    limiter = RateLimiter(concurrent=1, clock=Clock())
    ticket = await limiter.acquire("a")
    first, second = await let(limiter), await let(limiter)
    first.cancel()
    limiter.release(ticket, answered=True)
    await settled()
    assert second.done() and limiter.in_flight == 1
    third = await let(limiter)
    limiter.release(second.result(), answered=True)
    third.cancel()
    await settled()
    assert limiter.in_flight == 0, "it had acquired a slot and released it"


async def test_a_key_with_more_left_is_taken_first():
    limiter = RateLimiter(clock=Clock())
    ring = KeyRing(["one", "two"])
    for key, remaining in (("one", 5), ("two", 90)):
        ticket = await limiter.acquire("a")
        ticket.mark_sent(key)
        ticket.observe_headers(headers(100, remaining, "1m"))
    assert [ring.next_key(ticket.remaining_share) for _ in range(3)] == ["two"] * 3
    assert [ring.next_key() for _ in range(2)] == ["one", "two"]


async def failing(failure):
    raise failure


async def test_queue_reports_ended_calls_to_the_limits():
    limiter = RateLimiter()
    queued = QueuedModel("slow", "", lambda: Slow(0), limiter)
    await queued.ask(lambda model: model.complete(HELLO, lambda text: None), "a")
    for failure in (RateLimited("no", "slow", 0.01), Unreachable("gone", "slow")):
        with pytest.raises(type(failure)):
            await queued.ask(lambda model, failure=failure: failing(failure), "a")
    assert (limiter.answered, limiter.refused, limiter.in_flight) == (1, 1, 0)
