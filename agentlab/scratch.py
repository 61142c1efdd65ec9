"""Temporary folders that go when what they belong to does."""

from __future__ import annotations

import shutil
import tempfile
import weakref
from pathlib import Path


def folder_of(owner: object, prefix: str = "agentlab-") -> Path:
    """A new folder for `owner`, deleted once nobody holds that any more."""
    folder = tempfile.mkdtemp(prefix=prefix)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)
