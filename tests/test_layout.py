"""The shape of the package: imports go one way, files stay small, every plug-in has its verb and its first line."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

from agentlab import plugins

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "agentlab"
FILES = sorted(PACKAGE.rglob("*.py"))

FLOORS = [
    {"messages", "errors", "scratch", "retrying"},
    {"events", "loop", "chroma_client"},
    {"trace"},
    {"protocols", "arguments"},
    {"ledger", "chat_history"},
    {"remembering", "background"},
    {"session"},
    {"inflight", "fingerprint"},
    {"recording"},
    {"misses"},
    {"wire", "history", "models", "knowledge", "memory", "tools", "plugins", "rows"},
    {"flows", "spec", "prices", "prompt_files"},
    {"variants"},
    {"chat"},
    {"lab"},
    {"evals"},
    {"notebook", "terminal", "doctor", "project"},
    {"commands"},
    {"cli", "__main__"},
]
LEVEL = {room: level for level, rooms in enumerate(FLOORS) for room in rooms}


def room_of(file: Path) -> str:
    return file.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> set[str]:
    """The rooms a file imports when it is loaded: not inside functions, not for the type checker alone."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agentlab"):
            part = (node.module or "").split(".")[1:2]
            found.update(part or {alias.name for alias in node.names if alias.name in LEVEL})
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda f: str(f.relative_to(PACKAGE)))
def test_a_file_says_what_it_is_stays_small_and_imports_downwards(file):
    source = file.read_text()
    tree = ast.parse(source)
    if source.strip():
        assert ast.get_docstring(tree), "a file opens by saying what it is"
    assert source.count("\n") <= 400, "a file past 400 lines is two ideas"
    room = room_of(file)
    if room == "__init__":
        return
    for used in imports(tree):
        assert LEVEL[used] <= LEVEL[room], f"{room} must not import {used}"


def test_adapters_and_backends_are_strangers():
    for room in ("models/embedders", "memory", "flows", "evals/scorers"):
        for file in (PACKAGE / room).glob("[a-z]*.py"):
            others = {f.stem for f in file.parent.glob("[a-z]*.py")} - {file.stem, "cache"}
            dotted = f"agentlab.{room.replace('/', '.')}"
            for line in file.read_text().splitlines():
                match = re.match(rf"\s*from {dotted}\.([a-z]\w*) import", line)
                assert not match or match[1] not in others - {"answer"}, f"{file.name} imports its sibling: {line}"


@pytest.mark.parametrize("room", plugins.ROOMS)
def test_every_plug_in_has_a_first_line_and_can_be_resolved(room):
    names = plugins.names(room)
    assert names
    for name, line in names.items():
        assert line.strip()
        assert plugins.resolve(room, name)


def tracked() -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [ROOT / line for line in listed.splitlines()]


def test_the_repository_names_no_machine_no_registry_and_no_key():
    forbidden = re.compile(r"/root/|/home/[a-z]+/|pypi\.org|pythonhosted\.org|sk-[A-Za-z0-9]{20,}")
    for file in tracked():
        if file.suffix not in {".png"} and file.is_file() and file.name != "test_layout.py":
            found = forbidden.search(file.read_text(encoding="utf-8", errors="replace"))
            assert not found, f"{file.relative_to(ROOT)} holds {found.group(0)!r}"


def test_the_folders_of_the_top_level_are_not_packages():
    for folder in ("datasets", "evals", "notebooks", "results"):
        assert not (ROOT / folder / "__init__.py").exists()
