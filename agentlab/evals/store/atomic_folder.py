"""Run folders that are written whole or not at all, and what is said where one cannot be written."""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from agentlab.core.errors import RunError

RESUME_HINT = "what was done is kept: once that is mended, --resume goes on"


class RunWriteError(RunError):
    """A file of a run that is being played could not be written; `why` is what the system says."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} cannot be written: {why}; {RESUME_HINT}")
        self.why = why


@contextlib.contextmanager
def atomic_folder(path: Path) -> Iterator[Path]:
    """A folder beside `path` that takes its place when all is in it; where that fails, nothing is left.

    Raises RunError where something is there already, or it cannot be written.
    """
    try:
        if path.is_dir() and any(path.iterdir()):
            raise RunError(f"{path} is not empty; choose another folder for the run")
        scratch = path.with_name(f".{path.name}.{uuid.uuid4().hex}.new")
        scratch.mkdir(parents=True)
    except OSError as problem:
        raise RunError(f"{path} cannot be a run folder: {problem.strerror}") from None
    try:
        yield scratch
        scratch.replace(path)
    except (OSError, RunWriteError) as problem:
        why = problem.why if isinstance(problem, RunWriteError) else problem.strerror
        raise RunError(f"{path} cannot be written: {why}") from None
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
