"""A store of Chroma that another process filled, and Chroma's own server over it, on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

FILL = """
import asyncio, json, sys
import chromadb
from chromadb.config import Settings
from agentlab.models.embedders import hashing

folder, rows, dimensions, metadata = json.loads(sys.argv[1])
client = chromadb.PersistentClient(folder, settings=Settings(anonymized_telemetry=False))
collection = client.create_collection("help", embedding_function=None)
vectors = asyncio.run(hashing.connect(f"hashing-{dimensions}").embed([text for *_, text in rows]))
collection.add(
    ids=[f"record-{number}" for number in range(len(rows))],
    embeddings=list(vectors),
    documents=[text for *_, text in rows],
    metadatas=[{metadata: doc_id, "heading": title} for doc_id, title, _ in rows],
)
"""


def fill(folder: Path, rows: list[tuple[str, str, str]], dimensions: int = 256, metadata: str = "source") -> Path:
    """Fill a store with rows of document id, title and text, in a process of its own."""
    arguments = json.dumps([str(folder), rows, dimensions, metadata])
    subprocess.run([sys.executable, "-c", FILL, arguments], check=True, timeout=120)
    return folder


def checksums(folder: Path) -> dict[str, str]:
    return {
        file.relative_to(folder).as_posix(): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """Run `chroma run` over a store; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    run = "import sys; from chromadb.cli.cli import app; sys.argv[0] = 'chroma'; app()"
    options = ["run", "--path", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    process = subprocess.Popen([sys.executable, "-c", run, *options], stdout=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v2/heartbeat", timeout=5).close()
                break
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(30)
