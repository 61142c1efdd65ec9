"""A conversation's one way out: every call is keyed, looked up, shared, queued, retried and recorded here.

    recorder = Recorder("replay", Recordings.open(Path("evals/recordings"), "flows"))
    gateway = Gateway(recorder, model, embedder, flow="tools", conversation="laws-001", epoch=0)
    answer = await gateway.ask(request, Place(turn=0), emit)

Whatever goes wrong is part of the answer, of which the session makes one event.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import numpy as np
from msgspec.structs import replace

from agentlab.core.errors import BadRequest, ContextOverflow, ModelError, NotRecorded, RecordingError, ToolError
from agentlab.core.events import shorten
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Completion, Message, Request, to_json
from agentlab.core.protocols import CallResult, CallSite, Emit
from agentlab.core.strict_json import sanitise
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
from agentlab.wire.queue import QueuedEmbedder, QueuedModel, Timed
from agentlab.wire.recorder import Recorder
from agentlab.wire.recording_schema import encode_vector
from agentlab.wire.response_validation import validate_completion
from agentlab.wire.retries import RETRIES, Attempts

_PERMANENT_ERRORS = (BadRequest, ContextOverflow)
"""Errors that the same request would meet again, and that are therefore part of its recording."""


class _RequestIdentity(NamedTuple):
    """The keys of a request: among those in flight, and among the recordings, where there are any."""

    in_flight_key: str
    key: str
    entry: Row
    """The row that is recorded, without its answer."""
    recorded: NormalisedRequest | None = None


class _Call(Attempts):
    """The attempts at one request, and what is said meanwhile."""

    def __init__(self, retries: int, emit: Emit, again: Callable[[], None]) -> None:
        super().__init__(retries)
        self.pieces: list[str] = []
        self.is_heard = False
        """True once any attempt brought text."""
        self._emit = emit
        self._again = again

    def begin(self) -> None:
        super().begin()
        if self.pieces:
            self.pieces.clear()
            self._again()

    def say(self, text: str) -> None:
        self.is_heard = True
        self.pieces.append(text)
        self._emit(text)


@dataclass(eq=False)
class Gateway:
    """See `agentlab.core.protocols.Gateway`."""

    recorder: Recorder
    model: QueuedModel
    embedder: QueuedEmbedder | None
    _: KW_ONLY
    flow: str
    conversation: str
    epoch: int
    retries: int = RETRIES
    call_seconds: float | None = None
    occurrences: Counter[tuple[tuple[int, ...], str]] = field(default_factory=Counter)
    """The number of equal requests before, by the branch they were made in: a second try is a call of its own."""

    @property
    def name(self) -> str:
        return self.model.name

    def switch_to(self, other: Gateway) -> None:
        self.recorder, self.model = other.recorder, other.model

    async def ask(
        self, request: Request, place: CallSite, emit: Emit, again: Callable[[], None] = lambda: None
    ) -> CallResult[Completion]:
        asked = self._identify(request, place)
        call = _Call(self.retries, emit, again)

        def send() -> Awaitable[Timed[Completion]]:
            tokens = _estimate_tokens(request)
            return self.model.ask(
                lambda model: model.complete(request, call.say), self.flow, tokens, call.mark_sent, self.call_seconds
            )

        try:
            entry = None if self.recorder.always_asks else self.recorder.find(asked.key)
            if entry is not None:
                completion = entry.answer()
                emit(completion.message.text)
                return CallResult(value=completion, seconds=entry.seconds, origin="replay")
            missed = self._missed(request, asked)
            while True:
                call.begin()
                try:
                    # What is asked twice at once is asked once, whoever repeats it.
                    brought, joined = await self.recorder.single_flight.run(asked.in_flight_key, send)
                    completion, odd = validate_completion(brought.result, self.name)
                    break
                except Exception as failure:
                    if asked.recorded is not None and isinstance(failure, _PERMANENT_ERRORS):
                        self.recorder.record(asked.key, _refusal_row(asked.entry, failure), asked.recorded)
                    await call.pause_after(failure)
            if joined:
                emit(completion.message.text)
        except (asyncio.CancelledError, Exception) as failure:
            return self._without_answer(failure, call, asked, place)
        answer = CallResult(
            value=completion,
            seconds=brought.seconds,
            waited=call.lost_seconds + brought.waited,
            attempt=call.number,
            origin="replay" if joined else "live",
            invalid_usage="" if joined else odd,
            miss=missed,
        )
        return answer if asked.recorded is None else self._record_result(answer, asked)

    def _identify(self, request: Request, place: CallSite) -> _RequestIdentity:
        who = self.name, self.model.endpoint, request, self.epoch
        if self.recorder.recordings is None:
            key = in_flight_key(*who)
            return _RequestIdentity(key, key, {})
        recorded = normalise_request(*who)
        first_key = recorded.key(0)
        count = self.occurrences[place.path, first_key]
        self.occurrences[place.path, first_key] += 1

        def numbered(count: int) -> Occurrence:
            return [*place.path, count] if place.path else count

        if self.recorder.always_asks:
            count = self.recorder.next_occurrence(lambda count: (recorded.key(numbered(count)),))
        repeat = numbered(count)
        at = (self.flow, self.conversation, place.turn)
        entry = {"kind": "completion", "request": recorded.fields, "repeat": repeat, "at": at}
        return _RequestIdentity(first_key, recorded.key(repeat) if repeat else first_key, entry, recorded)

    def _missed(self, request: Request, asked: _RequestIdentity) -> NotRecorded | None:
        """Why it is not among the recordings; raises NotRecorded where it may not be asked."""
        explainer = self.recorder.miss_explainer
        missed = explainer.explain(request, asked.entry["request"], asked.entry["at"]) if explainer else None
        if self.recorder.mode == "replay":
            unlike = "nothing like this call is recorded here; --mode auto records it"
            raise missed or NotRecorded(unlike, "nothing recorded")
        return missed

    def _without_answer(
        self, failure: BaseException, call: _Call, asked: _RequestIdentity, place: CallSite
    ) -> CallResult[Completion]:
        if asked.recorded is not None and not isinstance(failure, (NotRecorded, *_PERMANENT_ERRORS)):
            # Nothing of it is recorded: who asks it again is the first.
            self.occurrences[place.path, asked.in_flight_key] -= 1
        if isinstance(failure, Exception):
            failed, seconds = _failed(failure, call.lost_seconds, call.number), 0.0 if call.is_heard else None
        else:
            waited, seconds = call.broken_off()
            failed = CallResult(failure=failure, error="interrupted", waited=waited, attempt=call.number)
        if seconds is None:
            # Nothing was under way, so nothing could cost anything: it waited for its turn, or to try again.
            return failed
        # Of an answer that ended in the middle the tokens are not known; it was made all the same.
        message = Message(role="agent", text="".join(call.pieces))
        partial = Completion(message=message, model=self.name, finish_reason="interrupted")
        return replace(failed, value=partial, seconds=seconds)

    def _record_result(self, answer: CallResult[Completion], asked: _RequestIdentity) -> CallResult[Completion]:
        """The answer as it now stands in the recordings, which is another one where somebody else was first."""
        row = {**asked.entry, "completion": to_json(answer.value), "seconds": answer.seconds}
        try:
            kept = self.recorder.record(asked.key, row, asked.recorded)
            return replace(answer, value=kept.answer(), seconds=kept.seconds)
        except RecordingError as problem:
            # It was made and paid for all the same.
            return replace(answer, failure=problem)
        except ModelError as refusal:
            return _failed(refusal, waited=answer.waited, attempt=answer.attempt)

    async def embed(self, text: str) -> CallResult[np.ndarray]:
        assert self.embedder is not None, "an index that needs vectors comes with an embedder"
        embedder, attempts = self.embedder, Attempts(self.retries)
        about = {"kind": "embedding", "model": embedder.name, "endpoint": embedder.endpoint, "text": text}
        missing = NotRecorded(f"the query {shorten(text)!r} was never embedded by {embedder.name}", "query embedding")

        async def bring() -> Timed[Row]:
            found, seconds, waited = await attempts.run(lambda: embedder.ask(lambda model: model.embed([text])))
            return Timed({**about, "vector": encode_vector(found[0])}, seconds, attempts.lost_seconds + waited)

        key = text_key("embedding", embedder.name, text, embedder.endpoint)
        answer = await self._find_or_fetch((key,), missing, bring)
        return answer if answer.value is None else replace(answer, value=answer.value.array())

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> CallResult[Any]:
        """The result of `ask`, or of the recording.

        A ToolError of `ask` is an answer, too: the conversation went on from there, and a replay does. It is recorded
        beside what answers the same later, so that the next recording asks again.
        """
        missing = NotRecorded(f"no {kind} is recorded for {shorten(str(facts))}; --mode auto records it", kind)
        if self.recorder.always_asks:
            facts = self._numbered_facts(kind, facts)

        async def bring() -> Timed[Row]:
            began = time.perf_counter()
            try:
                row = {"of": kind, "facts": facts, "value": sanitise(await ask())}
            except ToolError as failure:
                row = {"of": f"failed {kind}", "facts": facts, "value": None, "error": str(failure)}
            return Timed({"kind": "result", **row}, round(time.perf_counter() - began, 6))

        keys = _result_keys(kind, facts)
        answer = await self._find_or_fetch(keys, missing, bring)
        if answer.value is None:
            return answer
        error = answer.value.error
        return replace(
            answer, value=answer.value.value, error=error, failure=None if error is None else ToolError(error)
        )

    def _numbered_facts(self, kind: str, facts: Any) -> Any:
        """The facts with the number under which a replay of the chat asks for them."""
        plain = {name: value for name, value in facts.items() if name != "repeat"}

        def numbered(count: int) -> Any:
            return {**plain, "repeat": count} if count else plain

        return numbered(self.recorder.next_occurrence(lambda count: _result_keys(kind, numbered(count))))

    async def _find_or_fetch(
        self, keys: tuple[str, ...], missing: NotRecorded, bring: Callable[[], Awaitable[Timed[Row]]]
    ) -> CallResult[Any]:
        """The entry under one of `keys`, or that of what `bring` brings: under the last of them if it is an error."""
        is_replay = self.recorder.mode == "replay"
        try:
            for key in keys if is_replay else keys[:1]:
                if (entry := self.recorder.find(key)) is not None:
                    return CallResult(value=entry, seconds=entry.seconds, origin="replay")
            if is_replay:
                raise missing
            brought, joined = await self.recorder.single_flight.run(keys[0], bring)
            row = {**brought.result, "seconds": brought.seconds}
            entry = self.recorder.record(keys[-1] if "error" in row else keys[0], row)
        except Exception as failure:
            return _failed(failure)
        origin = "replay" if joined else "live"
        return CallResult(value=entry, seconds=entry.seconds, waited=brought.waited, origin=origin)

    def recorded_duration(self, work: Any, seconds: float) -> tuple[float, str]:
        """Seconds that work in this process took, as recorded or as just measured, and their origin.

        `work` is JSON that says what was done and what came of it. It is done anew in a replay: only its time is
        recorded.
        """
        key = duration_key(work)
        found = self.recorder.find(key)
        if found is not None:
            return found.seconds, "replay"
        kept = self.recorder.record(key, {"kind": "duration", "work": work, "seconds": round(seconds, 6)})
        return kept.seconds, "live"


def _result_keys(kind: str, facts: Any) -> tuple[str, str]:
    return result_key(kind, facts), result_key(f"failed {kind}", facts)


def _estimate_tokens(request: Request) -> int:
    """The most that a request may use, as providers count it beforehand."""
    return sum(len(message.text) for message in request.messages) // CHARACTERS_PER_TOKEN + (request.max_tokens or 0)


def _refusal_row(entry: Row, refusal: ModelError) -> Row:
    text = str(refusal).removeprefix(f"{refusal.model}: ")
    return {**entry, "refusal": {"error": type(refusal).__name__, "text": text, "model": refusal.model}, "seconds": 0.0}


def _failed(failure: Exception, waited: float = 0.0, attempt: int = 1) -> CallResult[Any]:
    missed = failure if isinstance(failure, NotRecorded) else None
    error = f"{type(failure).__name__}: {failure}"
    return CallResult(failure=failure, error=error, miss=missed, waited=waited, attempt=attempt)
