"""`agentlab doctor`: what this machine has and lacks, a line each, with the mend beside what is wrong."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

from agentlab.models import weights

NEEDED = ("openai", "chromadb", "xllamacpp", "onnxruntime", "tokenizers", "bm25s", "pandas", "pydantic")
EXTRAS = {
    "sentence_transformers": "sentence-transformers",
    "ipywidgets": "notebook",
    "jupyterlab": "notebook",
    "ddgs": "web",
}
ROOM_NEEDED = 3e9


def examine() -> int:
    """Print the findings; the exit code is 1 where the default run could not work here."""
    healthy = True
    for good, line in _findings():
        print(f"{'ok ' if good else 'NO ' if good is False else '-- '} {line}")
        healthy = healthy and good is not False
    return 0 if healthy else 1


def _findings() -> Iterator[tuple[bool | None, str]]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield sys.version_info >= (3, 11), f"Python {version} (3.11 or newer is needed)"
    missing = [name for name in NEEDED if find_spec(name) is None]
    yield not missing, f"packages: {'missing ' + ', '.join(missing) if missing else 'all there'}"
    for module, extra in EXTRAS.items():
        if find_spec(module) is None:
            yield None, f"extra not installed: {module} (pip install 'agentlab-harness[{extra}]')"
    home = weights.home()
    there = home if home.exists() else home.parent if home.parent.exists() else home.anchor
    free = shutil.disk_usage(there).free
    yield free > ROOM_NEEDED, f"AGENTLAB_HOME {home}, {free / 1e9:.0f} GB free"
    own = os.environ.get("AGENTLAB_LOCAL_MODEL")
    if own:
        yield Path(own).is_file(), f"AGENTLAB_LOCAL_MODEL {own}"
    for name in weights.names():
        present = weights.is_present(name)
        yield present or None, f"weights {name}: {'here' if present else f'not here (agentlab pull {name})'}"
    yield None, f"OPENAI_API_KEY: {'set' if os.environ.get('OPENAI_API_KEY') else 'not set'}"
    base_url = os.environ.get("OPENAI_BASE_URL")
    if base_url:
        shown = urlsplit(base_url)._replace(netloc=urlsplit(base_url).netloc.rpartition("@")[2]).geturl()
        yield _answers(base_url), f"OPENAI_BASE_URL {shown}"


def _answers(url: str) -> bool:
    import socket

    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=2):
            return True
    except (OSError, ValueError):
        return False
