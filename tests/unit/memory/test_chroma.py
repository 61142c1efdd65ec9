"""Chroma: updates that a crash cut short, and copies that take their folder along."""

from __future__ import annotations

from typing import Any

from agentlab.memory import chroma
from support.memories import NOW, Backend, add, ids, texts, vector


async def test_chroma_finishes_an_update_that_a_crash_cut_short(tmp_path, monkeypatch):
    backend = Backend("chroma", tmp_path, None)
    memory, new_id = backend.open(), ids()
    await add(memory, "Ann lives in Rome", new_id)
    monkeypatch.setattr(chroma._Store, "settle", lambda self: None)
    collection = memory._store.collection(memory._collection)
    monkeypatch.setattr(type(collection), "delete", lambda self, **_: None)
    await memory.update("memory_1", "Ann lives in Lyon", vector("Ann lives in Lyon"), created=NOW, new_id=new_id)
    monkeypatch.undo()
    assert await texts(memory) == ["Ann lives in Lyon"]
    assert await texts(memory) == ["Ann lives in Lyon"]
    await memory.close()


async def test_a_copy_of_chroma_takes_its_folder_with_it(tmp_path):
    memory = Backend("chroma", tmp_path, None).open()
    await add(memory, "one thing", ids())
    copy: Any = await memory.snapshot()
    folder = copy._store.folder
    assert folder.exists()
    await copy.close()
    await copy.close()
    assert not folder.parent.exists()
    await memory.close()
    assert not chroma._Store._all
