"""Run folders that are written completely or not at all, and the error for one that cannot be written."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from agentlab.core.errors import RunError, os_errors_as

RESUME_HINT = "progress is saved; fix the cause and rerun with --resume"


class RunWriteError(RunError):
    """Raised if a run cannot write a file; `why` is the system's message."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be written: {why}; {RESUME_HINT}")
        self.why = why


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """Yield a temporary folder that is renamed to `path` at the end, or deleted after an error.

    Raises RunError if `path` is not empty or cannot be written.
    """
    with os_errors_as(RunError, f"{path} cannot be a run folder: "):
        if path.is_dir() and any(path.iterdir()):
            raise RunError(f"{path} is not empty; choose another folder for the run")
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
        scratch.mkdir(parents=True)
    try:
        yield scratch
        scratch.replace(path)
    except (OSError, RunWriteError) as problem:
        why = problem.why if isinstance(problem, RunWriteError) else problem.strerror
        raise RunError(f"{path} cannot be written: {why}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
