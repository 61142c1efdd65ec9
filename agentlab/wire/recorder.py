"""What a lab records and replays: its mode and its recordings.

A mode is `live` (nothing is recorded), `record` (everything is asked and written down), `replay` (nothing is asked) or
`auto` (what is there is replayed, the rest asked and written down). While a run is recorded, a request that another
flow made a minute ago is not made again, so that the run gives the numbers that its replay gives.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from functools import cached_property

import numpy as np

from agentlab.core.errors import NotRecorded
from agentlab.core.events import shorten
from agentlab.core.names import Mode
from agentlab.core.protocols import Embedder
from agentlab.core.vectors import pack, unpack
from agentlab.wire.explain import Nearest
from agentlab.wire.keys import RecordedRequest, Row, text_key
from agentlab.wire.queue import Flights
from agentlab.wire.recordings import Recordings


class Recorder:
    """The mode of a lab and what is recorded; without `recordings` everything is live."""

    def __init__(self, mode: Mode = "live", recordings: Recordings | None = None) -> None:
        self.mode = mode
        self.recordings = recordings
        self.flights = Flights()

    @cached_property
    def nearest(self) -> Nearest | None:
        # Made at the first miss, from what was there before: a first recording has nothing to be compared with.
        return Nearest(self.recordings) if self.recordings is not None and self.mode != "record" else None

    def find(self, key: str) -> Row | None:
        return self.recordings.find(key) if self.recordings is not None else None

    def keep(self, key: str, row: Row, request: RecordedRequest | None = None) -> Row:
        """Write `row` down; returns it, or what another process recorded under `key` meanwhile."""
        if self.recordings is None or self.mode == "replay":
            return row
        return self.recordings.add(key, row, request.parts if request else None)


class RecordedEmbedder:
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
            entry = {**about, "vector": packed(vector)}
            rows[text] = self._recorder.keep(keys[text], entry)
        return np.stack([unpacked(row["vector"]) for text in texts if (row := rows[text]) is not None])


def packed(vector: np.ndarray) -> str:
    """A vector as recordings keep it: base64 of little-endian float16."""
    return base64.b64encode(pack(vector).tobytes()).decode("ascii")


def unpacked(text: str) -> np.ndarray:
    return unpack(np.frombuffer(base64.b64decode(text), dtype="<f2"))
