"""Limits the parallel calls, requests and tokens a minute of a model; flows take turns.

    limiter = RateLimiter()
    ticket = await limiter.acquire("rag_only", tokens=900)     # waits for headroom
    ticket.mark_sent("key")                                    # the API key of the call
    ticket.observe_headers(response.headers)                   # the limits that the provider reports
    limiter.release(ticket, answered=True)

No configuration is needed. The first calls go out a few at a time. The limiter then keeps to the limits in the
`x-ratelimit-*` headers, for each key. Without such headers it limits nothing until the provider rejects a call. Then
it halves the limit n of parallel calls, and raises n by one after n successes (additive increase, multiplicative
decrease: Chiu and Jain, 1989). Time spent here is stored as `waited` and is not latency.
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
"""Maximum number of calls in flight before the first response."""
HEADROOM_SHARE = 1 / 3
"""Share of the reported headroom to use before the next response reports it again."""
EDGE = 1e-6  # a call may go only if the headroom is more than 0
MAX_PAUSE_SECONDS = 60.0
NEAR, SMALL_STEP = 0.8, 0.05
_UNITS = {"d": 86400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}

Cost = Mapping[str, int]
"""Requests and tokens of one call."""


@dataclass
class TokenBucket:
    """Token bucket of one API key: refills evenly up to `capacity`, at `rate` per second.

    `level` is the content at the time `at`.
    """

    capacity: float
    rate: float
    level: float
    at: float
    reserve: float = 0.0
    """Amount left for other clients with the same key; it grows when a call is rejected nevertheless."""
    headroom: float = math.inf
    """Amount that may be used before the next response; other clients with the key see the same headroom."""
    headroom_granted_at: float = -math.inf
    observed_rates: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    """Refill rates that the last responses imply."""

    def refill(self, now: float) -> float:
        fresh = (now - self.at) * self.rate
        self.level = min(self.capacity, self.level + fresh)
        self.headroom = min(self.capacity, self.headroom + fresh)
        self.at = now
        return min(self.level, self.headroom)

    def seconds_until(self, amount: float, now: float) -> float:
        """Return the seconds until `amount` may be used; the last call may take more than the headroom left."""
        self.refill(now)
        return max(min(amount, self.capacity) - self.level, EDGE - self.headroom) / self.rate

    def charge(self, amount: float) -> None:
        self.level -= amount
        self.headroom -= amount

    def resize(self, limit: float, used: float, reset: float, process_count: int) -> None:
        """Apply the provider's limit per minute; `used` is the part that is free again after `reset` seconds."""
        if reset and used > 0:
            # A bucket that refills evenly implies the same rate each time, a window with a fixed end a growing one.
            self.observed_rates.append(used / reset)
        self.capacity = limit
        self.rate = max(limit / 60, min(self.observed_rates, default=0.0)) / process_count

    def observe(self, remaining: float, fraction: float, sent: float, now: float) -> None:
        """Set the level to what the response to a call sent at `sent` reports; grant a fraction as headroom."""
        self.refill(now)
        free = max(remaining - self.reserve, -self.capacity)
        self.headroom = min(self.headroom, max(free, 0.0))
        if sent < self.headroom_granted_at:  # the response does not count the calls sent since
            self.level = min(self.level, free)
        else:
            self.level, self.headroom, self.headroom_granted_at = free, fraction * max(free, 0.0), now

    def widen_reserve(self) -> None:
        self.reserve = min(self.capacity / 4, 2 * self.reserve + 1)


@dataclass
class KeyLimits:
    """Token buckets of one API key, for `requests` and `tokens`, and the amounts in flight."""

    buckets: dict[str, TokenBucket] = field(default_factory=dict)
    in_flight: Counter[str] = field(default_factory=Counter)

    def seconds_until(self, cost: Cost, now: float) -> float:
        return max((bucket.seconds_until(cost[kind], now) for kind, bucket in self.buckets.items()), default=0.0)

    def charge(self, cost: Cost, sign: int = 1) -> None:
        """Charge a call, or undo that with a `sign` of -1."""
        for kind, amount in cost.items():
            self.in_flight[kind] += sign * amount
            if kind in self.buckets:
                self.buckets[kind].charge(sign * amount)


@dataclass
class Ticket:
    """Admitted call: its cost, the key it is charged to, and the time it was sent."""

    limiter: RateLimiter
    charged: KeyLimits
    cost: Cost
    sent: float

    def remaining_share(self, key: str) -> float:
        """Return the share of a key's limits that is left, 0 to 1, not counting this call."""
        limits, now = self.limiter.keys[key], self.limiter.clock()
        own = self.cost if limits is self.charged else dict.fromkeys(self.cost, 0)
        shares = ((bucket.refill(now) + own[kind]) / bucket.capacity for kind, bucket in limits.buckets.items())
        return min(shares, default=1.0)

    def mark_sent(self, key: str) -> None:
        """Mark the call as sent now with `key`, and charge it to that key."""
        limits = self.limiter.keys[key]
        if limits is not self.charged:
            self.charged.charge(self.cost, -1)
            limits.charge(self.cost)
            self.charged = limits
        self.sent = self.limiter.clock()

    def observe_headers(self, headers: Mapping[str, str]) -> None:
        """Apply the limits in the headers of the response to this call."""
        now, processes = self.limiter.clock(), self.limiter.process_count
        for kind in self.cost:
            limit = as_number(headers.get(f"x-ratelimit-limit-{kind}"))
            remaining = as_number(headers.get(f"x-ratelimit-remaining-{kind}")) if limit else None
            if not limit or remaining is None:
                continue
            bucket = self.charged.buckets.setdefault(kind, TokenBucket(limit, limit / 60, limit, now, limit / 100))
            reset = parse_duration(headers.get(f"x-ratelimit-reset-{kind}", ""))
            bucket.resize(limit, limit - remaining, reset, processes)
            # The provider may have counted some of the calls in flight; assuming that it has not costs little.
            others = self.charged.in_flight[kind] - self.cost[kind]
            bucket.observe(remaining - others, min(HEADROOM_SHARE, 1 / processes), self.sent, now)


CURRENT: ContextVar[Ticket | None] = ContextVar("ticket", default=None)
"""Ticket of the current call; None if the call is not limited."""


@dataclass
class Window:
    """Maximum number of calls in flight, and pauses, learnt from the calls that a provider rejects."""

    max_size: float
    size: float
    too_many: float = math.inf
    """Calls in flight at the last rejection; the window grows slowly near it."""
    closed_until: float = -math.inf
    refused_since: float = math.inf

    def grow(self) -> None:
        """Grow the window after a successful call."""
        self.refused_since = math.inf
        step = 1.0 if self.size < NEAR * self.too_many else SMALL_STEP
        # Before the first rejection there is no reason for small steps.
        self.size = self.max_size if self.too_many == math.inf else min(self.max_size, self.size + step / self.size)

    def close(self, seconds: float, now: float) -> None:
        # Rejections in a row pause a minute in total: else a call would wait that long for each attempt.
        self.refused_since = min(self.refused_since, now)
        self.closed_until = max(self.closed_until, min(now + seconds, self.refused_since + MAX_PAUSE_SECONDS))

    def halve(self, in_flight: float) -> None:
        self.too_many = min(self.size, in_flight)
        self.size = max(1.0, self.too_many / 2)


class RateLimiter:
    """Rate limiter of one model; `clock` returns seconds and never goes back.

    `requests` and `tokens` are limits per minute from the spec, `concurrent` is the maximum number of parallel calls.
    `process_count` is the number of processes that share the keys, including this one.
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
        """Total seconds that calls waited here."""
        self.process_count = process_count
        self.clock = clock
        self.keys: defaultdict[str, KeyLimits] = defaultdict(KeyLimits)
        given = {"requests": requests, "tokens": tokens}
        self._spec = KeyLimits(
            {kind: TokenBucket(n, n / 60, max(1.0, n / 60), clock()) for kind, n in given.items() if n}
        )
        """Limits of the spec, for all keys together; the limits of the provider apply as well."""
        max_size = math.inf if concurrent is None else float(concurrent)
        self._window = Window(max_size, min(float(max(1, PROBE_CONCURRENCY // process_count)), max_size))
        self._slowed_at = -math.inf
        self._waiting: defaultdict[str, deque[tuple[asyncio.Future[Ticket], Cost]]] = defaultdict(deque)
        """Waiting calls by flow; the next flow is first."""
        self._timer: asyncio.TimerHandle | None = None

    async def acquire(self, flow: str, tokens: int = 0) -> Ticket:
        """Wait until a call of `flow` with about `tokens` tokens may be sent; returns its ticket."""
        cost, started = {"requests": 1, "tokens": tokens}, self.clock()
        if not self._waiting and self._seconds_until_admitted(cost, started) <= 0:
            return self._admit(cost, started)
        admission: asyncio.Future[Ticket] = asyncio.get_running_loop().create_future()
        self._waiting[flow].append((admission, cost))
        self._admit_waiting()
        try:
            ticket = await admission
        except asyncio.CancelledError:
            if admission.cancelled():
                self._admit_waiting()  # the next call in the queue may be admitted now
            else:
                self.release(admission.result())
            raise
        self.waited += self.clock() - started
        return ticket

    def release(self, ticket: Ticket, *, answered: bool = False, refused: float | None = None) -> None:
        """End a call; `refused` is the pause in seconds that a rate-limited response asks for."""
        now = self.clock()
        self.in_flight -= 1
        ticket.charged.in_flight.subtract(ticket.cost)
        if refused is not None:
            self.refused += 1
            self._window.close(refused, now)
            # Only the first rejection counts among calls that were in flight together.
            if ticket.sent > self._slowed_at:
                self._slow_down(now)
        elif answered:
            self.answered += 1
            self._window.grow()
        self._admit_waiting()

    def _slow_down(self, now: float) -> None:
        self._slowed_at = now
        keys = self._known_keys()
        for bucket in (bucket for key in keys for bucket in key.buckets.values()):
            bucket.widen_reserve()
        if not keys:
            self._window.halve(self.in_flight + 1.0)

    def _known_keys(self) -> list[KeyLimits]:
        """Return the keys with limits reported by the provider."""
        return [key for key in self.keys.values() if key.buckets]

    def _seconds_until_admitted(self, cost: Cost, now: float) -> float:
        """Return the seconds until a call may be sent: 0 for now, infinity until another call ends."""
        if self.in_flight + 1 > self._window.size:
            return math.inf
        first_key = min((key.seconds_until(cost, now) for key in self._known_keys()), default=0.0)
        return max(0.0, self._window.closed_until - now, self._spec.seconds_until(cost, now), first_key)

    def _admit(self, cost: Cost, now: float) -> Ticket:
        """Charge a call to the key that is free first, and return its ticket."""
        self.in_flight += 1
        self._spec.charge(cost)
        keys = self._known_keys()
        freest = min(keys, key=lambda key: key.seconds_until(cost, now)) if keys else self.keys[""]
        freest.charge(cost)
        return Ticket(self, freest, cost, now)

    def _admit_waiting(self) -> None:
        """Admit the waiting calls that may be sent now, one flow after the other, and schedule the next time."""
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
                admission, cost = line.popleft()
                admission.set_result(self._admit(cost, now))
            if line:
                self._waiting[flow] = line

    def _schedule_admission(self, wait: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if wait < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._admit_waiting)

    def summary(self) -> dict[str, Any]:
        """Return limits per minute, answered and rejected calls and seconds waited, for the summary of a run."""
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
    """Return the number in a header if it is finite and not negative, else None."""
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def parse_duration(text: str) -> float:
    """Return the seconds of `1m30s`, `250ms` or `12.5`; 0 for any other text."""
    parts = re.findall(r"(\d+(?:\.\d+)?)(ms|d|h|m|s)", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts) or as_number(text) or 0.0
