"""The folder that the file tools work in, and the only way from a path that a model wrote to a file in it.

A path is resolved first and must then lie inside. From the folder on it is opened part by part, without following
symbolic links: a part that somebody turns into a link after the check ends the walk instead of leading it out.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

from agentlab.core.errors import ToolError
from agentlab.core.files import folder_of
from agentlab.session.slot import Slot

LIMIT = 1_000_000
"""Bytes of the largest file that is read or written."""
_DEEPEST = 32
"""Folders on the way to a file: each is held open, and nobody can delete a tree that is thousands deep."""
WORKSPACE: Slot[Path] = Slot(lambda session: folder_of(session, "agentlab-workspace-"))
"""The session's own folder, a temporary one that goes when the session does."""


def read_text(workspace: Path, file_path: str) -> str:
    """The text of a file; raises ToolError with the reason why it cannot be read."""
    with _told("read_file", file_path), _folder_of(workspace, file_path) as (folder, name):
        _regular(os.stat(name, dir_fd=folder, follow_symlinks=False))
        # Not blocking, because the file may have become a pipe by now; then the second look refuses it.
        opened = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
        with os.fdopen(opened, "rb") as file:
            _regular(os.fstat(opened))
            content = file.read(LIMIT + 1)
        if len(content) > LIMIT:
            raise _Refused(f"is larger than {LIMIT:,} bytes")
        try:
            return content.decode("utf-8")
        except UnicodeDecodeError as problem:
            raise _Refused(f"is not UTF-8 text (byte {problem.start})") from None


def write_text(workspace: Path, file_path: str, text: str) -> None:
    """Make or replace a file, whole or not at all; raises ToolError with the reason why it cannot be written."""
    with _told("write_file", file_path):
        try:
            content = text.encode("utf-8")
        except UnicodeEncodeError:
            raise _Refused("was not written: the content holds half a character (a lone surrogate)") from None
        if len(content) > LIMIT:
            raise _Refused(f"was not written: the content has {len(content):,} bytes, at most {LIMIT:,} are allowed")
        with _folder_of(workspace, file_path, make=True) as (folder, name):
            mode = 0o644
            with contextlib.suppress(FileNotFoundError):
                before = os.stat(name, dir_fd=folder, follow_symlinks=False)
                _regular(before)
                mode = before.st_mode & 0o777
                if not mode & stat.S_IWUSR:
                    raise _Refused("is write-protected")
            _replace(folder, name, content, mode)


def _replace(folder: int, name: str, content: bytes, mode: int) -> None:
    fresh = f".agentlab-{uuid.uuid4().hex}"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(fresh, flags, mode, dir_fd=folder), "wb") as file:
            file.write(content)
        os.replace(fresh, name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(fresh, dir_fd=folder)
        raise


class _Refused(Exception):
    """Why a file is not touched, to be read after its name."""


@contextlib.contextmanager
def _told(tool: str, file_path: str) -> Iterator[None]:
    shown = repr(file_path if len(file_path) <= 200 else f"{file_path[:200]}…")
    try:
        yield
    except _Refused as refusal:
        raise ToolError(f"{tool}: file_path: {shown} {refusal}") from None
    except FileNotFoundError:
        raise ToolError(f"{tool}: file_path: there is no file {shown} in the workspace") from None
    except (OSError, ValueError) as problem:
        # A name with a null character or with half a surrogate pair is a ValueError.
        reason = getattr(problem, "strerror", None) or "is no file name"
        raise ToolError(f"{tool}: file_path: {shown} cannot be used: {reason}") from None


@contextlib.contextmanager
def _folder_of(workspace: Path, file_path: str, make: bool = False) -> Iterator[tuple[int, str]]:
    """The open folder of a file and the file's name in it."""
    workspace.mkdir(parents=True, exist_ok=True)
    root = Path(os.path.realpath(workspace))
    *folders, name = _inside(root, file_path)
    with contextlib.ExitStack() as opened:
        folder = _open_folder(opened, str(root), None)
        for part in folders:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=folder)
            folder = _open_folder(opened, part, folder)
        yield folder, name


def _open_folder(opened: contextlib.ExitStack, name: str, inside: int | None) -> int:
    folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=inside)
    opened.callback(os.close, folder)
    return folder


def _inside(root: Path, file_path: str) -> tuple[str, ...]:
    """The parts of the path below `root`, links resolved; refuses what lies elsewhere."""
    path = Path(file_path)
    if ".." in path.parts:
        raise _Refused("is refused: a path must not contain '..'")
    resolved = Path(os.path.realpath(root / path))
    if resolved == root:
        raise _Refused("is the workspace itself, not a file")
    if not resolved.is_relative_to(root):
        raise _Refused("is outside the workspace; use a path relative to it")
    parts = resolved.relative_to(root).parts
    if len(parts) > _DEEPEST:
        raise _Refused(f"lies too deep: at most {_DEEPEST} folders are allowed")
    return parts


def _regular(status: os.stat_result) -> None:
    if stat.S_ISDIR(status.st_mode):
        raise _Refused("is a folder, not a file")
    if not stat.S_ISREG(status.st_mode):
        raise _Refused("is a device, a pipe or a link, not a file")
    if status.st_size > LIMIT:
        raise _Refused(f"is larger than {LIMIT:,} bytes")
