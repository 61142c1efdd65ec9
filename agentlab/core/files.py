"""Atomic writes and appends, and reads with a size limit.

Only ordinary files are opened: a pipe blocks for ever, a device never ends. Links are followed if a user named the
file. They are refused (`follow_links=False`) in folders that others may have filled.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import uuid
import weakref
from collections.abc import Iterator
from io import BufferedReader
from pathlib import Path
from typing import IO, Any, AnyStr, TextIO

from agentlab.core.errors import ConfigError, os_errors_as
from agentlab.core.strict_json import parse_yaml

MAX_USER_FILE_BYTES = 16 * 2**20
MAX_GENERATED_FILE_BYTES = 2**31
"""Bytes of a file that is read at once: written by a person, written by a program."""
MAX_STREAMED_FILE_BYTES = 2**44
"""Bytes of a file that is read a line or a part at a time."""
MAX_LINE_BYTES = 64 * 2**20


def open_regular_file(
    path: Path, max_bytes: int = MAX_STREAMED_FILE_BYTES, *, follow_links: bool = True
) -> BufferedReader:
    """Open an ordinary file of at most `max_bytes` for reading; raises OSError with the reason in `strerror`."""
    descriptor = _open(path, os.O_RDONLY, follow_links=follow_links)
    if (size := os.fstat(descriptor).st_size) > max_bytes:
        os.close(descriptor)
        raise OSError(errno.EFBIG, f"{size:,} bytes, of which at most {max_bytes:,} are read")
    return os.fdopen(descriptor, "rb")


def read_bytes(path: Path, max_bytes: int = MAX_USER_FILE_BYTES, *, follow_links: bool = True) -> bytes:
    """Return the content of an ordinary file; raises OSError as `open_regular_file` does."""
    with open_regular_file(path, max_bytes, follow_links=follow_links) as file:
        # A file may grow while it is read, so the limit applies again.
        return file.read(max_bytes)


def read_text(path: Path) -> str:
    """Return the text of an ordinary UTF-8 file; raises OSError, or ValueError in one line for other bytes."""
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as problem:
        raise ValueError(f"not UTF-8 text (byte {problem.start}); save it as UTF-8") from None


def read_yaml(path: Path, what: str) -> Any:
    """Return the values of a YAML file; raises ConfigError, which calls the file `what`, such as "key file"."""
    try:
        with os_errors_as(ConfigError, f"cannot read the {what} {path}: "):
            return parse_yaml(read_text(path))
    except ValueError as problem:
        raise ConfigError(f"{path}: {problem}") from None


class ReadOnlyFile:
    """Ordinary file that is read many times; it stays open until this object is deleted. Raises OSError."""

    def __init__(self, path: Path, max_bytes: int = MAX_STREAMED_FILE_BYTES) -> None:
        self.path = path
        self._file = open_regular_file(path, max_bytes, follow_links=False)
        weakref.finalize(self, self._file.close)

    def at(self, offset: int = 0) -> BufferedReader:
        """Return the open file, positioned at the byte `offset`."""
        self._file.seek(offset)
        return self._file


def iter_lines(file: IO[AnyStr]) -> Iterator[AnyStr]:
    """Yield the lines of a file with their line ends; raises ValueError for a line over `MAX_LINE_BYTES`."""
    while line := file.readline(MAX_LINE_BYTES + 1):
        if len(line) > MAX_LINE_BYTES:
            raise ValueError(f"a line of more than {MAX_LINE_BYTES:,} bytes")
        yield line


def _open(path: Path, flags: int, *, follow_links: bool) -> int:
    """Return a descriptor of an ordinary file, without waiting for the other end of a pipe."""
    try:
        follow = 0 if follow_links else os.O_NOFOLLOW
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NONBLOCK | follow, 0o666)
    except OSError as problem:
        if problem.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a link; put the file itself in its place") from None
        if problem.errno == errno.ENXIO:
            raise OSError(errno.ENXIO, _NOT_ORDINARY) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is a folder" if is_folder else _NOT_ORDINARY)
    return descriptor


_NOT_ORDINARY = "it is a pipe or a device, not an ordinary file"


class AppendOnlyFile:
    """File that only grows; it is open from the first `add` until this object is deleted."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor: int | None = None

    def add(self, data: bytes) -> None:
        """Append all of `data` or nothing; raises OSError and then leaves the file unchanged."""
        if self._descriptor is None:
            self._descriptor = _open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, follow_links=False)
            self._close = weakref.finalize(self, os.close, self._descriptor)
        written = 0
        try:
            # A full disk accepts a part first and fails only on the rest.
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


def open_log(path: Path) -> TextIO:
    """Open an ordinary file to append text; raises OSError."""
    descriptor = _open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, follow_links=False)
    return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def append_atomically(path: Path, data: bytes) -> None:
    """Append all of `data` to a file or nothing; raises OSError."""
    with contextlib.closing(AppendOnlyFile(path)) as file:
        file.add(data)


def truncate_partial_line(path: Path) -> None:
    """Remove the text after the last line end; raises OSError."""
    with os.fdopen(_open(path, os.O_RDWR | os.O_CREAT, follow_links=False), "r+b") as file:
        whole = sum(len(line) for line in iter_lines(file) if line.endswith(b"\n"))
        if whole < file.tell():
            file.truncate(whole)


def is_disk_full(error: BaseException | str | None) -> bool:
    """Return True if an error or one of its causes reports a full disk; some libraries pass on only its text."""
    while isinstance(error, BaseException):
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            return True
        if is_disk_full(str(error)):
            return True
        error = error.__cause__ or error.__context__
    return error is not None and any(words in error for words in ("No space left", "disk is full", "disk I/O error"))


def remove_temp_files(folder: Path) -> None:
    """Delete the files of processes that were killed inside `write_atomically`; raises OSError."""
    for file in folder.iterdir():
        if re.fullmatch(r"\..+\.[0-9a-f]{32}\.new", file.name):
            file.unlink()


def write_atomically(path: Path, content: bytes | str) -> None:
    """Replace a file in one step: even after a power cut it has all of the old content or all of the new.

    Half a surrogate pair, which a model may write, becomes its escape. Raises OSError and then changes nothing.
    """
    data = content.encode("utf-8", "backslashreplace") if isinstance(content, str) else content
    fresh = path.parent / f".{path.name}.{uuid.uuid4().hex}.new"
    try:
        append_atomically(fresh, data)
        with open_regular_file(fresh, follow_links=False) as file:
            os.fsync(file.fileno())
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def data_folder(given: str | None = None) -> Path:
    """Return the agent's data folder: `given`, else LLM_AGENT_DATA_DIR, else `data` in the current folder.

    Raises ConfigError if it is a file.
    """
    folder = Path(given or os.environ.get("LLM_AGENT_DATA_DIR") or "data").expanduser()
    if folder.exists() and not folder.is_dir():
        raise ConfigError(f"{folder} is a file; the agent's data folder (LLM_AGENT_DATA_DIR) has to be a folder")
    return folder
