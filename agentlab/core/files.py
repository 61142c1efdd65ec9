"""Temporary folders that go when what they belong to does, and files that are replaced whole."""

from __future__ import annotations

import os
import shutil
import tempfile
import uuid
import weakref
from pathlib import Path

from agentlab.core.errors import ConfigError


def folder_of(owner: object, prefix: str = "agentlab-") -> Path:
    """A new folder for `owner`, deleted once nobody holds that any more."""
    folder = tempfile.mkdtemp(prefix=prefix)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def replace_file(path: Path, content: bytes | str) -> None:
    """Write a file in one step: whoever reads it, even after a power cut, finds the old content or the new one whole.

    Half a surrogate pair, which a model may write, becomes its escape. Raises OSError, and then nothing has changed.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with fresh.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def data_folder(given: str | None = None) -> Path:
    """Where the agent keeps its files: as given, or as LLM_AGENT_DATA_DIR says, or `data` in the working directory."""
    folder = Path(given or os.environ.get("LLM_AGENT_DATA_DIR") or "data").expanduser()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; the agent's data folder (LLM_AGENT_DATA_DIR) has to be a folder")
    return folder
