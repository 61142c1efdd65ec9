"""Records and replays the calls of a lab: its mode and its recordings.

The mode is `live` (record nothing), `record` (call the model and record), `replay` (only look up) or `auto` (look up,
else call and record). A recording run looks up its own recordings, so its numbers are those of its replay.

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
    """Mode and recordings of a lab; without `recordings` every call is live."""

    def __init__(self, mode: Mode = "live", recordings: Recordings | None = None, *, always_asks: bool = False) -> None:
        self.mode = mode
        self.recordings = recordings
        self.always_asks = always_asks
        self.former_max_tokens: int | None = None
        """Token limit of older versions: a request that was recorded with it is found as well."""
        self.single_flight = SingleFlight()
        self._endpoints: dict[tuple[str, str], str] = {}

    def endpoint_of(self, name: str, endpoint: str) -> str:
        """Return the kind of server of a model's calls; a replay reads it from the recordings, without an address."""
        if self.recordings is None or self.mode != "replay":
            return endpoint
        if (name, endpoint) not in self._endpoints:
            self._endpoints[name, endpoint] = self.recordings.endpoint_of(name, endpoint)
        return self._endpoints[name, endpoint]

    @cached_property
    def miss_explainer(self) -> MissExplainer | None:
        # Created at the first miss, from the recordings before the run; a first recording has none to compare with.
        return MissExplainer(self.recordings) if self.recordings is not None and self.mode != "record" else None

    def look_up(self, key: str) -> Any:
        """Return the entry of a key (see `recording_schema`); None if there is none."""
        return self.recordings.look_up(key) if self.recordings is not None else None

    def next_occurrence(self, keys_of: Callable[[int], Sequence[str]]) -> int:
        """Return the number of recorded completions of the same request in a chat; `keys_of(n)` returns the keys."""

        def is_answered(key: str) -> bool:
            entry = self.look_up(key)
            return entry is not None and getattr(entry, "refusal", None) is None

        return next(n for n in itertools.count() if not any(map(is_answered, keys_of(n))))

    def record(self, key: str, row: Row, request: NormalisedRequest | None = None) -> Any:
        """Record `row` and return its entry, or the entry that another process recorded first under `key`."""
        if self.recordings is None or self.mode == "replay":
            return entry_of({"key": key, **row})
        return self.recordings.add(key, row, request.parts if request else None)


@dataclass(frozen=True)
class RecordedEmbedder:
    """Records vectors of passages and graded texts, so that a replay needs no weights; they add no latency."""

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
        """Return float32 rows of unit length, shape (len(texts), dimensions).

        Raises NotRecorded in a replay without recordings of all texts.
        """
        if self.recorder.recordings is None or not texts:
            return await self.embedder.embed(texts)
        endpoint = self.recorder.endpoint_of(self.name, self.endpoint)
        keys = {text: text_key("vector", self.name, text, endpoint) for text in texts}
        entries = {text: self.recorder.look_up(key) for text, key in keys.items()}
        missing = [text for text, entry in entries.items() if entry is None]
        if missing and self.recorder.mode == "replay":
            raise NotRecorded(
                f"{len(missing)} texts were never embedded by {self.name} (the first: {shorten(missing[0])!r});"
                " --mode auto records them",
                "text embedding",
            )
        about = {"kind": "vector", "model": self.name, "endpoint": endpoint}
        for text, vector in zip(missing, await self.embedder.embed(missing) if missing else (), strict=True):
            entries[text] = self.recorder.record(keys[text], {**about, "text": text, "vector": encode_vector(vector)})
        return np.stack([entries[text].array() for text in texts])
