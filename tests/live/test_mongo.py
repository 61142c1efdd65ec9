"""MongoDB over a server of its wire protocol: death and restart, writers at once, older documents."""

from __future__ import annotations

import asyncio
import uuid

import pymongo
import pytest

from agentlab.core.errors import MemoryUnavailable
from agentlab.memory import base, mongo
from support.memories import EMBEDDER, add, every_call, ids, texts
from support.mongo_server import MongoServer

pytestmark = pytest.mark.slow


async def test_dead_server_is_an_error_and_a_restart_restores_everything(tmp_path, monkeypatch, mongodb):
    running = MongoServer(str(tmp_path / "data"))
    patient = mongo.connect("restart", EMBEDDER, uri=running.uri)
    monkeypatch.setattr(mongo, "_TIMEOUT", 0.4)
    monkeypatch.setattr(base, "RETRY_SECONDS", 0.1)
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
        outcome: object = None
        for _ in range(50):
            (outcome,) = await asyncio.gather(texts(memory), return_exceptions=True)
            if not isinstance(outcome, MemoryUnavailable):
                break
            await asyncio.sleep(0.1)
        assert outcome == ["one thing"], "the memory that was cut off continues"
    finally:
        await patient.close()
        await memory.close()
        running.stop()


async def test_writer_waits_for_another_writer_only_as_long_as_needed(mongodb, monkeypatch):
    monkeypatch.setattr(mongo, "LOCK_SECONDS", 0.2)
    store = f"waiting-{uuid.uuid4().hex}"
    one, two = (mongo.connect(store, EMBEDDER, uri=mongodb) for _ in range(2))
    await add(one, "one thing", ids())
    with one._writers:
        assert await texts(two) == ["one thing"], "readers do not wait"
        with pytest.raises(MemoryUnavailable, match="could not be acquired"):
            await add(two, "another matter", ids())
    assert (await add(two, "another matter", ids())).is_new
    assert await texts(one) == ["one thing", "another matter"]
    await one.drop()
    await two.close()


async def test_facts_of_older_versions_precede_new_ones(mongodb):
    store = f"older-{uuid.uuid4().hex}"
    memory = mongo.connect(store, EMBEDDER, uri=mongodb)
    for text in ("one thing", "another matter"):
        await add(memory, text, ids())
    with pymongo.MongoClient(mongodb) as client:
        documents = client.get_default_database("agentlab")["agentlab_memory"]
        mine = {"owner": {"$regex": store}, "text": "another matter"}
        documents.update_one(mine, {"$set": {"number": 3_000_000}, "$unset": {"embedder": ""}})
    await add(memory, "a third case", ids())
    assert await texts(memory) == ["another matter", "one thing", "a third case"]
    await memory.drop()
