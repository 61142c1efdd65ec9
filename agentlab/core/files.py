"""Temporary folders that go with what they belong to; files that are replaced, or added to, whole or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import tempfile
import uuid
import weakref
from collections.abc import Iterator
from pathlib import Path

from agentlab.core.errors import ConfigError


def folder_of(owner: object, prefix: str = "agentlab-") -> Path:
    """A new folder for `owner`, deleted once nobody holds that any more."""
    folder = tempfile.mkdtemp(prefix=prefix)
    weakref.finalize(owner, shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@contextlib.contextmanager
def _opened(path: Path, how: int) -> Iterator[int]:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | how, 0o666)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _write(descriptor: int, data: bytes) -> None:
    """All of `data`; a disk that is full takes a part of it first, and says so only when asked for the rest."""
    left = memoryview(data)
    while left:
        left = left[os.write(descriptor, left) :]


class Appended:
    """A file that is only added to, open from the first addition on for as long as anybody holds this."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def add(self, data: bytes) -> None:
        """Add `data` at the end, or nothing of it. Raises OSError, and then the file is as it was."""
        if self._descriptor is None:
            self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_APPEND, 0o666)
            self._close = weakref.finalize(self, os.close, self._descriptor)
        written = 0
        try:
            # A disk that is full takes a part first, and says so only when asked for the rest.
            while written < len(data):
                written += os.write(self._descriptor, data[written:] if written else data)
        except BaseException:
            if written:
                os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size - written)
            raise

    def close(self) -> None:
        if self._descriptor is not None:
            self._close()
            self._descriptor = None


def append_whole(path: Path, data: bytes) -> None:
    """`Appended.add`, once."""
    file = Appended(path)
    try:
        file.add(data)
    finally:
        file.close()


def is_out_of_room(error: BaseException | str | None) -> bool:
    """Whether it says, or what led to it says, that the disk is full; a library may hand on the words alone."""
    while isinstance(error, BaseException):
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if is_out_of_room(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return error is not None and any(words in error for words in ("No space left", "disk is full", "disk I/O error"))


def remove_leftovers(folder: Path) -> None:
    """Delete what a process that was killed inside `replace_file` left behind; raises OSError."""
    for file in folder.iterdir():
        if re.fullmatch(r"\..+\.[0-9a-f]{32}\.new", file.name):
            file.unlink()


def replace_file(path: Path, content: bytes | str) -> None:
    """Write a file in one step: whoever reads it, even after a power cut, finds the old content or the new one whole.

    Half a surrogate pair, which a model may write, becomes its escape. Raises OSError, and then nothing has changed.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
    try:
        with _opened(fresh, os.O_EXCL) as descriptor:
            _write(descriptor, data)
            os.fsync(descriptor)
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
