"""A file that an older version wrote."""

from __future__ import annotations

import sqlite3

from agentlab.memory import sqlite
from support.memories import EMBEDDER, NOW, add, ids, texts, vector


async def test_file_without_speakers_opens_and_accepts_facts(tmp_path):
    old = sqlite3.connect(tmp_path / "memory.sqlite")
    with old:
        old.executescript(
            "CREATE TABLE facts (number INTEGER PRIMARY KEY AUTOINCREMENT, user TEXT NOT NULL, id TEXT NOT NULL,"
            " text TEXT NOT NULL, created TEXT NOT NULL, vector BLOB NOT NULL, UNIQUE (user, id));"
            "CREATE TABLE about (one INTEGER PRIMARY KEY CHECK (one = 1), embedder TEXT NOT NULL);"
        )
        old.execute("INSERT INTO about VALUES (1, ?)", (EMBEDDER.name,))
        row = ("ann", "fact_1", "likes tea", NOW.isoformat(), vector("likes tea").astype("<f4").tobytes())
        old.execute("INSERT INTO facts (user, id, text, created, vector) VALUES (?, ?, ?, ?, ?)", row)
    old.close()
    memory = sqlite.connect(tmp_path, EMBEDDER, user="ann")
    await add(memory, "owns a boat", ids(), about="Bo")
    assert await texts(memory) == ["likes tea", "owns a boat"]
    assert [fact.about for fact in await memory.facts()] == ["", "Bo"]
    await memory.close()
