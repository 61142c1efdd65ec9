"""Limits the calls of a model: so many at once, so many requests and tokens a minute, flows taking turns.

    limiter = RateLimiter()
    ticket = await limiter.acquire("rag_only", tokens=900)     # waits until there is room
    ticket.mark_sent("key")                                    # the key that is taken for it
    ticket.observe_headers(response.headers)                   # what the provider says of its limits
    limiter.release(ticket, answered=True)

Nobody has to configure anything. The first calls go out a few at a time; what their answers say in `x-ratelimit-*`
headers is kept to, for each key. A provider that says nothing gets as many as are asked, until it refuses one: then
half as many at once, and one more for each that many that succeed (additive increase, multiplicative decrease: Chiu and
Jain, 1989). What a call waits here is `waited`, and nobody's latency.
"""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

PROBE_CONCURRENCY = 4
"""Calls in flight before the first answer says what is allowed."""
HEADROOM_SHARE = 1 / 3
"""Part of the free calls that goes out before an answer says whether others took some, too."""
EDGE = 1e-6  # what is handed out has to be more than nothing for a call to go
MAX_PAUSE_SECONDS = 60.0
NEAR, SMALL_STEP = 0.8, 0.05
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

Cost = Mapping[str, int]
"""Requests and tokens of one call."""


@dataclass
class TokenBucket:
    """An allowance that fills evenly up to `capacity`; `rate` is per second, `at` when `level` was computed."""

    capacity: float
    rate: float
    level: float
    at: float
    reserve: float = 0.0
    """Left to others who use the same key; it grows when a call is refused all the same."""
    headroom: float = math.inf
    """May go before the next answer: others who use the same key hear of the same room as we do."""
    headroom_granted_at: float = -math.inf
    observed_rates: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    """By the last answers."""

    def refill(self, now: float) -> float:
        fresh = (now - self.at) * self.rate
        self.level = min(self.capacity, self.level + fresh)
        self.headroom = min(self.capacity, self.headroom + fresh)
        self.at = now
        return min(self.level, self.headroom)

    def seconds_until(self, amount: float, now: float) -> float:
        """Seconds until so much may go; the last call of a headroom may take more than is left of it."""
        self.refill(now)
        return max(min(amount, self.capacity) - self.level, EDGE - self.headroom) / self.rate

    def charge(self, amount: float) -> None:
        self.level -= amount
        self.headroom -= amount

    def resize(self, limit: float, used: float, reset: float, process_count: int) -> None:
        """Take the provider's limit per minute; what is `used` of it is back after `reset` seconds."""
        if reset and used > 0:
            # A bucket that fills evenly says the same each time; a window that ends at once says ever more.
            self.observed_rates.append(used / reset)
        self.capacity = limit
        self.rate = max(limit / 60, min(self.observed_rates, default=0.0)) / process_count

    def observe(self, remaining: float, share: float, sent: float, now: float) -> None:
        """Believe a call sent at `sent` that so much remains beside what is in flight; grant a share of it."""
        self.refill(now)
        free = max(remaining - self.reserve, -self.capacity)
        self.headroom = min(self.headroom, max(free, 0.0))
        if sent < self.headroom_granted_at:  # who was sent before knows nothing of those that went since
            self.level = min(self.level, free)
        else:
            self.level, self.headroom, self.headroom_granted_at = free, share * max(free, 0.0), now

    def widen_reserve(self) -> None:
        self.reserve = min(self.capacity / 4, 2 * self.reserve + 1)


@dataclass
class KeyLimits:
    """The buckets of one API key by `requests` and `tokens`, and what is in flight with it."""

    buckets: dict[str, TokenBucket] = field(default_factory=dict)
    in_flight: Counter[str] = field(default_factory=Counter)

    def seconds_until(self, cost: Cost, now: float) -> float:
        return max((bucket.seconds_until(cost[kind], now) for kind, bucket in self.buckets.items()), default=0.0)

    def charge(self, cost: Cost, sign: int = 1) -> None:
        """Take a call in, or out again with a `sign` of -1."""
        for kind, amount in cost.items():
            self.in_flight[kind] += sign * amount
            if kind in self.buckets:
                self.buckets[kind].charge(sign * amount)


@dataclass
class Ticket:
    """A call that was let in: its cost, the key it is charged to, and when it was sent."""

    limiter: RateLimiter
    charged: KeyLimits
    cost: Cost
    sent: float

    def remaining_share(self, key: str) -> float:
        """0 to 1: how much of a key's allowance is left, as if this call had not been charged."""
        allowance, now = self.limiter.keys[key], self.limiter.clock()
        own = self.cost if allowance is self.charged else dict.fromkeys(self.cost, 0)
        shares = ((bucket.refill(now) + own[kind]) / bucket.capacity for kind, bucket in allowance.buckets.items())
        return min(shares, default=1.0)

    def mark_sent(self, key: str) -> None:
        """The call goes now, with this key."""
        allowance = self.limiter.keys[key]
        if allowance is not self.charged:
            self.charged.charge(self.cost, -1)
            allowance.charge(self.cost)
            self.charged = allowance
        self.sent = self.limiter.clock()

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Take up what the answer to this call says of the limits."""
        now, processes = self.limiter.clock(), self.limiter.process_count
        for kind in self.cost:
            limit = as_number(headers.get(f"x-ratelimit-limit-{kind}"))
            remaining = as_number(headers.get(f"x-ratelimit-remaining-{kind}")) if limit else None
            if not limit or remaining is None:
                continue
            bucket = self.charged.buckets.setdefault(kind, TokenBucket(limit, limit / 60, limit, now, limit / 100))
            reset = parse_duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
            bucket.resize(limit, limit - remaining, reset, processes)
            # Some of those in flight are counted already; to think that none is costs nothing in the long run.
            others = self.charged.in_flight[kind] - self.cost[kind]
            bucket.observe(remaining - others, min(HEADROOM_SHARE, 1 / processes), self.sent, now)


CURRENT: ContextVar[Ticket | None] = ContextVar("ticket", default=None)
"""The ticket of the call that is made here; None where nothing limits it."""


@dataclass
class Window:
    """Calls that may be in flight at once, and the time for which there may be none, by what a provider refuses."""

    most: float
    size: float
    too_many: float = math.inf
    """In flight when the last one was refused; towards that the steps are small."""
    closed_until: float = -math.inf
    refused_since: float = math.inf

    def grow(self) -> None:
        """After an answer."""
        self.refused_since = math.inf
        step = 1.0 if self.size < NEAR * self.too_many else SMALL_STEP
        # As long as nothing was refused there is nothing to be careful about.
        self.size = self.most if self.too_many == math.inf else min(self.most, self.size + step / self.size)

    def close(self, seconds: float, now: float) -> None:
        # A minute for all refusals in a row: a call that is refused each time would wait as long for each attempt.
        self.refused_since = min(self.refused_since, now)
        self.closed_until = max(self.closed_until, min(now + seconds, self.refused_since + MAX_PAUSE_SECONDS))

    def halve(self, in_flight: float) -> None:
        self.too_many = min(self.size, in_flight)
        self.size = max(1.0, self.too_many / 2)


class RateLimiter:
    """The limits of one model; `clock` is in seconds and only goes forward.

    `requests` and `tokens` are per minute, where somebody knows them beforehand; `concurrent` is the most at once;
    `process_count` are the processes that are known to ask with the same keys, this one among them.
    """

    def __init__(
        self,
        *,
        requests: int | None = None,
        tokens: int | None = None,
        concurrent: int | None = None,
        process_count: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.in_flight = self.answered = self.refused = 0
        self.waited = 0.0
        """Seconds that calls stood here, all together."""
        self.process_count = process_count
        self.clock = clock
        self.keys: defaultdict[str, KeyLimits] = defaultdict(KeyLimits)
        given = {"requests": requests, "tokens": tokens}
        self._spec = KeyLimits(
            {kind: TokenBucket(n, n / 60, max(1.0, n / 60), clock()) for kind, n in given.items() if n}
        )
        """The limits of the spec, for all keys together; those of the provider come on top."""
        most = math.inf if concurrent is None else float(concurrent)
        self._window = Window(most, min(float(max(1, PROBE_CONCURRENCY // process_count)), most))
        self._slowed_at = -math.inf
        self._waiting: defaultdict[str, deque[tuple[asyncio.Future[Ticket], Cost]]] = defaultdict(deque)
        """By flow; whose turn it is stands first."""
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, flow: str, tokens: int = 0) -> Ticket:
        """Wait for a place among the calls in flight."""
        cost, began = {"requests": 1, "tokens": tokens}, self.clock()
        if not self._waiting and self._seconds_until_admitted(cost, began) <= 0:
            return self._admit(cost, began)
        place: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._waiting[flow].append((place, cost))
        self._admit_waiting()
        try:
            ticket = await place
        except asyncio.CancelledError:
            if place.cancelled():
                self._admit_waiting()  # who stood behind it may go, perhaps
            else:
                self.release(place.result())
            raise
        self.waited += self.clock() - began
        return ticket

    def release(self, ticket: Ticket, *, answered: bool = False, refused: float | None = None) -> None:
        """End a call; `refused` are the seconds to stay away for, of a provider that wants no more for now."""
        now = self.clock()
        self.in_flight -= 1
        ticket.charged.in_flight.subtract(ticket.cost)
        if refused is not None:
            self.refused += 1
            self._window.close(refused, now)
            # Of those that were in flight together only the first one tells something new.
            if ticket.sent > self._slowed_at:
                self._slow_down(now)
        elif answered:
            self.answered += 1
            self._window.grow()
        self._admit_waiting()

    def _slow_down(self, now: float) -> None:
        self._slowed_at = now
        known = self._known_keys()
        for bucket in (bucket for allowance in known for bucket in allowance.buckets.values()):
            bucket.widen_reserve()
        if not known:
            self._window.halve(self.in_flight + 1.0)

    def _known_keys(self) -> list[KeyLimits]:
        """The keys whose limits a provider has sent."""
        return [allowance for allowance in self.keys.values() if allowance.buckets]

    def _seconds_until_admitted(self, cost: Cost, now: float) -> float:
        """0 for at once, infinity for after somebody has left."""
        if self.in_flight + 1 > self._window.size:
            return math.inf
        first_key = min((key.seconds_until(cost, now) for key in self._known_keys()), default=0.0)
        return max(0.0, self._window.closed_until - now, self._spec.seconds_until(cost, now), first_key)

    def _admit(self, cost: Cost, now: float) -> Ticket:
        """Charge a call to the key that is free first."""
        self.in_flight += 1
        self._spec.charge(cost)
        known = self._known_keys()
        freest = min(known, key=lambda key: key.seconds_until(cost, now)) if known else self.keys[""]
        freest.charge(cost)
        return Ticket(self, freest, cost, now)

    def _admit_waiting(self) -> None:
        """Let in who may go now, flow by flow, and come back when the next one may."""
        now = self.clock()
        while self._waiting:
            flow, line = next(iter(self._waiting.items()))
            while line and line[0][0].done():
                line.popleft()
            if line and (wait := self._seconds_until_admitted(line[0][1], now)) > 0:
                self._schedule_admission(wait)
                return
            del self._waiting[flow]
            if line:
                place, cost = line.popleft()
                place.set_result(self._admit(cost, now))
            if line:
                self._waiting[flow] = line

    def _schedule_admission(self, wait: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if wait < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._admit_waiting)

    def summary(self) -> dict[str, Any]:
        """For a run's summary: what provider and spec allow in a minute, what was refused and what was waited."""
        per_minute = {kind: bucket.rate * 60 for kind, bucket in self._spec.buckets.items()}
        for kind in ("requests", "tokens"):
            if rates := [key.buckets[kind].rate for key in self.keys.values() if kind in key.buckets]:
                per_minute[kind] = min(per_minute.get(kind, math.inf), sum(rates) * 60 * self.process_count)
        return {
            "per_minute": {kind: round(number, 1) for kind, number in per_minute.items()},
            "answered": self.answered,
            "refused": self.refused,
            "waited_s": round(self.waited, 3),
        }


def as_number(text: str | None) -> float | None:
    """The finite number from 0 on that a header says; None for anything else."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def parse_duration(text: str) -> float:
    """The seconds of `1m30s`, `250ms` or `12.5`; 0 for what is none of these."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts) or as_number(text) or 0.0
