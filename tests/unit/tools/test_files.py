"""Reading and writing files: inside the workspace, whole or not at all, and nowhere else by any path or link."""

from __future__ import annotations

import asyncio
import gc
import os
import stat
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentlab.tools.files import WORKSPACE, read_file, write_file
from support.tool_sessions import call, session_with
from support.workspaces import files


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace beside a folder with a secret, and links of every kind."""
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.txt").write_text("SECRET")
    folder = tmp_path / "workspace"
    (folder / "sub").mkdir(parents=True)
    (folder / "sub" / "in.txt").write_text("inside")
    (folder / "link_out").symlink_to(tmp_path / "outside")
    (folder / "link_secret").symlink_to(tmp_path / "outside" / "secret.txt")
    (folder / "link_in").symlink_to("sub")
    (folder / "link_loop").symlink_to("link_loop")
    (folder / "link_nowhere").symlink_to(tmp_path / "outside" / "new.txt")
    (folder / "link_device").symlink_to("/dev/zero")
    os.mkfifo(folder / "pipe")
    return folder


async def test_a_file_is_written_read_and_overwritten_and_folders_are_made(workspace):
    session = files(workspace)
    assert await call(session, "write_file", file_path="a/b/c.txt", content="one\r\nzwei é\n") == "Written: a/b/c.txt"
    assert (workspace / "a" / "b" / "c.txt").read_bytes() == "one\r\nzwei é\n".encode()
    assert await call(session, "read_file", file_path="a/b/c.txt") == "one\r\nzwei é\n"
    assert await call(session, "write_file", file_path="a/b/c.txt", content="2") == "Written: a/b/c.txt"
    assert await call(session, "read_file", file_path=str(workspace / "a/b/c.txt")) == "2"
    assert await call(session, "read_file", file_path="./link_in//in.txt") == "inside"
    assert await call(session, "write_file", file_path="link_in/in.txt", content="") == "Written: link_in/in.txt"
    assert await call(session, "read_file", file_path="sub/in.txt") == "(The file is empty.)"
    assert sorted(path.name for path in (workspace / "a" / "b").iterdir()) == ["c.txt"], "nothing is left beside it"


OUTSIDE = [
    "../outside/secret.txt",
    "sub/../../outside/secret.txt",
    "sub/../sub/in.txt",
    "..",
    "/etc/passwd",
    "/dev/zero",
    "/proc/self/environ",
    "/",
    "//etc/passwd",
    "",
    ".",
    "link_out/secret.txt",
    "link_out/new/deep.txt",
    "link_out",
    "link_secret",
    "link_nowhere",
    "link_device",
    "link_loop",
    "link_loop/x",
    "pipe",
    "pipe/x",
    "sub",
    "sub/",
    "a\0b",
    "\ud800",
    "x" * 300,
    "x/" * 3000 + "y",
    "x/" * 32 + "y",
]


@pytest.mark.parametrize("path", OUTSIDE)
async def test_both_tools_refuse_paths_outside_the_workspace(workspace, path):
    session = files(workspace)
    for text in (
        await call(session, "read_file", file_path=path),
        await call(session, "write_file", file_path=path, content="changed"),
    ):
        assert text.startswith(("Error: read_file: file_path: ", "Error: write_file: file_path: ")), text
        assert "SECRET" not in text and "\n" not in text and len(text) < 500
    outside = workspace.parent / "outside"
    assert [(file.name, file.read_text()) for file in outside.iterdir()] == [("secret.txt", "SECRET")]
    assert (workspace / "sub" / "in.txt").read_text() != "changed"


async def test_refusal_has_a_reason(workspace):
    session = files(workspace)
    for path, reason in {
        "../x": "'../x' is refused: a path must not contain '..'",
        "/etc/passwd": "'/etc/passwd' is outside the workspace; use a path relative to it",
        "link_out/x": "'link_out/x' is outside the workspace; use a path relative to it",
        "sub": "'sub' is a folder, not a file",
        "pipe": "'pipe' is a device, a pipe or a link, not a file",
        ".": "'.' is the workspace itself, not a file",
        "gone.txt": "there is no file 'gone.txt' in the workspace",
        "a\0": "'a\\x00' cannot be used: is no file name",
    }.items():
        assert await call(session, "read_file", file_path=path) == f"Error: read_file: file_path: {reason}"


def test_a_device_inside_the_workspace_is_refused(workspace):
    try:
        os.mknod(workspace / "zero", stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root may make a device")
    session = files(workspace)
    for text in (
        asyncio.run(call(session, "read_file", file_path="zero")),
        asyncio.run(call(session, "write_file", file_path="zero", content="x")),
    ):
        assert "is a device, a pipe or a link" in text
    assert stat.S_ISCHR((workspace / "zero").stat().st_mode)


async def test_files_beyond_a_megabyte_are_neither_read_nor_written(workspace):
    session = files(workspace)
    (workspace / "most.txt").write_bytes(b"x" * 1_000_000)
    (workspace / "more.txt").write_bytes(b"x" * 1_000_001)
    with (workspace / "sparse").open("wb") as file:
        file.truncate(10**12)
    assert len(await call(session, "read_file", file_path="most.txt")) == 1_000_000
    for name in ("more.txt", "sparse"):
        result = await call(session, "read_file", file_path=name)
        assert result == f"Error: read_file: file_path: '{name}' is larger than 1,000,000 bytes"
    assert await call(session, "write_file", file_path="new", content="é" * 500_000) == "Written: new"
    result = await call(session, "write_file", file_path="new/er", content="é" * 500_001)
    assert result.endswith("was not written: the content has 1,000,002 bytes, at most 1,000,000 are allowed")
    assert (workspace / "new").stat().st_size == 1_000_000


async def test_file_not_in_utf_8_is_a_clear_error(workspace):
    session = files(workspace)
    (workspace / "latin.txt").write_bytes("schön".encode("latin-1"))
    result = await call(session, "read_file", file_path="latin.txt")
    assert result == "Error: read_file: file_path: 'latin.txt' is not UTF-8 text (byte 3)"
    result = await call(session, "write_file", file_path="half.txt", content="\ud83d")
    assert result.endswith("'half.txt' was not written: the content holds half a character (a lone surrogate)")
    assert not (workspace / "half.txt").exists()


async def test_a_write_protected_file_stays_and_a_mode_is_kept(workspace):
    session = files(workspace)
    script, fixed = workspace / "run.sh", workspace / "fixed.txt"
    script.write_text("old")
    script.chmod(0o750)
    fixed.write_text("old")
    fixed.chmod(0o444)
    assert await call(session, "write_file", file_path="run.sh", content="new") == "Written: run.sh"
    assert (script.read_text(), stat.S_IMODE(script.stat().st_mode)) == ("new", 0o750)
    assert (await call(session, "write_file", file_path="fixed.txt", content="new")).endswith("is write-protected")
    assert fixed.read_text() == "old"


async def test_a_write_that_fails_leaves_the_old_file_whole(workspace, monkeypatch):
    session = files(workspace)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    result = await call(session, "write_file", file_path="sub/in.txt", content="new")
    assert result == "Error: write_file: file_path: 'sub/in.txt' cannot be used: No space left on device"
    assert [(file.name, file.read_text()) for file in (workspace / "sub").iterdir()] == [("in.txt", "inside")]


@pytest.mark.parametrize("swapped", ["sub", "sub/in.txt"])
async def test_a_link_that_is_put_there_after_the_check_leads_nowhere(workspace, monkeypatch, swapped):
    outside = workspace.parent / "outside"
    (outside / "in.txt").write_text("SECRET")
    stat_of, resolve = os.stat, os.path.realpath

    def swap():
        position = workspace / swapped
        if not position.is_symlink():
            position.rename(workspace / "aside")
            position.symlink_to(outside / "in.txt" if swapped == "sub/in.txt" else outside)

    def looked_at_then_swapped(path, **options):
        match = stat_of(path, **options)
        if "dir_fd" in options:
            swap()
        return match

    def resolved_then_swapped(path):
        match = resolve(path)
        if match.endswith("/sub/in.txt"):
            swap()
        return match

    if swapped == "sub/in.txt":
        monkeypatch.setattr(os, "stat", looked_at_then_swapped)
    else:
        monkeypatch.setattr(os.path, "realpath", resolved_then_swapped)
    session = files(workspace)
    result = await call(session, "read_file", file_path="sub/in.txt")
    assert result.startswith("Error: read_file: file_path: 'sub/in.txt' cannot be used: ")
    (workspace / swapped).unlink()
    (workspace / "aside").rename(workspace / swapped)
    await call(session, "write_file", file_path="sub/in.txt", content="changed")
    assert sorted(file.read_text() for file in outside.iterdir()) == ["SECRET", "SECRET"]
    assert len(list(outside.iterdir())) == 2


async def test_a_pipe_that_is_put_there_after_the_check_does_not_hang(workspace, monkeypatch):
    stat_of = os.stat

    def looked_at_then_swapped(path, **options):
        match = stat_of(path, **options)
        if "dir_fd" in options:
            (workspace / "sub" / "in.txt").unlink()
            os.mkfifo(workspace / "sub" / "in.txt")
        return match

    monkeypatch.setattr(os, "stat", looked_at_then_swapped)
    result = await asyncio.wait_for(call(files(workspace), "read_file", file_path="sub/in.txt"), 5)
    assert result.endswith("is a device, a pipe or a link, not a file")


async def test_without_a_workspace_a_session_has_one_of_its_own_that_goes_with_it():
    one, two = (session_with(read_file, write_file) for _ in range(2))
    await call(one, "write_file", file_path="note.txt", content="mine")
    assert await call(one, "read_file", file_path="note.txt") == "mine"
    assert "there is no file" in await call(two, "read_file", file_path="note.txt")
    folder = one.state(WORKSPACE)
    assert (folder / "note.txt").exists() and stat.S_IMODE(folder.stat().st_mode) == 0o700
    del one
    gc.collect()
    assert not folder.exists()


PIECES = st.sampled_from(["..", ".", "", "sub", "in.txt", "out", "secret.txt", "link", "back", "new", "~", "a\0", "…"])
PATHS = st.builds(
    lambda root, parts, end: root + "/".join(parts) + end,
    st.sampled_from(["", "", "/", "//", "{inside}/", "{outside}/", "{inside}/../"]),
    st.lists(PIECES | st.text(max_size=4), max_size=6),
    st.sampled_from(["", "", "/", "/."]),
)


@settings(max_examples=100)
@given(paths=st.lists(PATHS, min_size=1, max_size=4))
def test_no_path_leads_out_of_the_workspace(paths):
    with tempfile.TemporaryDirectory() as base:
        inside, outside = Path(base, "inside"), Path(base, "outside")
        (inside / "sub").mkdir(parents=True)
        outside.mkdir()
        (outside / "secret.txt").write_text("SECRET")
        (inside / "out").symlink_to(outside)
        (inside / "sub" / "link").symlink_to("../out/secret.txt")
        (inside / "sub" / "back").symlink_to("../..")
        session = files(inside)
        for path in paths:
            path = path.replace("{inside}", str(inside)).replace("{outside}", str(outside))
            result = asyncio.run(call(session, "read_file", file_path=path))
            assert "SECRET" not in result
            result = asyncio.run(call(session, "write_file", file_path=path, content="x"))
            assert result.startswith(("Written: ", "Error: write_file: file_path: "))
        assert sorted(entry.name for entry in Path(base).iterdir()) == ["inside", "outside"]
        assert [(file.name, file.read_text()) for file in outside.iterdir()] == [("secret.txt", "SECRET")]
