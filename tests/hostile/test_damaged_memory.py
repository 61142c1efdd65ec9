"""A damaged memory is one line, or unavailable for the turn, and never ends the process."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path

import pytest

from agentlab.core.errors import AgentlabError, MemoryUnavailable
from support.memories import NOW, Backend, add, ask, ids, texts, vector


def damage(file: Path, how: str) -> None:
    match how:
        case "empty":
            os.truncate(file, 0)
        case "half":
            os.truncate(file, file.stat().st_size // 2)
        case "random":
            file.write_bytes(os.urandom(file.stat().st_size))
        case "middle":
            content = bytearray(file.read_bytes())
            half = min(4096, len(content) // 2)
            content[half:] = os.urandom(len(content) - half)
            file.write_bytes(content)
        case "gone":
            file.unlink()
        case "folder":
            file.unlink()
            file.mkdir()
        case "pipe":
            file.unlink()
            os.mkfifo(file)
        case "link":
            file.unlink()
            file.symlink_to("/dev/zero")


DAMAGES = ["empty", "half", "random", "middle", "gone", "folder", "pipe", "link"]


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("when", ["before", "between"])
@pytest.mark.parametrize("name", ["memory.sqlite", "memory.sqlite-journal"])
async def test_sqlite(tmp_path, name, how, when):
    backend, new_id = Backend("sqlite", tmp_path, None), ids()
    memory = backend.open()
    for number in range(40):
        await add(memory, f"fact {number} " + "x" * 400, new_id, duplicate_threshold=None)
    if when == "before":
        await memory.close()
    damage(tmp_path / name, how)
    try:
        memory = backend.open() if when == "before" else memory
        for work in (texts(memory), add(memory, "new", new_id), ask(memory, "fact 1")):
            try:
                await work
            except MemoryUnavailable as error:
                assert "sqlite memory at" in str(error) and "\n" not in str(error)
    except AgentlabError as error:
        assert "memory.sqlite" in str(error) and "\n" not in str(error)
    await memory.close()


@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("name", ["memory.txt", "memory.vectors"])
async def test_textfile(tmp_path, name, how):
    backend, new_id = Backend("textfile", tmp_path, None), ids()
    memory = backend.open()
    for text in ("Ann lives in Rome", "Bob has two sisters"):
        await add(memory, text, new_id)
    await memory.close()
    damage(tmp_path / name, how)
    try:
        memory = backend.open()
        for work in (texts(memory), add(memory, "new", new_id), ask(memory, "Rome")):
            try:
                await work
            except MemoryUnavailable as error:
                assert "\n" not in str(error)
        await memory.close()
    except AgentlabError as error:
        assert "memory.txt" in str(error) and "\n" not in str(error)


async def test_damaged_schema_is_one_line_though_the_message_quotes_it(tmp_path):
    await Backend("sqlite", tmp_path, None).open().close()
    file = tmp_path / "memory.sqlite"
    file.write_bytes(file.read_bytes().replace(b"CREATE TABLE facts", b"CREATE T\xf9BLE facts"))
    with pytest.raises(AgentlabError, match=r"memory\.sqlite: cannot be opened as a memory") as raised:
        Backend("sqlite", tmp_path, None).open()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    "damage", ["created = 'soon'", "vector = x'00'", "text = 7, id = 7", "created = 3.5", "vector = ''"]
)
async def test_edited_fact_is_detected(tmp_path, damage):
    backend = Backend("sqlite", tmp_path, None)
    memory = backend.open()
    await add(memory, "Ann lives in Rome", ids())
    await add(memory, "Bob has two sisters", ids("other"))
    await memory.close()
    with sqlite3.connect(tmp_path / "memory.sqlite") as database:
        database.execute(f"UPDATE facts SET {damage} WHERE number = 1")
    database.close()
    memory = backend.open()
    try:
        await ask(memory, "Rome")
    except MemoryUnavailable as error:
        assert "a fact is damaged" in str(error)
    await memory.close()


@pytest.mark.parametrize("one, other", [("sqlite", "chroma"), ("textfile", "sqlite")])
async def test_the_files_of_another_backend_are_left_alone(tmp_path, one, other):
    memory = Backend(one, tmp_path, None).open()
    await add(memory, "Ann lives in Rome", ids())
    await memory.close()
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    memory = Backend(other, tmp_path, None).open()
    assert await texts(memory) == []
    await memory.close()
    assert all(file.read_bytes() == content for file, content in before.items())


async def filled_chroma(tmp_path: Path) -> Backend:
    """More facts than Chroma keeps in memory, so that its index is on disk."""
    backend, new_id = Backend("chroma", tmp_path, None), ids()
    memory = backend.open()
    lines = [f"fact {number}" for number in range(1200)]
    await memory.ingest(lines, [vector(text) for text in lines], created=[NOW] * len(lines), new_id=new_id)
    await memory.close()
    return backend


@pytest.mark.slow
@pytest.mark.parametrize(
    "name, how",
    [("chroma.sqlite3", "empty"), ("data_level0.bin", "random"), ("header.bin", "random"), ("length.bin", "pipe")],
)
async def test_chroma_before_it_is_opened(tmp_path, name, how):
    backend = await filled_chroma(tmp_path)
    (file,) = (tmp_path / "chroma").rglob(name)
    damage(file, how)
    memory = backend.open()
    for work in (texts(memory), ask(memory, "fact 1")):
        try:
            assert len(await work) in (1200, 3)
        except MemoryUnavailable as error:
            assert "chroma memory at" in str(error) and "\n" not in str(error)
    await memory.close()


async def test_chroma_between_two_operations(tmp_path):
    backend, new_id = Backend("chroma", tmp_path, None), ids()
    memory = backend.open()
    await add(memory, "Ann lives in Rome", new_id)
    damage(tmp_path / "chroma" / "chroma.sqlite3", "empty")
    for work in (texts(memory), add(memory, "new", new_id)):
        with pytest.raises(MemoryUnavailable, match=r"chroma\.sqlite3 was cut off; restore the folder from a copy"):
            await work
    await memory.close()


@pytest.mark.slow
async def test_chroma_is_checked_after_a_kill_and_continues(tmp_path):
    backend = Backend("chroma", tmp_path, None)
    memory = backend.open()
    await add(memory, "Ann lives in Rome", ids())
    await memory.close()
    (tmp_path / "chroma" / "agentlab.files").write_text('{"chroma')
    memory = backend.open()
    assert await texts(memory) == ["Ann lives in Rome"]
    await memory.close()
