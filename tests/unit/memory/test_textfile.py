"""The text file: it reads like text, can be edited, and damage is named by its line."""

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
        "Memory of agentlab, embedded with hashing/hashing-64\n\n"
        '[fact "memory_1" of "ann" at 2026-01-05T10:30:00.123456]\n'
        "> Ann plays the oboe.\n> [end]\n>\n> \tSince \\x07 1999.\n[end]\n\n"
        '[fact "memory_2" of "bob" at 2026-01-05T10:30:00.123456]\n> Bob plays the tuba.\n[end]\n'
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
    for cut in range(len(whole), len(longer) - 5):
        path.write_bytes(longer[:cut])
        assert await texts(backend.open()) == ["one thing"]
    await add(backend.open(), "instead", ids())
    assert await texts(memory) == ["one thing", "instead"] == await texts(backend.open())


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("[end]", "end", 5),
        ("> one", "one", 4),
        ("2026-01-05T", "yesterday", 3),
        ('"memory_1"', "memory_1", 3),
        ("memory_2", "memory_1", 7),
        ("embedded with", "and", 1),
    ],
)
async def test_damage_to_the_text_file_is_named_by_line_and_nothing_is_overwritten(tmp_path, old, new, line):
    backend = Backend("textfile", tmp_path, None)
    memory = backend.open()
    for text in ("one thing", "another matter"):
        await add(memory, text, ids())
    path = tmp_path / "memory.txt"
    damaged = path.read_text().replace(old, new, 1)
    path.write_text(damaged)
    for result in await every_call(memory):
        assert type(result) is MemoryUnavailable
    with pytest.raises(ConfigError, match=f"line {line}:"):
        backend.open()
    assert path.read_text() == damaged
