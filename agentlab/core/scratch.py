"""Temporary folders: what a conversation keeps on disk goes with it, and with the process, however that ends.

All of a process stand in one, which it holds a lock on while it lives. What a kill left behind can be locked by
somebody else, and is removed when the next process opens a workbench.
"""

from __future__ import annotations

import atexit
import contextlib
import fcntl
import functools
import os
import shutil
import tempfile
import weakref
from pathlib import Path

PREFIX = "agentlab-"
_ALIVE = ".alive"


def temp_folder_for(owner: object, prefix: str = "") -> Path:
    """A new folder for `owner`, deleted once nobody holds that any more."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=process_temp_folder())
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def process_temp_folder() -> Path:
    """The folder that holds all the others of this process."""
    # A child that was forked is another process, and may outlive this one.
    return _create_process_folder(os.getpid(), tempfile.gettempdir())


@functools.cache
def _create_process_folder(process: int, where: str) -> Path:
    _remove_stale_folders(Path(where))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=where))
    # Locked before it stands where a sweep would look for it; held until the process ends.
    held, name = tempfile.mkstemp(prefix=f".{PREFIX}", dir=where)
    fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    Path(name).rename(folder / _ALIVE)
    atexit.register(_remove, folder, process)
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            _delete(folder)


def _delete(folder: Path) -> None:
    # Without the lock, which goes last, nobody would know what a kill in between left for somebody's work.
    for inside in folder.iterdir():
        if inside.name != _ALIVE:
            shutil.rmtree(inside, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_stale_folders(where: Path) -> None:
    """Remove what processes left that were killed."""
    for folder in where.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with os.fdopen(os.open(folder / _ALIVE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)) as held:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _delete(folder)
