"""Checks a folder of Chroma for damage in a child process.

A damaged index ends the process that opens it, from within Rust. So every write leaves a fingerprint of the files
beside them. The files may differ from it after a kill, a write of another program or a disk error. A child process then
reads all of them first.
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
"""Size in bytes and modification time in nanoseconds, by path relative to the folder."""


def files_of(folder: Path) -> Files:
    """Return the files of Chroma, without those of agentlab and those of open SQLite connections."""
    files = {}
    for path in folder.rglob("*"):
        if path.name not in _OURS and not path.name.endswith(("-shm", "-wal", "-journal")):
            with contextlib.suppress(FileNotFoundError):
                about = path.stat()
                if path.is_file():
                    files[path.relative_to(folder).as_posix()] = [about.st_size, about.st_mtime_ns]
    return files


def save_fingerprint(folder: Path, files: Files) -> None:
    (folder / _NOTED).write_text(json.dumps(files), encoding="utf-8")


def load_fingerprint(folder: Path) -> Files:
    """Return the files of the last fingerprint; {} if it cannot be read."""
    try:
        files = parse_json(read_bytes(folder / _NOTED, follow_links=False))
    except (OSError, ValueError):
        return {}
    return files if isinstance(files, dict) else {}


def diagnose(folder: Path, files: Files, noted: Files) -> str:
    """Return the problem of a folder that differs from its fingerprint `noted`; "" if there is none."""
    if not files:
        return "its files are gone" if noted else ""
    size, noted_size = (listing.get(DATABASE, [0])[0] for listing in (files, noted))
    if size < noted_size:
        return f"{DATABASE} was cut off"
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # files of open SQLite connections come and go
            mode = path.lstat().st_mode
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                return f"{path.relative_to(folder).as_posix()!r} is no ordinary file"  # reading a pipe would hang
    command = [sys.executable, "-P", "-c", _READ_ALL, str(folder)]
    try:
        done = subprocess.run(command, capture_output=True, timeout=_SECONDS, check=False)  # noqa: S603 - our own
    except subprocess.TimeoutExpired:
        return f"it cannot be read within {_SECONDS:g} seconds"
    if done.returncode == 0:
        return ""
    lines = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return f"it is damaged ({lines[-1][:200] if lines else f'its reader ended with {done.returncode}'})"
