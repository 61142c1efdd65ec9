"""A store on disk that disappears or is damaged: an error, and no lost or overwritten fact."""

from __future__ import annotations

import shutil

import pytest

from agentlab.core.errors import ConfigError, MemoryUnavailable
from support.memories import FILES, Backend, add, every_call, ids, texts


@pytest.mark.parametrize("name", FILES)
async def test_files_that_vanish_are_an_error_and_come_back_as_they_were(name, tmp_path):
    backend = Backend(name, tmp_path / "state", None)
    memory = backend.open()
    await add(memory, "one thing", ids())
    (tmp_path / "state").rename(tmp_path / "away")
    for result in await every_call(memory):
        assert type(result) is MemoryUnavailable and str(result).startswith(f"the {name} memory at {tmp_path}")
    assert not (tmp_path / "state").exists(), "nothing is restarted where a memory was"
    (tmp_path / "away").rename(tmp_path / "state")
    assert await texts(memory) == ["one thing"]
    assert (await add(memory, "more", ids())).is_new
    await memory.close()
    assert await texts(backend.open()) == ["one thing", "more"]
    await backend.opened[-1].close()


@pytest.mark.parametrize("name", FILES)
async def test_a_folder_that_is_emptied_is_not_taken_for_an_empty_memory(name, tmp_path):
    memory = Backend(name, tmp_path / "state", None).open()
    await add(memory, "one thing", ids())
    shutil.rmtree(tmp_path / "state")
    (tmp_path / "state" / "chroma").mkdir(parents=True)
    assert {type(result) for result in await every_call(memory)} == {MemoryUnavailable}
    await memory.close()


@pytest.mark.parametrize(
    ("name", "file"), [("sqlite", "memory.sqlite"), ("textfile", "memory.txt"), ("chroma", "chroma/agentlab.json")]
)
@pytest.mark.parametrize("content", [b"\x00\xffnot a memory\n" * 300, b"Memory of agentlab, embedded with\xff"])
def test_a_file_of_something_else_is_refused_and_left_alone(name, file, content, tmp_path):
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="cannot be opened as a memory") as refusal:
        Backend(name, tmp_path, None).open()
    assert "\n" not in str(refusal.value) and path.read_bytes() == content
