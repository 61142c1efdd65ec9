"""Whether a folder of Chroma can be used, found out where it does no harm: in a process of its own.

A damaged index ends the process that opens it, from within Rust. So what our own writes left is noted beside it, and
where a folder is not as noted, after a kill, another program or a broken disk, a child reads all of it first.
"""

from __future__ import annotations

import contextlib
import json
import stat
import subprocess
import sys
from pathlib import Path

from agentlab.core.files import read_bytes
from agentlab.core.strict_json import parse_json

DATABASE = "chroma.sqlite3"
_NOTED = "agentlab.files"
_OURS = (_NOTED, "agentlab.json", "agentlab.lock")
_SECONDS = 120.0
_READ_ALL = """
import sys
import chromadb
from chromadb.config import Settings

client = chromadb.PersistentClient(sys.argv[1], settings=Settings(anonymized_telemetry=False))
for listed in client.list_collections():
    collection = client.get_collection(listed.name, embedding_function=None)
    vectors = collection.get(include=["embeddings", "documents", "metadatas"])["embeddings"]
    if len(vectors):
        collection.query(query_embeddings=[vectors[0]], n_results=min(8, len(vectors)))
"""

Files = dict[str, list[int]]
"""Size and time of change in nanoseconds, by path from the folder."""


def files_of(folder: Path) -> Files:
    """All but our own, and what SQLite keeps of open connections."""
    found = {}
    for path in folder.rglob("*"):
        if path.name not in _OURS and not path.name.endswith(("-shm", "-wal", "-journal")):
            with contextlib.suppress(FileNotFoundError):
                about = path.stat()
                if path.is_file():
                    found[path.relative_to(folder).as_posix()] = [about.st_size, about.st_mtime_ns]
    return found


def note(folder: Path, files: Files) -> None:
    (folder / _NOTED).write_text(json.dumps(files), encoding="utf-8")


def load_fingerprint(folder: Path) -> Files:
    """What was noted last; {} where that cannot be read."""
    try:
        found = parse_json(read_bytes(folder / _NOTED, follow_links=False))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def diagnose(folder: Path, files: Files, before: Files) -> str:
    """What is wrong with a folder that is not as it was noted; "" if nothing is."""
    if not files:
        return "its files are gone" if before else ""
    size, was = (held.get(DATABASE, [0])[0] for held in (files, before))
    if size < was:
        return f"{DATABASE} was cut off"
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # what SQLite keeps of open connections comes and goes
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return f"{path.relative_to(folder).as_posix()!r} is no ordinary file"  # of a pipe nobody reads the end
    command = [sys.executable, "-P", "-c", _READ_ALL, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        return f"it cannot be read within {_SECONDS:g} seconds"
    if done.returncode == 0:
        return ""
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"it is damaged ({said[-1][:200] if said else f'its reader ended with {done.returncode}'})"
