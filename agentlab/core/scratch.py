"""Temporary folders, deleted with their owner, with the process, or by the next process after a kill.

All folders of a process are inside one folder, which the process locks while it lives. The next process that opens a
workbench removes the folders that it can lock.
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
    """Return a new folder for `owner`, deleted when `owner` is garbage-collected."""
    folder = tempfile.mkdtemp(prefix=prefix, dir=process_temp_folder())
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


def process_temp_folder() -> Path:
    """Return the folder that contains all temporary folders of this process."""
    # The process id is part of the cache key: a forked child needs a folder of its own, since it may live longer.
    return _create_process_folder(os.getpid(), tempfile.gettempdir())


@functools.cache
def _create_process_folder(process: int, parent: str) -> Path:
    _remove_stale_folders(Path(parent))
    folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
    # Lock the file before it is moved to where other processes look for it. The lock lasts until the process ends.
    lock, name = tempfile.mkstemp(prefix=f".{PREFIX}", dir=parent)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    Path(name).rename(folder / _ALIVE)
    atexit.register(_remove, folder, process)
    return folder


def _remove(folder: Path, process: int) -> None:
    if os.getpid() == process:
        with contextlib.suppress(OSError):
            _delete(folder)


def _delete(folder: Path) -> None:
    # Delete the lock file last: if a kill interrupts this, the next process still recognises the folder.
    for inside in folder.iterdir():
        if inside.name != _ALIVE:
            shutil.rmtree(inside, ignore_errors=True)
    shutil.rmtree(folder, ignore_errors=True)


def _remove_stale_folders(parent: Path) -> None:
    """Remove the folders of killed processes."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            with os.fdopen(os.open(folder / _ALIVE, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)) as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                _delete(folder)
