"""How many calls a model is sent: so many at once, so many requests and tokens a minute, flows taking turns.

    limits = Limits()
    await limits.enter("rag_only", tokens=900)     # waits until there is room
    sent = limits.sending("key")                   # the key that is taken for it
    limits.learn("key", response.headers, sent)    # what the provider says of its limits
    limits.leave(answered=True)

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
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

PROBING = 4
"""Calls in flight before the first answer says what is allowed."""
SHARE = 1 / 3
"""Of what is free that goes out before an answer says whether others took of it, too."""
EDGE = 1e-6  # what is handed out has to be more than nothing for a call to go
LONGEST_PAUSE = 60.0
NEAR, SMALL_STEP = 0.8, 0.05
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


@dataclass
class Meter:
    """What is left of an allowance that fills evenly up to `most`; `rate` is per second."""

    most: float
    rate: float
    level: float
    at: float
    reserve: float = 0.0
    """What is left to others who use the same key; it grows when a call is refused all the same."""
    ready: float = math.inf
    """What of it may go before the news of it comes: others who use the same key hear of the same room as we do."""
    shared: float = -math.inf
    """When that was last handed out."""
    told: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    """Rates that the last answers spoke of."""

    def fill(self, now: float) -> float:
        fresh = (now - self.at) * self.rate
        self.level = min(self.most, self.level + fresh)
        self.ready = min(self.most, self.ready + fresh)
        self.at = now
        return min(self.level, self.ready)

    def wait_for(self, amount: float, now: float) -> float:
        """Seconds until so much may go; of what is handed out the last call may take more than is there."""
        self.fill(now)
        return max(min(amount, self.most) - self.level, EDGE - self.ready) / self.rate

    def take(self, amount: float) -> None:
        self.level -= amount
        self.ready -= amount

    def hear(self, free: float, share: float, sent: float, now: float) -> None:
        """Somebody whose call was sent at `sent` says that so much is free; a share of it is handed out."""
        self.fill(now)
        self.ready = min(self.ready, max(free, 0.0))
        if sent < self.shared:  # who was sent before knows nothing of those that went since
            self.level = min(self.level, free)
        else:
            self.level, self.ready, self.shared = free, share * max(free, 0.0), now


class Limits:
    """The limits of one model; `clock` is in seconds and only goes forward.

    `requests` and `tokens` are per minute, where somebody knows them beforehand; `concurrent` is the most at once;
    `sharers` are the processes that are known to ask with the same keys, this one among them.
    """

    def __init__(
        self,
        *,
        requests: int | None = None,
        tokens: int | None = None,
        concurrent: int | None = None,
        sharers: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._sharers = sharers
        self.in_flight = 0
        self.refused = 0
        self.answered = 0
        self.waited = 0.0
        """Seconds that calls stood here, all together."""
        self._clock = clock
        given = {"requests": requests, "tokens": tokens}
        self._given = {what: Meter(g, g / 60, max(1.0, g / 60), clock()) for what, g in given.items() if g}
        """What the spec says, of all keys together; what a provider says comes on top."""
        self._most = math.inf if concurrent is None else float(concurrent)
        self._window = min(float(max(1, PROBING // sharers)), self._most)
        self._is_probing = True
        self._meters: dict[str, dict[str, Meter]] = {}
        """By key, then `requests` or `tokens`."""
        self._calls: dict[asyncio.Task[Any] | None, tuple[str, int]] = {}
        """Of those in flight, by the task they are made in: the key and the tokens that were charged."""
        self._flying: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
        """By key: requests and tokens in flight."""
        self._closed_until = self._slowed_at = -math.inf
        self._refused_since = math.inf
        self._too_many = math.inf
        """How many were in flight when the last one was refused; towards that the steps are small."""
        self._waiting: dict[str, deque[tuple[asyncio.Future[str], int]]] = defaultdict(deque)
        """By flow; whose turn it is stands first."""
        self._timer: asyncio.TimerHandle | None = None

    async def enter(self, flow: str, tokens: int = 0) -> float:
        """Wait for a place, and return the seconds that took."""
        now = self._clock()
        if not self._waiting and self._room(now, tokens) <= 0:
            self._fly(self._let_in(now, tokens), tokens)
            return 0.0
        place = asyncio.get_running_loop().create_future()
        self._waiting[flow].append((place, tokens))
        self._pump()
        try:
            key = await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled():
                self.leave()
            else:
                self._pump()  # who stood behind it may go, perhaps
            raise
        self._fly(key, tokens)
        waited = self._clock() - now
        self.waited += waited
        return waited

    def leave(self, *, answered: bool = False, refused: float | None = None, sent: float = math.inf) -> None:
        """A call has ended; `refused` are the seconds to stay away for, of a provider that wants no more for now.

        `sent` is when it was sent, by the clock.
        """
        now = self._clock()
        self.in_flight -= 1
        self._land()
        if refused is not None:
            self.refused += 1
            # A minute for all refusals in a row: a call that is refused each time would wait as long for each attempt.
            self._refused_since = min(self._refused_since, now)
            self._closed_until = max(self._closed_until, min(now + refused, self._refused_since + LONGEST_PAUSE))
            # Of those that were in flight together only the first one tells something new.
            if sent > self._slowed_at:
                self._slow_down(now)
        elif answered:
            self.answered += 1
            self._refused_since = math.inf
            if self._is_probing:
                self._is_probing = False
                self._window = self._most
            elif self._window < self._most:
                step = 1.0 if self._window < NEAR * self._too_many else SMALL_STEP
                self._window = min(self._most, self._window + step / self._window)
        self._pump()

    def _slow_down(self, now: float) -> None:
        self._slowed_at = now
        for meters in self._meters.values():
            for meter in meters.values():
                meter.reserve = min(meter.most / 4, 2 * meter.reserve + 1)
        if not self._meters:
            self._too_many = min(self._window, float(self.in_flight + 1))
            self._window = max(1.0, self._too_many / 2)
            self._is_probing = False

    @property
    def now(self) -> float:
        return self._clock()

    def learn(self, key: str, headers: Mapping[str, str], sent: float = math.inf) -> None:
        """Take up what an answer to `key` says of the limits; `sent` is when it was asked for, by the clock."""
        if "x-ratelimit-limit-requests" not in headers and "x-ratelimit-limit-tokens" not in headers:
            return
        now = self._clock()
        own = self._calls.get(asyncio.current_task(), ("", 0))[1]
        for what in ("requests", "tokens"):
            limit, remaining = (_number(headers.get(f"x-ratelimit-{name}-{what}")) for name in ("limit", "remaining"))
            if not limit or remaining is None:
                continue
            meter = self._meters.setdefault(key, {}).get(what)
            if meter is None:
                meter = self._meters[key][what] = Meter(limit, limit / 60, limit, now, limit / 100)
            meter.most = limit
            reset = seconds_of(headers.get(f"x-ratelimit-reset-{what}", ""))
            if reset and remaining < limit:
                # A bucket that fills evenly says the same each time; a window that ends at once says ever more.
                meter.told.append((limit - remaining) / reset)
            meter.rate = max(limit / 60, min(meter.told, default=0.0)) / self._sharers
            # Some of those in flight are counted already; to think that none is costs nothing in the long run.
            requests, tokens = self._flying[key]
            ahead = requests - 1 if what == "requests" else tokens - own
            free = max(remaining - ahead - meter.reserve, -meter.most)
            meter.hear(free, min(SHARE, 1 / self._sharers), sent, now)

    def rank(self, key: str) -> float:
        """How much is left of a key, for whoever chooses among several; the call that asks was charged already."""
        meters = self._meters.get(key)
        if not meters:
            return 1.0
        now, (charged, tokens) = self._clock(), self._calls.get(asyncio.current_task(), ("", 0))
        own = {"requests": 1, "tokens": tokens} if charged == key else {}
        return min((m.fill(now) + own.get(what, 0)) / m.most for what, m in meters.items())

    def sending(self, key: str) -> float:
        """The call that was let in goes with this key; when that is, by the clock."""
        if (charged := self._land()) is not None:
            before, tokens = charged
            if before != key:
                self._charge(before, -1, -tokens)
                self._charge(key, 1, tokens)
            self._fly(key, tokens)
        return self._clock()

    def _fly(self, key: str, tokens: int) -> None:
        self._calls[asyncio.current_task()] = key, tokens
        flying = self._flying[key]
        flying[0] += 1
        flying[1] += tokens

    def _land(self) -> tuple[str, int] | None:
        call = self._calls.pop(asyncio.current_task(), None)
        if call is not None:
            flying = self._flying[call[0]]
            flying[0] -= 1
            flying[1] -= call[1]
        return call

    def _charge(self, key: str, requests: int, tokens: int) -> None:
        for what, meter in self._meters.get(key, {}).items():
            meter.take(requests if what == "requests" else tokens)

    def _room(self, now: float, tokens: int) -> float:
        """Seconds until a call of so many tokens may go; 0 at once, infinity for after somebody has left."""
        if self.in_flight + 1 > self._window:
            return math.inf
        wait = max(0.0, self._closed_until - now, self._time_for(self._given, now, tokens))
        # The key that is free first.
        return max(wait, min((self._time_for(meters, now, tokens) for meters in self._meters.values()), default=0.0))

    def _let_in(self, now: float, tokens: int) -> str:
        """Charge the call to the key that is free first, and say which; "" where none is known."""
        self.in_flight += 1
        for what, meter in self._given.items():
            meter.take(1 if what == "requests" else tokens)
        freest = min(self._meters, key=lambda key: self._time_for(self._meters[key], now, tokens), default="")
        self._charge(freest, 1, tokens)
        return freest

    @staticmethod
    def _time_for(meters: Mapping[str, Meter], now: float, tokens: int) -> float:
        return max((m.wait_for(1.0 if what == "requests" else tokens, now) for what, m in meters.items()), default=0.0)

    def _pump(self) -> None:
        """Let in who may go now, flow by flow, and come back when the next one may."""
        now = self._clock()
        while self._waiting:
            flow = next(iter(self._waiting))
            line = self._waiting.pop(flow)
            while line and line[0][0].done():
                line.popleft()
            if not line:
                continue
            place, tokens = line[0]
            wait = self._room(now, tokens)
            if wait > 0:
                # It stays first.
                self._waiting = defaultdict(deque, {flow: line, **self._waiting})
                self._come_back(wait)
                return
            line.popleft()
            if line:
                self._waiting[flow] = line
            place.set_result(self._let_in(now, tokens))

    def _come_back(self, wait: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if wait < math.inf:
            self._timer = asyncio.get_running_loop().call_later(max(wait, 0.001), self._pump)

    @property
    def per_minute(self) -> dict[str, float]:
        """What provider and spec allow in a minute, all keys together, as far as it is known."""
        found: dict[str, float] = defaultdict(float)
        for meters in self._meters.values():
            for what, meter in meters.items():
                found[what] += meter.rate * 60 * self._sharers
        given = {what: meter.rate * 60 for what, meter in self._given.items()}
        return {what: min(known[what] for known in (found, given) if what in known) for what in {**given, **found}}

    def summary(self) -> dict[str, Any]:
        """For a run's summary: what was allowed, what was refused and what was waited."""
        return {
            "per_minute": {what: round(number, 1) for what, number in self.per_minute.items()},
            "answered": self.answered,
            "refused": self.refused,
            "waited_s": round(self.waited, 3),
        }


def _number(text: str | None) -> float | None:
    try:
        number = float(text or "")
    except ValueError:
        return None
    return number if math.isfinite(number) and number >= 0 else None


def seconds_of(text: str) -> float:
    """The seconds of `1m30s`, `250ms` or `12.5`; 0 for what is none of these."""
    plain = _number(text)
    if plain is not None:
        return plain
    parts: Sequence[tuple[str, str]] = re.findall(r"(\d+(?:\.\d+)?)(ms|h|m|s)", text)
    return sum(float(number) * _UNITS[unit] for number, unit in parts)
