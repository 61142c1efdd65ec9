"""What a conversation speaks through: the one seam where what leaves the process is recorded or replayed.

    recorder = Recorder("replay", Recordings.open(Path("evals/recordings"), "flows"))
    line = Line(recorder, model, embedder, trace)         # one for each conversation
    answer = await line.complete(line.prepare(request, turn, path=()), emit)

A mode is `live` (nothing is recorded), `record` (everything is asked and written down), `replay` (nothing is asked) or
`auto` (what is there is replayed, the rest asked and written down). While a run is recorded, a request that another
flow made a minute ago is not made again, so that the run gives the numbers that its replay gives.
"""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from agentlab.core import errors
from agentlab.core.errors import BadRequest, ContextOverflow, NotRecorded, RecordingError, ToolError
from agentlab.core.events import shorten
from agentlab.core.messages import Completion, Request, to_json
from agentlab.core.protocols import Answer, Embedded, Embedder, Emit, Fetched, Mode
from agentlab.core.trace import Trace
from agentlab.core.vectors import pack, unpack
from agentlab.wire.explain import Explanation, Nearest
from agentlab.wire.keys import (
    RecordedRequest,
    Repeat,
    Row,
    duration_key,
    record_request,
    result_key,
    text_key,
)
from agentlab.wire.queue import Flights, Queue, QueuedEmbedder, QueuedModel
from agentlab.wire.recordings import Recordings

_REFUSALS = (BadRequest, ContextOverflow)
"""Errors that the same request would meet again, and that are therefore part of its recording."""


class Recorder:
    """The mode of a lab and what is recorded; without `recordings` everything is live."""

    def __init__(self, mode: Mode = "live", recordings: Recordings | None = None) -> None:
        self.mode = mode
        self.recordings = recordings
        self.used: set[str] = set()
        """Keys that were found or written."""
        self.flights = Flights()

    @cached_property
    def nearest(self) -> Nearest | None:
        # Made at the first miss, from what was there before: a first recording has nothing to be compared with.
        return Nearest(self.recordings) if self.recordings is not None and self.mode != "record" else None

    def find(self, key: str) -> Row | None:
        row = self.recordings.find(key) if self.recordings is not None else None
        if row is not None:
            self.used.add(key)
        return row

    def keep(self, key: str, row: Row, request: RecordedRequest | None = None) -> Row:
        """Write `row` down; returns it, or what another process recorded under `key` meanwhile."""
        if self.recordings is None or self.mode == "replay":
            return row
        self.used.add(key)
        return self.recordings.add(key, row, request.parts if request else None)


@dataclass(frozen=True)
class Asked:
    """A request on its way, with the key it is recorded under; made once, however often it is tried."""

    request: Request
    recorded: RecordedRequest
    repeat: Repeat
    place: tuple[str, str, int]
    shared: str
    """The key without the repeats: what is asked twice at once is asked once."""
    key: str


class Line:
    """One conversation's way out of the process."""

    def __init__(self, recorder: Recorder, model: QueuedModel, embedder: QueuedEmbedder | None, trace: Trace) -> None:
        self.name = model.name
        self._recorder = recorder
        self._model = model
        self._embedder = embedder
        self._trace = trace
        self._repeats: Counter[tuple[tuple[int, ...], str]] = Counter()

    def prepare(self, request: Request, turn: int, path: tuple[int, ...]) -> Asked:
        recorded = record_request(self.name, self._model.endpoint, request, self._trace.epoch)
        shared = recorded.key(0)
        count = self._repeats[path, shared]
        self._repeats[path, shared] += 1
        repeat: Repeat = [*path, count] if path else count
        place = (self._trace.flow, self._trace.conversation, turn)
        return Asked(request, recorded, repeat, place, shared, recorded.key(repeat) if repeat else shared)

    async def complete(self, asked: Asked, emit: Emit) -> Answer:
        """Raises NotRecorded in a replay without this call, and the ModelErrors of the model, replayed ones too."""
        row = self._recorder.find(asked.key)
        if row is not None:
            answer = _answer(row, origin="replay")
            emit(answer.completion.message.text)
            return answer
        missed = self._explain(asked)
        if self._recorder.mode == "replay":
            raise NotRecorded(
                str(missed or "nothing like this call is recorded here; --mode auto records it"),
                missed.cause if missed else "nothing recorded",
            )
        entry: Row = {"kind": "completion", "request": asked.recorded.fields, "repeat": asked.repeat, "at": asked.place}
        try:
            timed, joined = await self._recorder.flights.share(
                asked.shared, lambda: self._model.ask(asked.request, emit)
            )
        except _REFUSALS as refusal:
            told = {"error": type(refusal).__name__, "text": str(refusal).removeprefix(f"{refusal.model}: ")}
            refused = {**entry, "refusal": {**told, "model": refusal.model}, "seconds": 0.0}
            self._recorder.keep(asked.key, refused, asked.recorded)
            raise
        origin = "replay" if joined else "live"
        answer = Answer(completion=timed.result, seconds=timed.seconds, waited=timed.waited, origin=origin)
        if self._recorder.recordings is None:
            return answer
        entry |= {"completion": to_json(timed.result), "seconds": timed.seconds}
        try:
            kept = _answer(self._recorder.keep(asked.key, entry, asked.recorded), origin)
        except RecordingError as problem:
            return replace(answer, unrecorded=problem)
        return replace(kept, waited=timed.waited, missed=missed)

    async def embed(self, text: str) -> Embedded:
        """One query; raises NotRecorded as `complete` does, and the errors of the embedder."""
        assert self._embedder is not None, "an index that needs vectors comes with an embedder"
        embedder = self._embedder
        key = text_key("embedding", embedder.name, text, embedder.endpoint)
        row = self._recorder.find(key)
        if row is not None:
            return Embedded(vector=_unpacked(row["vector"]), seconds=row["seconds"], origin="replay")
        if self._recorder.mode == "replay":
            raise NotRecorded(f"the query {shorten(text)!r} was never embedded by {embedder.name}", "query embedding")
        timed, joined = await self._recorder.flights.share(key, lambda: embedder.ask(text))
        entry = {"kind": "embedding", "model": embedder.name, "endpoint": embedder.endpoint, "text": text}
        row = self._recorder.keep(key, {**entry, "vector": _packed(timed.result), "seconds": timed.seconds})
        return Embedded(
            vector=_unpacked(row["vector"]),
            seconds=row["seconds"],
            waited=timed.waited,
            origin="replay" if joined else "live",
        )

    async def fetch(self, kind: str, facts: Any, ask: Callable[[], Awaitable[Any]]) -> Fetched:
        """What `ask` brings, or brought when it was recorded; raises NotRecorded, and what `ask` raises.

        A ToolError of `ask` is an answer, too: the conversation went on from there, and a replay does. It is recorded
        beside what answers the same later, so that the next recording asks again.
        """
        key, failed = result_key(kind, facts), result_key(f"failed {kind}", facts)
        replaying = self._recorder.mode == "replay"
        row = self._recorder.find(key) or (self._recorder.find(failed) if replaying else None)
        if row is not None:
            return _fetched(row, "replay")
        if replaying:
            raise NotRecorded(f"no {kind} is recorded for {shorten(str(facts))}; --mode auto records it", kind)

        async def answer() -> Row:
            try:
                return {"value": await ask()}
            except ToolError as failure:
                return {"value": None, "error": str(failure)}

        timed, joined = await self._recorder.flights.share(key, lambda: Queue(None).run(answer))
        name, of = (failed, f"failed {kind}") if "error" in timed.result else (key, kind)
        entry = {"kind": "result", "of": of, "facts": facts, **timed.result, "seconds": timed.seconds}
        return _fetched(self._recorder.keep(name, entry), "replay" if joined else "live")

    def lasted(self, work: Any, seconds: float) -> tuple[float, str]:
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

    def _explain(self, asked: Asked) -> Explanation | None:
        nearest = self._recorder.nearest
        return nearest.explain(asked.request, asked.recorded.fields, asked.place) if nearest is not None else None


class KeptEmbedder:
    """Vectors of passages and of graded texts: nobody's latency, but without them a replay would need the weights."""

    def __init__(self, embedder: Embedder, endpoint: str, recorder: Recorder) -> None:
        self.name = embedder.name
        self._endpoint = endpoint
        self._embedder = embedder
        self._recorder = recorder

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 rows of unit length, shape (len(texts), dimensions); NotRecorded in a replay without them."""
        if self._recorder.recordings is None or not texts:
            return await self._embedder.embed(texts)
        keys = {text: text_key("vector", self.name, text, self._endpoint) for text in texts}
        rows = {text: self._recorder.find(key) for text, key in keys.items()}
        missing = [text for text, row in rows.items() if row is None]
        if missing and self._recorder.mode == "replay":
            raise NotRecorded(
                f"{len(missing)} texts were never embedded by {self.name} (the first: {shorten(missing[0])!r});"
                " --mode auto records them",
                "text embedding",
            )
        for text, vector in zip(missing, await self._embedder.embed(missing) if missing else (), strict=True):
            about = {"kind": "vector", "model": self.name, "endpoint": self._endpoint, "text": text}
            entry = {**about, "vector": _packed(vector)}
            rows[text] = self._recorder.keep(keys[text], entry)
        return np.stack([_unpacked(row["vector"]) for text in texts if (row := rows[text]) is not None])


def _answer(row: Row, origin: str) -> Answer:
    if "refusal" in row:
        told = row["refusal"]
        raise getattr(errors, told["error"])(told["text"], told["model"])
    return Answer(completion=Completion.from_json(row["completion"]), seconds=row["seconds"], origin=origin)


def _fetched(row: Row, origin: str) -> Fetched:
    return Fetched(value=row["value"], seconds=row["seconds"], origin=origin, error=row.get("error"))


def _packed(vector: np.ndarray) -> str:
    return base64.b64encode(pack(vector).tobytes()).decode("ascii")


def _unpacked(text: str) -> np.ndarray:
    return unpack(np.frombuffer(base64.b64decode(text), dtype="<f2"))
