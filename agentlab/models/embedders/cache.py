"""Vectors on disk, by content: a text is embedded once per embedder, by whichever process comes first.

    embedder = CachedEmbedder(local.connect("all-minilm-l6-v2"), home() / "embeddings")

The key is the SHA-256 of the embedder's name and the text, the value a row of float16, all in one SQLite file. Each
call opens its own connection (0.3 ms), so threads, processes and forks share nothing but the file. Deleting the folder
is always safe.
"""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import numpy as np

from agentlab.core.errors import ConfigError
from agentlab.core.protocols import Embedder
from agentlab.core.vectors import Vectors, pack, unpack

_WAIT = 30.0
"""Seconds to wait for another process that is writing."""


class CachedEmbedder:
    """`embedder` with a memory on disk; it has the same name, because it gives the same vectors."""

    def __init__(self, embedder: Embedder, folder: Path) -> None:
        self.name = embedder.name
        self._embedder = embedder
        self._path = folder / "embeddings.sqlite"

    @property
    def dimensions(self) -> int:
        return self._embedder.dimensions

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """Return float32 rows of unit length, shape (len(texts), dimensions); only texts never seen are embedded."""
        keys = [self._key(text) for text in texts]
        found = await asyncio.to_thread(self._read, list(dict.fromkeys(keys)))
        missing = {key: text for key, text in zip(keys, texts, strict=True) if key not in found}
        if missing:
            fresh = await self._embedder.embed(list(missing.values()))
            new = dict(zip(missing, fresh, strict=True))
            await asyncio.to_thread(self._write, new)
            found |= new
        if not keys:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        return np.stack([found[key] for key in keys])

    def _key(self, text: str) -> bytes:
        return hashlib.sha256(f"{self.name}\0{text}".encode("utf-8", "surrogatepass")).digest()

    @contextmanager
    def _database(self) -> Iterator[sqlite3.Connection]:
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with closing(sqlite3.connect(self._path, timeout=_WAIT)) as database, database:
                # SQLite does not wait here for whoever makes the file at the same moment; that one sets the mode.
                with suppress(sqlite3.OperationalError):
                    database.execute("PRAGMA journal_mode=WAL")
                database.execute("PRAGMA synchronous=NORMAL")
                database.execute("CREATE TABLE IF NOT EXISTS vectors (key BLOB PRIMARY KEY, vector BLOB) WITHOUT ROWID")
                yield database
        except (OSError, sqlite3.Error) as error:
            raise ConfigError(
                f"{self._path}: the embedding cache cannot be used ({error}); delete it or mend its folder"
            ) from error

    def _read(self, keys: Sequence[bytes]) -> dict[bytes, Vectors]:
        found: dict[bytes, Vectors] = {}
        with self._database() as database:
            for key in keys:
                row = database.execute("SELECT vector FROM vectors WHERE key = ?", (key,)).fetchone()
                if row is not None:
                    found[key] = unpack(np.frombuffer(row[0], dtype="<f2"))
        return found

    def _write(self, vectors: Mapping[bytes, Vectors]) -> None:
        rows = [(key, pack(vector).tobytes()) for key, vector in vectors.items()]
        with self._database() as database:
            database.executemany("INSERT OR IGNORE INTO vectors VALUES (?, ?)", rows)
