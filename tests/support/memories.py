"""Memory backends of every kind, opened here and closed after the test, with common operations."""

from __future__ import annotations

import asyncio
import itertools
import os
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pymongo

from agentlab.core.protocols import Memory
from agentlab.memory import chroma, mongo, sqlite, textfile
from agentlab.models.embedders import hashing

EMBEDDER = hashing.connect("hashing-64")
NOW = datetime(2026, 1, 5, 10, 30, 0, 123456)
REAL_URI = os.environ.get("MONGODB_URI")
FILES = ["chroma", "sqlite", "textfile"]
BACKENDS = [*FILES, "mongo", *(["mongo_uri"] if REAL_URI else [])]


def vector(text: str) -> Any:
    """Return the vector of a text without an event loop; the hashing embedder never waits."""
    try:
        EMBEDDER.embed([text]).send(None)
    except StopIteration as done:
        return done.value[0]
    raise AssertionError("the embedder waited")


def ids(prefix: str = "memory") -> Callable[[], str]:
    counter = itertools.count(1)
    return lambda: f"{prefix}_{next(counter)}"


async def add(memory: Memory, text: str, new_id: Callable[[], str], **options: Any) -> Any:
    return await memory.add(text, vector(text), created=NOW, new_id=new_id, **options)


async def ask(memory: Memory, text: str, **options: Any) -> list[str]:
    return [fact.text for fact in await memory.search(text, vector(text), **options)]


async def texts(memory: Memory) -> list[str]:
    return [fact.text for fact in await memory.facts()]


class Backend:
    """Opens memories of one kind at one location, and closes them at the end."""

    def __init__(self, name: str, folder: Path, uri: str | None) -> None:
        self.name = name
        self.uri = REAL_URI if name == "mongo_uri" else uri
        self.location: Any = f"test-{uuid.uuid4().hex}" if "mongo" in name else folder
        self.opened: list[Memory] = []

    def open(self, user: str = "ann", embedder: Any = EMBEDDER) -> Memory:
        memory: Any
        if "mongo" in self.name:
            memory = mongo.connect(self.location, embedder, user=user, uri=self.uri)
        else:
            memory = {"chroma": chroma, "sqlite": sqlite, "textfile": textfile}[self.name].connect(
                self.location, embedder, user=user
            )
        self.opened.append(memory)
        return memory

    def close(self) -> None:
        for memory in self.opened:
            asyncio.run(memory.close())
        if "mongo" in self.name and self.uri:
            with pymongo.MongoClient(self.uri) as client:
                database = client.get_default_database("agentlab")
                mine = {"$regex": str(self.location)}
                database["agentlab_memory"].delete_many({"owner": mine})


async def every_call(memory: Memory) -> list[BaseException | object]:
    calls = [
        lambda: ask(memory, "one thing"),
        lambda: add(memory, "more", ids()),
        lambda: memory.update("memory_1", "x", vector("x"), created=NOW, new_id=ids()),
        lambda: memory.delete("memory_1"),
        lambda: memory.get("memory_1"),
        lambda: memory.facts(),
        lambda: memory.clear(),
        lambda: memory.snapshot(),
    ]
    return [(await asyncio.gather(call(), return_exceptions=True))[0] for call in calls]
