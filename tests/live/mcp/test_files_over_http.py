"""A folder that an MCP server of the tests reads over HTTP: found and not found, inside and outside, said once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.mcp_servers import FILE_SERVER, OverHttp
from support.tool_sessions import call, session_with

pytestmark = pytest.mark.slow
NAMES = ["read_text_file", "read_multiple_files", "list_directory", "search_files"]
FILES = {
    "leave.md": "Leave is 28 days.\n",
    "rules/offside.md": "Level with the last defender is onside.\n",
    "rules/größe 7 m.txt": "Das Tor ist 7,32 m breit. 😀\n",
    "empty.txt": "",
    "secret.json": '{"content": "a text that looks like a result", "isError": true}',
}


@pytest.fixture
def files(tmp_path: Path) -> Iterator[OverHttp]:
    folder = tmp_path / "notes"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "blob.bin").write_bytes(b"\xff\xfe\x00PNG")
    (tmp_path / "outside.md").write_text("Nobody reads this.")
    (folder / "away.md").symlink_to(tmp_path / "outside.md")
    server = OverHttp(folder, FILE_SERVER)
    server.start()
    yield server
    server.stop()


async def test_files_are_listed_read_and_found(opened, files):
    manager = await opened({"files": {"url": files.url}})
    assert [tool.spec.name for tool in manager.tools] == NAMES and manager.problems == []
    session = session_with(*manager.tools)
    listed = (await call(session, "list_directory")).splitlines()
    assert "[DIR] rules" in listed and "[FILE] leave.md" in listed and len(listed) == 6
    assert await call(session, "search_files", pattern="**/*.md") == "away.md\nleave.md\nrules/offside.md"
    assert await call(session, "search_files", pattern="*.pdf") == "No matches found"
    for name, text in FILES.items():
        shown = await call(session, "read_text_file", path=name)
        assert shown == (text or "(the result is empty)"), "each text is said once"
    assert "PNG" in await call(session, "read_text_file", path="blob.bin")


@pytest.mark.parametrize("path", ["../outside.md", "away.md", "/etc/hostname", "rules/../../outside.md"])
async def test_a_file_outside_the_folder_is_refused_in_the_words_of_the_server(opened, files, path):
    session = session_with(*(await opened({"files": {"url": files.url}})).tools)
    refused = await call(session, "read_text_file", path=path)
    assert refused.startswith("Error: ") and "Access denied" in refused and "Nobody" not in refused
    assert await call(session, "read_text_file", path="rules/../leave.md") == FILES["leave.md"]


async def test_a_missing_file_is_an_error_and_the_others_are_read(opened, files):
    session = session_with(*(await opened({"files": {"url": files.url}})).tools)
    missing = await call(session, "read_text_file", path="nowhere.md")
    assert missing.startswith("Error: ") and "ENOENT" in missing
    several = await call(session, "read_multiple_files", paths=["nowhere.md", "leave.md"])
    assert "Leave is 28 days." in several and "ENOENT" in several and not several.startswith("Error")
    wrong = await call(session, "read_text_file", file="leave.md")
    assert wrong.startswith("Error: ") and "path" in wrong


async def test_a_folder_that_changes_is_read_anew_also_after_a_restart(opened, files, tmp_path):
    session = session_with(*(await opened({"files": {"url": files.url}})).tools)
    assert await call(session, "read_text_file", path="leave.md") == FILES["leave.md"]
    (tmp_path / "notes" / "leave.md").write_text("Leave is 30 days.")
    assert await call(session, "read_text_file", path="leave.md") == "Leave is 30 days."
    files.stop()
    assert (await call(session, "read_text_file", path="leave.md")).startswith("Error: ")
    files.start()
    assert await call(session, "read_text_file", path="leave.md") == "Leave is 30 days."
