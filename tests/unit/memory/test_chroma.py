"""Chroma: failing updates, folders of an older version, and a database changed by another program."""

from __future__ import annotations

import json

import pytest
from chromadb import Collection

from agentlab.core.errors import MemoryUnavailable
from support.memories import NOW, Backend, add, ask, ids, texts, vector


async def test_an_update_that_fails_leaves_the_fact_as_it_was(tmp_path, monkeypatch):
    backend = Backend("chroma", tmp_path, None)
    memory, new_id = backend.open(), ids()
    await add(memory, "Ann lives in Rome", new_id)
    text = "Ann lives in Lyon"

    def fail(self: object, **record: object) -> None:
        raise RuntimeError("the disk is full")

    monkeypatch.setattr(Collection, "update", fail)
    with pytest.raises(MemoryUnavailable, match="the disk is full"):
        await memory.update("memory_1", text, vector(text), created=NOW, new_id=new_id)
    monkeypatch.undo()
    assert await texts(memory) == ["Ann lives in Rome"]
    assert await memory.update("memory_1", text, vector(text), created=NOW, new_id=new_id) is not None
    assert await texts(memory) == ["Ann lives in Lyon"]
    await memory.close()


async def test_a_folder_of_an_older_version_is_read(tmp_path):
    backend = Backend("chroma", tmp_path, None)
    memory, new_id = backend.open(), ids()
    await add(memory, "one thing", new_id)
    await memory.close()
    about = tmp_path / "chroma" / "agentlab.json"
    about.write_text(json.dumps({"embedder": "hashing/hashing-64", "writes": 1, "moving": None}))
    memory = backend.open()
    assert await ask(memory, "one thing") == ["one thing"]
    assert (await add(memory, "another matter", new_id)).is_new
    await memory.close()


async def test_two_memories_in_one_folder_can_be_closed(tmp_path):
    backend = Backend("chroma", tmp_path, None)
    one, two = backend.open(), backend.open("bob")
    await add(one, "one thing", ids())
    await one.close()
    await one.close()
    await add(two, "another matter", ids())
    assert await texts(two) == ["another matter"]
    await two.close()
    assert await texts(backend.open()) == ["one thing"]
    await backend.opened[-1].close()
