"""MongoDB over a server of its wire protocol: death and restart, leases, vector search."""

from __future__ import annotations

import asyncio
import time
import uuid
from typing import Any

import pymongo
import pytest

from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.memory import mongo
from support.memories import EMBEDDER, LateIndex, add, every_call, ids, texts
from support.mongo_server import MongoServer

pytestmark = pytest.mark.slow


async def test_a_server_that_dies_is_an_error_and_after_a_restart_everything_is_there(tmp_path, monkeypatch, mongodb):
    running = MongoServer(str(tmp_path / "data"))
    patient = mongo.connect("restart", EMBEDDER, uri=running.uri)
    monkeypatch.setattr(mongo, "_TIMEOUT", 0.4)
    memory = mongo.connect("restart", EMBEDDER, uri=running.uri)
    try:
        await add(patient, "one thing", ids())
        running.process.kill()
        running.process.wait(30)
        for result in await every_call(memory):
            assert type(result) is MemoryUnavailable and "\n" not in str(result) and len(str(result)) < 450
        running.start()
        assert await texts(patient) == ["one thing"]
        # A busy machine may need more than .4 s for the first answer.
        found: object = None
        for _ in range(50):
            (found,) = await asyncio.gather(texts(memory), return_exceptions=True)
            if not isinstance(found, MemoryUnavailable):
                break
        assert found == ["one thing"], "the memory that was cut off goes on"
    finally:
        await patient.close()
        await memory.close()
        running.stop()


async def test_the_lease_of_a_dead_writer_runs_out(mongodb):
    memory = mongo.connect(f"lease-{uuid.uuid4().hex}", EMBEDDER, uri=mongodb)
    await add(memory, "one thing", ids())
    began = time.monotonic()
    memory._turns.update_one({"_id": memory._owner}, {"$set": {"holder": "dead", "until": time.time() + 1.0}})
    assert await texts(memory) == ["one thing"], "readers do not wait"
    assert (await add(memory, "another matter", ids())).is_new
    assert time.monotonic() - began > 0.9
    memory._documents.delete_many({})
    memory._turns.delete_many({})
    with pytest.raises(MemoryUnavailable, match="gone"):
        await memory.facts()
    with pytest.raises(MemoryUnavailable, match="gone"):
        await add(memory, "more", ids())
    await memory.close()


async def test_vector_search_is_taken_where_it_is_and_missed_where_it_is_demanded(mongodb, monkeypatch):
    plain = mongo.connect("none", EMBEDDER, uri=mongodb, vector_search=True)
    with pytest.raises(ConfigError, match="no vector search"):
        await plain.facts()
    await plain.close()
    made: list[Any] = []

    class Building(LateIndex):
        def list_search_indexes(self, name: str) -> list[dict[str, Any]]:
            return [{"name": name, "queryable": False}] if made else []

        def create_search_index(self, model: Any) -> None:
            made.append(model.document)

    for _ in range(2):
        memory: Any = mongo.connect("building", EMBEDDER, uri=mongodb)
        memory._documents = Building(memory._documents)
        assert await memory.facts() == () and memory._index is None
        await memory.close()
    assert [index["name"] for index in made] == ["agentlab_memory_64"]
    monkeypatch.setattr(mongo, "_LOOK", 0.0)
    memory = mongo.connect("building", EMBEDDER, uri=mongodb)
    memory._documents = Building(memory._documents)
    await memory.facts()
    memory._documents = LateIndex(memory._documents._documents)
    await memory.facts()
    assert memory._index == "agentlab_memory_64", "taken as soon as it is ready"
    await memory.drop()
    with pymongo.MongoClient(mongodb) as client:
        turns = client.get_default_database("agentlab")["agentlab_memory_turns"]
        assert not list(turns.find({"_id": {"$regex": "building"}})), "nothing is left of it"
    assert made[0]["definition"]["fields"][0]["numDimensions"] == 64 and made[0]["type"] == "vectorSearch"
