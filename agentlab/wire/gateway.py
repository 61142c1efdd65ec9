"""A conversation's one way out: every call is keyed, looked up, shared, queued, retried and recorded here.

    recorder = Recorder("replay", Recordings.open(Path("evals/recordings"), "flows"))
    gateway = Gateway(recorder, model, embedder, flow="tools", conversation="laws-001", epoch=0)
    answer = await gateway.ask(request, Place(turn=0), emit)

Whatever goes wrong is part of the answer, of which the session makes one event.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from agentlab.core import errors
from agentlab.core.errors import BadRequest, ContextOverflow, ModelError, NotRecorded, RecordingError, ToolError
from agentlab.core.events import shorten
from agentlab.core.messages import CHARACTERS_PER_TOKEN, Completion, Message, Request, from_json, to_json
from agentlab.core.protocols import Answer, Emit, Model, Place
from agentlab.core.strict_json import tamed
from agentlab.wire.checked import checked
from agentlab.wire.explain import Explanation
from agentlab.wire.keys import (
    RecordedRequest,
    Repeat,
    Row,
    duration_key,
    flight_key,
    record_request,
    result_key,
    text_key,
)
from agentlab.wire.queue import QueuedEmbedder, QueuedModel, Timed, timed
from agentlab.wire.recorder import Recorder, packed, unpacked
from agentlab.wire.retries import RETRIES, Attempts

_REFUSALS = (BadRequest, ContextOverflow)
"""Errors that the same request would meet again, and that are therefore part of its recording."""


class _Asked(NamedTuple):
    """What a request is found by: among those under way, and among the recordings, where there are any."""

    flight: str
    key: str = ""
    repeat: Repeat = 0
    recorded: RecordedRequest | None = None

    @property
    def fields(self) -> Row:
        return self.recorded.fields if self.recorded is not None else {}


class Gateway:
    """See `agentlab.core.protocols.Gateway`."""

    def __init__(
        self,
        recorder: Recorder,
        model: QueuedModel,
        embedder: QueuedEmbedder | None,
        *,
        flow: str,
        conversation: str,
        epoch: int,
        retries: int = RETRIES,
        call_seconds: float | None = None,
    ) -> None:
        self.name = model.name
        self._recorder = recorder
        self._model = model
        self._embedder = embedder
        self._flow = flow
        self._conversation = conversation
        self._epoch = epoch
        self._retries = retries
        self._call_seconds = call_seconds
        self._counted: Counter[tuple[tuple[int, ...], str]] = Counter()
        """How often each request was made before, by the branch it was made in: a second try is a call of its own."""

    def go_on_as(self, other: Gateway) -> None:
        self.name, self._recorder, self._model = other.name, other._recorder, other._model

    async def ask(
        self, request: Request, place: Place, emit: Emit, again: Callable[[], None] = lambda: None
    ) -> Answer[Completion]:
        asked = self._asked_as(request, place)
        attempts, said, odd = Attempts(self._retries), list[str](), list[str]()
        heard = False
        missed: Explanation | None = None

        def emit_and_keep(text: str) -> None:
            nonlocal heard
            heard = True
            said.append(text)
            emit(text)

        async def ask_once() -> tuple[Timed[Completion], bool]:
            if said:
                said.clear()
                again()
            # What is asked twice at once is asked once, whoever repeats it.
            flights = self._recorder.flights
            return await flights.share(asked.flight, lambda: self._ask_model(request, emit_and_keep, odd, attempts))

        try:
            row = self._recorder.find(asked.key)
            if row is not None:
                completion = _completion(row)
                emit(completion.message.text)
                return Answer(value=completion, seconds=row["seconds"], origin="replay")
            at = (self._flow, self._conversation, place.turn)
            nearest = self._recorder.nearest
            missed = nearest.explain(request, asked.fields, at) if nearest is not None else None
            if self._recorder.mode == "replay":
                raise NotRecorded(
                    str(missed or "nothing like this call is recorded here; --mode auto records it"),
                    missed.cause if missed else "nothing recorded",
                )
            entry: Row = {"kind": "completion", "request": asked.fields, "repeat": asked.repeat, "at": at}
            try:
                brought, joined = await attempts.run(ask_once)
                if joined:
                    emit(brought.result.message.text)
            except _REFUSALS as refusal:
                self._recorder.keep(asked.key, _refused(entry, refusal), asked.recorded)
                raise
        except asyncio.CancelledError as interrupt:
            self._uncount(asked, place, interrupt)
            return self._interrupted(interrupt, attempts, said)
        except Exception as failure:
            self._uncount(asked, place, failure)
            failed = _failed(failure, waited=attempts.lost, attempt=attempts.number)
            # Where a server dies in the middle of an answer, that was made all the same: its tokens are not known.
            return replace(failed, value=self._partial(said)) if heard else failed
        answer = Answer(
            value=brought.result,
            seconds=brought.seconds,
            waited=attempts.lost + brought.waited,
            attempt=attempts.number,
            origin="replay" if joined else "live",
            odd="; ".join(odd),
        )
        return self._recorded(answer, entry, asked, missed)

    def _asked_as(self, request: Request, place: Place) -> _Asked:
        who = self.name, self._model.endpoint, request, self._epoch
        if self._recorder.recordings is None:
            return _Asked(flight_key(*who))
        recorded = record_request(*who)
        first_key = recorded.key(0)
        count = self._counted[place.path, first_key]
        self._counted[place.path, first_key] += 1
        repeat: Repeat = [*place.path, count] if place.path else count
        return _Asked(first_key, recorded.key(repeat) if repeat else first_key, repeat, recorded)

    def _uncount(self, asked: _Asked, place: Place, failure: BaseException) -> None:
        """Of a call that failed so that nothing of it is recorded: who asks it again is the first."""
        if asked.recorded is not None and not isinstance(failure, (NotRecorded, *_REFUSALS)):
            self._counted[place.path, asked.flight] -= 1

    async def _ask_model(self, request: Request, emit: Emit, odd: list[str], attempts: Attempts) -> Timed[Completion]:
        def send(model: Model) -> Awaitable[Completion]:
            attempts.sending()
            return self._in_time(model.complete(request, emit))

        answer = await self._model.ask(send, self._flow, _tokens(request))
        completion, strange = checked(answer.result, self.name)
        odd[:] = [strange] if strange else []
        return Timed(completion, answer.seconds, answer.waited)

    async def _in_time(self, work: Awaitable[Completion]) -> Completion:
        """What `work` brings within the time that the spec gives a call."""
        if self._call_seconds is None:
            return await work
        try:
            async with asyncio.timeout(self._call_seconds) as limit:
                return await work
        except TimeoutError:
            if not limit.expired():
                raise
            raise errors.Unreachable(f"no answer within {self._call_seconds:g} s (timeouts.call)", self.name) from None

    def _recorded(
        self, answer: Answer[Completion], entry: Row, asked: _Asked, missed: Explanation | None
    ) -> Answer[Completion]:
        """The answer as it now stands in the recordings, which is another one where somebody else was first."""
        if self._recorder.recordings is None:
            return answer
        entry |= {"completion": to_json(answer.value), "seconds": answer.seconds}
        try:
            kept = self._recorder.keep(asked.key, entry, asked.recorded)
            return replace(answer, value=_completion(kept), seconds=kept["seconds"], missed=missed)
        except RecordingError as problem:
            # It was made and paid for all the same.
            return replace(answer, failure=problem)
        except ModelError as refusal:
            return _failed(refusal, waited=answer.waited, attempt=answer.attempt)

    def _interrupted(
        self, interrupt: asyncio.CancelledError, attempts: Attempts, said: list[str]
    ) -> Answer[Completion]:
        """What a call had brought when it was broken off; its tokens are not known."""
        broken_off: Answer[Completion] = Answer(failure=interrupt, error="interrupted", attempt=attempts.number)
        asked = attempts.asked
        if asked is None:
            # Nothing was under way that could have cost anything: it waited for its turn, or to try again.
            return replace(broken_off, waited=attempts.lost + attempts.spent)
        waited = attempts.lost + attempts.spent - asked
        return replace(broken_off, value=self._partial(said), seconds=asked, waited=waited)

    def _partial(self, said: list[str]) -> Completion:
        message = Message(role="agent", text="".join(said))
        return Completion(message=message, model=self.name, finish_reason="interrupted")

    async def embed(self, text: str) -> Answer[np.ndarray]:
        assert self._embedder is not None, "an index that needs vectors comes with an embedder"
        embedder, attempts = self._embedder, Attempts(self._retries)
        key = text_key("embedding", embedder.name, text, embedder.endpoint)

        try:
            row = self._recorder.find(key)
            if row is not None:
                return Answer(value=unpacked(row["vector"]), seconds=row["seconds"], origin="replay")
            if self._recorder.mode == "replay":
                raise NotRecorded(
                    f"the query {shorten(text)!r} was never embedded by {embedder.name}", "query embedding"
                )
            brought, joined = await self._recorder.flights.share(
                key, lambda: attempts.run(lambda: embedder.ask(lambda model: model.embed([text])))
            )
            entry = {"kind": "embedding", "model": embedder.name, "endpoint": embedder.endpoint, "text": text}
            row = self._recorder.keep(key, {**entry, "vector": packed(brought.result[0]), "seconds": brought.seconds})
        except Exception as failure:
            return _failed(failure)
        return Answer(
            value=unpacked(row["vector"]),
            seconds=row["seconds"],
            waited=attempts.lost + brought.waited,
            origin="replay" if joined else "live",
        )

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> Answer[Any]:
        """What `ask` brings, or brought when it was recorded.

        A ToolError of `ask` is an answer, too: the conversation went on from there, and a replay does. It is recorded
        beside what answers the same later, so that the next recording asks again.
        """
        key, failed_key = result_key(kind, facts), result_key(f"failed {kind}", facts)
        replaying = self._recorder.mode == "replay"

        async def brought_or_failed() -> Row:
            try:
                return {"value": tamed(await ask())}
            except ToolError as failure:
                return {"value": None, "error": str(failure)}

        try:
            row = self._recorder.find(key) or (self._recorder.find(failed_key) if replaying else None)
            if row is not None:
                return _fetched(row, "replay")
            if replaying:
                raise NotRecorded(f"no {kind} is recorded for {shorten(str(facts))}; --mode auto records it", kind)
            brought, joined = await self._recorder.flights.share(key, lambda: timed(brought_or_failed()))
            name, of = (failed_key, f"failed {kind}") if "error" in brought.result else (key, kind)
            entry = {"kind": "result", "of": of, "facts": facts, **brought.result, "seconds": brought.seconds}
            return _fetched(self._recorder.keep(name, entry), "replay" if joined else "live")
        except Exception as failure:
            return _failed(failure)

    def recorded_duration(self, work: Any, seconds: float) -> tuple[float, str]:
        """How long work in this process took, in seconds: as recorded, or as just measured; and which of both.

        `work` is JSON that says what was done and what came of it. It is done anew in a replay: only its time is
        recorded.
        """
        key = duration_key(work)
        row = self._recorder.find(key)
        if row is not None:
            return row["seconds"], "replay"
        row = self._recorder.keep(key, {"kind": "duration", "work": work, "seconds": round(seconds, 6)})
        return row["seconds"], "live"


def _tokens(request: Request) -> int:
    """What a request may come to, as providers count it beforehand."""
    return sum(len(message.text) for message in request.messages) // CHARACTERS_PER_TOKEN + (request.max_tokens or 0)


def _completion(row: Row) -> Completion:
    """The completion of a row; raises the refusal that was recorded in its place."""
    if "refusal" in row:
        told = row["refusal"]
        raise getattr(errors, told["error"])(told["text"], told["model"])
    return from_json(Completion, row["completion"])


def _refused(entry: Row, refusal: ModelError) -> Row:
    text = str(refusal).removeprefix(f"{refusal.model}: ")
    return {**entry, "refusal": {"error": type(refusal).__name__, "text": text, "model": refusal.model}, "seconds": 0.0}


def _fetched(row: Row, origin: str) -> Answer[Any]:
    error = row.get("error")
    failure = None if error is None else ToolError(error)
    return Answer(value=row["value"], seconds=row["seconds"], origin=origin, error=error, failure=failure)


def _failed(failure: Exception, waited: float = 0.0, attempt: int = 1) -> Answer[Any]:
    missed = failure if isinstance(failure, NotRecorded) else None
    error = f"{type(failure).__name__}: {failure}"
    return Answer(failure=failure, error=error, missed=missed, waited=waited, attempt=attempt)
