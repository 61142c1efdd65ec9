"""Records and replays the calls of a lab: its mode and its recordings.

A mode is `live` (nothing is recorded), `record` (everything is asked and written down), `replay` (nothing is asked) or
`auto` (what is there is replayed, the rest asked and written down). While a run is recorded, a request that another
flow made a minute ago is not made again, so that the run gives the numbers that its replay gives.

A recorded chat always asks the model. Its recordings serve `/save` and replays, and never answer the chat itself.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from agentlab.core.constants import Mode
from agentlab.core.errors import NotRecorded
from agentlab.core.events import shorten
from agentlab.core.protocols import Embedder
from agentlab.wire.explain import MissExplainer
from agentlab.wire.keys import NormalisedRequest, Row, text_key
from agentlab.wire.queue import SingleFlight
from agentlab.wire.recording_schema import encode_vector, entry_of
from agentlab.wire.recordings import Recordings


class Recorder:
    """The mode of a lab and what is recorded; without `recordings` everything is live."""

    def __init__(self, mode: Mode = "live", recordings: Recordings | None = None, *, always_asks: bool = False) -> None:
        self.mode = mode
        self.recordings = recordings
        self.always_asks = always_asks
        self.single_flight = SingleFlight()

    @cached_property
    def miss_explainer(self) -> MissExplainer | None:
        # Made at the first miss, from what was there before: a first recording has nothing to be compared with.
        return MissExplainer(self.recordings) if self.recordings is not None and self.mode != "record" else None

    def find(self, key: str) -> Any:
        """The entry (see `recording_schema`) of a key; None where nothing is recorded."""
        return self.recordings.find(key) if self.recordings is not None else None

    def next_occurrence(self, keys_of: Callable[[int], Sequence[str]]) -> int:
        """Return how often a chat was answered the same request, in all its sittings; `keys_of` gives the keys."""

        def is_answered(key: str) -> bool:
            entry = self.find(key)
            return entry is not None and getattr(entry, "refusal", None) is None

        return next(n for n in itertools.count() if not any(map(is_answered, keys_of(n))))

    def record(self, key: str, row: Row, request: NormalisedRequest | None = None) -> Any:
        """Write `row` down; returns its entry, or the one that another process recorded under `key` meanwhile."""
        if self.recordings is None or self.mode == "replay":
            return entry_of({"key": key, **row})
        return self.recordings.add(key, row, request.parts if request else None)


@dataclass(frozen=True)
class RecordedEmbedder:
    """Vectors of passages and of graded texts: nobody's latency, but without them a replay would need the weights."""

    embedder: Embedder
    endpoint: str
    recorder: Recorder

    @property
    def name(self) -> str:
        return self.embedder.name

    @property
    def dimensions(self) -> int:
        return self.embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> np.ndarray:
        """float32 rows of unit length, shape (len(texts), dimensions); NotRecorded in a replay without them."""
        if self.recorder.recordings is None or not texts:
            return await self.embedder.embed(texts)
        keys = {text: text_key("vector", self.name, text, self.endpoint) for text in texts}
        found = {text: self.recorder.find(key) for text, key in keys.items()}
        missing = [text for text, entry in found.items() if entry is None]
        if missing and self.recorder.mode == "replay":
            raise NotRecorded(
                f"{len(missing)} texts were never embedded by {self.name} (the first: {shorten(missing[0])!r});"
                " --mode auto records them",
                "text embedding",
            )
        about = {"kind": "vector", "model": self.name, "endpoint": self.endpoint}
        for text, vector in zip(missing, await self.embedder.embed(missing) if missing else (), strict=True):
            found[text] = self.recorder.record(keys[text], {**about, "text": text, "vector": encode_vector(vector)})
        return np.stack([found[text].array() for text in texts])
