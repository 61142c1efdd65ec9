"""Gateway of a conversation: every call is keyed, looked up, merged, queued, retried and recorded here.

    recorder = Recorder("replay", Recordings.open(Path("evals/recordings"), "flows"))
    gateway = Gateway(recorder, model, embedder, flow="tools", conversation="laws-001", epoch=0)
    result = await gateway.ask(request, CallSite(turn=0), emit)

A failure is part of the result, which the session turns into one event.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from agentlab.core import errors
from agentlab.core.events import shorten
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Completion, Message, Request, to_json
from agentlab.core.protocols import CallResult, CallSite, Emit
from agentlab.core.strict_json import sanitise
from agentlab.core.thoughts import ThoughtFilter
from agentlab.wire.keys import (
    NormalisedRequest,
    Occurrence,
    Row,
    duration_key,
    in_flight_key,
    normalise_request,
    result_key,
    text_key,
)
from agentlab.wire.queue import QueuedEmbedder, QueuedModel
from agentlab.wire.recorder import Recorder
from agentlab.wire.recording_schema import encode_vector
from agentlab.wire.response_validation import validate_completion
from agentlab.wire.retries import RETRIES, Attempts

MAX_TASKS = 200
"""Maximum number of background tasks of a session in which a replay looks for a request."""
_PERMANENT_ERRORS = (errors.BadRequest, errors.ContentFiltered, errors.ContextOverflow)
"""Errors that the same request always causes, so they are recorded."""


class _RequestIdentity(NamedTuple):
    """Keys of a request: one for single flight, one for the recordings if there are any."""

    in_flight_key: str
    key: str
    entry: Row
    """Row to record, without the completion."""
    recorded: NormalisedRequest | None = None


class _Call(Attempts):
    """Attempts at one request, and the text they stream."""

    def __init__(self, gateway: Gateway, emit: Emit, on_restart: Callable[[], None]) -> None:
        super().__init__(gateway.retries, gateway.max_wait_seconds)
        self.pieces: list[str] = []
        self.has_text = False
        """True once any attempt has streamed text."""
        self._emit = emit
        self._on_restart = on_restart

    def begin(self) -> None:
        super().begin()
        self._thought_filter = ThoughtFilter()
        if self.pieces:
            self.pieces.clear()
            self._on_restart()

    def say(self, text: str) -> None:
        self.has_text = True
        if visible := self._thought_filter.feed(text):
            self.pieces.append(visible)
            self._emit(visible)


@dataclass(eq=False)
class Gateway:
    """Implementation of `agentlab.core.protocols.Gateway`, which documents the methods."""

    recorder: Recorder
    model: QueuedModel
    embedder: QueuedEmbedder | None
    _: KW_ONLY
    flow: str
    conversation: str
    epoch: int
    retries: int = RETRIES
    call_seconds: float | None = None
    max_wait_seconds: float | None = None
    """Seconds that a call waits at most because a provider asks for it."""
    occurrences: Counter[tuple[tuple[int, ...], str]] = field(default_factory=Counter)
    """Number of equal requests so far, by parallel branch: a repeated request has its own recording."""

    @property
    def name(self) -> str:
        return self.model.name

    def switch_to(self, other: Gateway) -> None:
        self.recorder, self.model = other.recorder, other.model

    async def ask(
        self, request: Request, site: CallSite, emit: Emit, on_restart: Callable[[], None] = lambda: None
    ) -> CallResult[Completion]:
        identity = self._identify(request, site)
        call = _Call(self, emit, on_restart)
        try:
            entry = None if self.recorder.always_asks else self.recorder.look_up(identity.key)
            if entry is not None:
                completion = entry.to_completion()
                emit(completion.message.text)
                return CallResult(value=completion, seconds=entry.seconds, origin="replay")
            miss = self._miss(request, identity)
            # An upper estimate, as providers count tokens in advance.
            characters = sum(len(each.text) for each in request.messages)
            tokens = characters // CHARACTERS_PER_TOKEN + (request.max_tokens or 0)
            terms = self.flow, tokens, call.mark_sent, self.call_seconds
            while True:
                call.begin()
                try:
                    # Equal requests in flight are one call, even if they are retries.
                    async with self.recorder.single_flight.join(identity.in_flight_key) as flight:
                        if not (joined := flight.done()):
                            flight.set_result(await self.model.ask(lambda m: m.complete(request, call.say), *terms))
                    timed: CallResult[Any] = flight.result()
                    completion, invalid_usage = validate_completion(timed.value, self.name)
                    break
                except Exception as failure:
                    if identity.recorded is not None and isinstance(failure, _PERMANENT_ERRORS):
                        self.recorder.record(identity.key, _refusal_row(identity.entry, failure), identity.recorded)
                    await call.pause_after(failure)
            if joined:
                emit(completion.message.text)
        except (asyncio.CancelledError, Exception) as failure:
            return self._failed_result(failure, call, identity, site)
        result = replace(
            timed,
            value=completion,
            waited=call.lost_seconds + timed.waited,
            attempt=call.number,
            origin="replay" if joined else "live",
            invalid_usage="" if joined else invalid_usage,
            miss=miss,
        )
        return result if identity.recorded is None else self._record_result(result, identity)

    def _in_any_task(self, recorded: NormalisedRequest, occurrence: list[int]) -> Occurrence:
        """Return the occurrence under which a background request is recorded, else `occurrence`.

        Each session of a chat counts its background tasks from the first, and a replay counts them on.
        """
        own, *rest = occurrence
        for task in (own, *range(-1, -MAX_TASKS, -1)):
            if self.recorder.look_up(recorded.key([task, *rest])) is not None:
                return [task, *rest]
        return occurrence

    def _identify(self, request: Request, site: CallSite) -> _RequestIdentity:
        endpoint = self.recorder.endpoint_of(self.name, self.model.endpoint)
        who = self.name, endpoint, request, self.epoch
        if self.recorder.recordings is None:
            key = in_flight_key(*who)
            return _RequestIdentity(key, key, {})
        recorded = normalise_request(*who)
        first_key = recorded.key(0)
        count = self.occurrences[site.path, first_key]
        self.occurrences[site.path, first_key] += 1

        def numbered(count: int) -> Occurrence:
            return [*site.path, count] if site.path else count

        if self.recorder.always_asks:
            count = self.recorder.next_occurrence(lambda count: (recorded.key(numbered(count)),))
        occurrence = numbered(count)
        if self.recorder.mode == "replay" and site.path and site.path[0] < 0:
            occurrence = self._in_any_task(recorded, [*site.path, count])
        if self.recorder.former_max_tokens and self.recorder.look_up(recorded.key(occurrence)) is None:
            with_former = replace(request, max_tokens=self.recorder.former_max_tokens)
            former = normalise_request(self.name, endpoint, with_former, self.epoch)
            recorded = former if self.recorder.look_up(former.key(occurrence)) is not None else recorded
        # The hash of a request is a good part of the time of its replay.
        key = first_key if occurrence == 0 and not self.recorder.former_max_tokens else recorded.key(occurrence)
        at = (self.flow, self.conversation, site.turn)
        entry = {"kind": "completion", "request": recorded.fields, "repeat": occurrence, "at": at}
        return _RequestIdentity(first_key, key, entry, recorded)

    def _miss(self, request: Request, identity: _RequestIdentity) -> errors.NotRecorded | None:
        """Return the reason of a recording miss; raises NotRecorded in a replay, which must not call the model."""
        explainer = self.recorder.miss_explainer
        miss = explainer.explain(request, identity.entry["request"], identity.entry["at"]) if explainer else None
        if self.recorder.mode == "replay":
            no_recordings = "nothing like this call is recorded here; --mode auto records it"
            raise miss or errors.NotRecorded(no_recordings, "nothing recorded")
        return miss

    def _failed_result(
        self, failure: BaseException, call: _Call, identity: _RequestIdentity, site: CallSite
    ) -> CallResult[Completion]:
        if identity.recorded is not None and not isinstance(failure, (errors.NotRecorded, *_PERMANENT_ERRORS)):
            # The failed call is not recorded, so a retry gets the same key.
            self.occurrences[site.path, identity.in_flight_key] -= 1
        if isinstance(failure, Exception):
            failed, seconds = _failed(failure, call.lost_seconds, call.number), 0.0 if call.has_text else None
        else:
            waited, seconds = call.interrupted_seconds()
            failed = CallResult(failure=failure, error="interrupted", waited=waited, attempt=call.number)
        if seconds is None:
            # No attempt was in flight, so nothing was paid for: the call waited in a queue or for a retry.
            return failed
        # The tokens of an interrupted completion are unknown, but the model did generate it.
        message = Message(role="agent", text="".join(call.pieces))
        partial = Completion(message=message, model=self.name, finish_reason="interrupted")
        return replace(failed, value=partial, seconds=seconds)

    def _record_result(self, result: CallResult[Completion], identity: _RequestIdentity) -> CallResult[Completion]:
        """Record a result and return it, or the recorded one if another process was first."""
        row = {**identity.entry, "completion": to_json(result.value), "seconds": result.seconds}
        try:
            entry = self.recorder.record(identity.key, row, identity.recorded)
            return replace(result, value=entry.to_completion(), seconds=entry.seconds)
        except errors.RecordingError as problem:
            # The call was made and paid for although it cannot be recorded.
            return replace(result, failure=problem)
        except errors.ModelError as refusal:
            return _failed(refusal, waited=result.waited, attempt=result.attempt)

    async def embed(self, text: str) -> CallResult[np.ndarray]:
        assert self.embedder is not None, "an index that needs vectors comes with an embedder"
        embedder, attempts = self.embedder, Attempts(self.retries, self.max_wait_seconds)
        endpoint = self.recorder.endpoint_of(embedder.name, embedder.endpoint)
        about = {"kind": "embedding", "model": embedder.name, "endpoint": endpoint, "text": text}
        missing = errors.NotRecorded(
            f"the query {shorten(text)!r} was never embedded by {embedder.name}", "query embedding"
        )

        async def compute() -> CallResult[Row]:
            timed: CallResult[Any] = await attempts.run(lambda: embedder.ask(lambda model: model.embed([text])))
            row = {**about, "vector": encode_vector(cast("np.ndarray", timed.value)[0])}
            return replace(timed, value=row, waited=attempts.lost_seconds + timed.waited)

        key = text_key("embedding", embedder.name, text, endpoint)
        result = await self._look_up_or_fetch((key,), missing, compute)
        return result if result.value is None else replace(result, value=result.value.array())

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> CallResult[Any]:
        """Return the result of `ask` or of its recording.

        A ToolError of `ask` is a result too, because the conversation continues with it, also in a replay. It is
        recorded under a key of its own, so that the next recording run asks again.
        """
        missing = errors.NotRecorded(f"no {kind} is recorded for {shorten(str(facts))}; --mode auto records it", kind)
        if self.recorder.always_asks:
            facts = self._numbered_facts(kind, facts)

        async def call() -> CallResult[Row]:
            started = time.perf_counter()
            try:
                row = {"of": kind, "facts": facts, "value": sanitise(await ask())}
            except errors.ToolError as failure:
                row = {"of": f"failed {kind}", "facts": facts, "value": None, "error": str(failure)}
            return CallResult(value={"kind": "result", **row}, seconds=round(time.perf_counter() - started, 6))

        keys = _result_keys(kind, facts)
        result = await self._look_up_or_fetch(keys, missing, call)
        if result.value is None:
            return result
        error = result.value.error
        return replace(
            result, value=result.value.value, error=error, failure=None if error is None else errors.ToolError(error)
        )

    def _numbered_facts(self, kind: str, facts: Any) -> Any:
        """Return the facts with the occurrence number that a replay of the chat uses."""
        plain = {name: value for name, value in facts.items() if name != "repeat"}

        def numbered(count: int) -> Any:
            return {**plain, "repeat": count} if count else plain

        return numbered(self.recorder.next_occurrence(lambda count: _result_keys(kind, numbered(count))))

    async def _look_up_or_fetch(
        self, keys: tuple[str, ...], missing: errors.NotRecorded, call: Callable[[], Awaitable[CallResult[Row]]]
    ) -> CallResult[Any]:
        """Return the entry under one of `keys`, or record the result of `call`: an error under the last key."""
        is_replay = self.recorder.mode == "replay"
        try:
            for key in keys if is_replay else keys[:1]:
                if (entry := self.recorder.look_up(key)) is not None:
                    return CallResult(value=entry, seconds=entry.seconds, origin="replay")
            if is_replay:
                raise missing
            async with self.recorder.single_flight.join(keys[0]) as flight:
                if not (joined := flight.done()):
                    flight.set_result(await call())
            timed = flight.result()
            row = {**timed.value, "seconds": timed.seconds}
            entry = self.recorder.record(keys[-1] if "error" in row else keys[0], row)
        except Exception as failure:
            return _failed(failure)
        return replace(timed, value=entry, seconds=entry.seconds, origin="replay" if joined else "live")

    def recorded_duration(self, work: Any, seconds: float) -> tuple[float, str]:
        """Return the recorded or measured seconds of work in this process, and their origin.

        `work` is JSON that identifies the work and its result. A replay repeats the work; only its time is recorded.
        """
        key = duration_key(work)
        recorded = self.recorder.look_up(key)
        if recorded is not None:
            return recorded.seconds, "replay"
        entry = self.recorder.record(key, {"kind": "duration", "work": work, "seconds": round(seconds, 6)})
        return entry.seconds, "live"


def _result_keys(kind: str, facts: Any) -> tuple[str, str]:
    return result_key(kind, facts), result_key(f"failed {kind}", facts)


def _refusal_row(entry: Row, refusal: errors.ModelError) -> Row:
    text = str(refusal).removeprefix(f"{refusal.model}: ")
    return {**entry, "refusal": {"error": type(refusal).__name__, "text": text, "model": refusal.model}, "seconds": 0.0}


def _failed(failure: Exception, waited: float = 0.0, attempt: int = 1) -> CallResult[Any]:
    miss = failure if isinstance(failure, errors.NotRecorded) else None
    error = f"{type(failure).__name__}: {failure}"
    return CallResult(failure=failure, error=error, miss=miss, waited=waited, attempt=attempt)
