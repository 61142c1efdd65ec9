"""The text file: it reads like text, can be edited, older files are read, and damage is named."""

from __future__ import annotations

import pytest

from agentlab.core.errors import ConfigError, MemoryUnavailable
from support.memories import Backend, add, ask, every_call, ids, texts


async def test_the_text_file_reads_like_text_and_can_be_edited(tmp_path):
    backend = Backend("textfile", tmp_path, None)
    memory, new_id = backend.open(), ids()
    await add(memory, "Ann plays the oboe.\n[end]\n\n\tSince \x07 1999.", new_id)
    await add(backend.open("bob"), "Bob plays the tuba.", new_id)
    path = tmp_path / "memory.txt"
    written = path.read_text()
    assert written == (
        "Long-term memory of agentlab, embedded with hashing/hashing-64\n"
        '<MEMORY module="memory" user="ann" id="memory_1" time="2026-01-05T10:30:00.123456">\n'
        "Ann plays the oboe.\n[end]\n\n\tSince &#x7; 1999.\n</MEMORY>\n"
        '<MEMORY module="memory" user="bob" id="memory_2" time="2026-01-05T10:30:00.123456">\n'
        "Bob plays the tuba.\n</MEMORY>\n"
    )
    path.write_text(written.replace("oboe", "cello").replace("\n", "\r\n").rstrip(), newline="")
    assert await ask(memory, "plays the cello", min_score=0.3) == ["Ann plays the cello.\n[end]\n\n\tSince \x07 1999."]
    await add(memory, "Ann sings.", new_id)
    (tmp_path / "memory.vectors").unlink()
    memory = backend.open()
    assert await ask(memory, "who sings", top_k=1) == ["Ann sings."] and await texts(backend.open("bob")) != []
    (tmp_path / "memory.vectors").write_bytes(b"\x40\0\0\0cut off")
    await add(memory, "Ann dances.", new_id)
    assert await ask(backend.open(), "dances", top_k=1) == ["Ann dances."]


async def test_a_fact_cut_off_by_a_crash_was_never_stored(tmp_path):
    backend = Backend("textfile", tmp_path, None)
    memory = backend.open()
    await add(memory, "one thing", ids())
    path = tmp_path / "memory.txt"
    whole = path.read_bytes()
    await add(memory, "a second thing, é", ids())
    longer = path.read_bytes()
    for cut in range(len(whole), len(longer) - 1):
        path.write_bytes(longer[:cut])
        assert await texts(backend.open()) == ["one thing"]
    await add(backend.open(), "instead", ids())
    assert await texts(memory) == ["one thing", "instead"] == await texts(backend.open())


@pytest.mark.parametrize(
    ("old", "new"), [("2026-01-05T", "yesterday"), ('id="memory_1"', 'id=""'), ("memory_2", "memory_1")]
)
async def test_a_damaged_fact_of_the_text_file_is_named_and_nothing_is_overwritten(tmp_path, old, new):
    backend = Backend("textfile", tmp_path, None)
    memory = backend.open()
    for text in ("one thing", "another matter"):
        await add(memory, text, ids())
    path = tmp_path / "memory.txt"
    damaged = path.read_text().replace(old, new, 1)
    path.write_text(damaged)
    for result in await every_call(memory):
        assert type(result) is MemoryUnavailable
    with pytest.raises(
        ConfigError, match=r"the fact '(one thing|another matter)' has no unique id or no readable time"
    ):
        backend.open()
    assert path.read_text() == damaged


@pytest.mark.parametrize(("old", "new"), [("</MEMORY>", "MEMORY"), ("<MEMORY", "MEMORY")])
async def test_text_that_is_no_entry_stays_as_a_note(tmp_path, old, new):
    backend = Backend("textfile", tmp_path, None)
    memory = backend.open()
    for text in ("one thing", "another matter", "a third case"):
        await add(memory, text, ids())
    path = tmp_path / "memory.txt"
    path.write_text(path.read_text().replace(old, new, 1))
    assert await texts(memory) == ["another matter", "a third case"]
    assert await memory.delete("memory_3") and "\none thing\n" in path.read_text()
