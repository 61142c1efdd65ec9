"""Checksums of a run's files in `summary.json`, so that a file edited later is refused by name.

    {"run_id": "first", ..., "seal": {"run.json": "<sha256>", ..., "summary.json": "<sha256 of the rest>"}}

Checksums detect an edit, a bad merge and an incomplete copy. They are no signature: they do not detect an edit whose
author rewrites them. A run from before checksums has none. A folder is written completely or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError, os_errors_as
from agentlab.core.files import ReadOnlyFile

_SUMMARY = "`agentlab score {}` rewrites it"
_PLAYED = "restore the folder from a copy, or run it again"


def with_checksums(folder: Path, summary: Mapping[str, Any], files: Iterable[ReadOnlyFile]) -> dict[str, Any]:
    """Return the summary with the checksums of `files`; raises RunError if a file cannot be read."""
    return {**summary, "seal": _hashes(folder, summary, files)}


def verify_checksums(
    folder: Path, summary: Any, header: Mapping[str, Any], files: Iterable[ReadOnlyFile], *, regrade: bool
) -> bool:
    """Return True if the summary has checksums; raises RunError for a file that differs from its checksum."""
    stored = summary.get("seal") if isinstance(summary, dict) else None
    if not isinstance(stored, dict):
        if header.get("sealed") and not regrade:
            raise RunError(f"{folder / 'summary.json'} lost its checksums, so it was edited; {_SUMMARY.format(folder)}")
        return False
    hashes = _hashes(folder, summary, files)
    for name in sorted({*stored, *hashes}):
        if stored.get(name) != hashes.get(name) and not (regrade and name == "summary.json"):
            change = "was edited" if name in hashes else "was deleted"
            hint = _SUMMARY.format(folder) if name == "summary.json" else _PLAYED
            raise RunError(f"{folder / name} {change} after the run had ended; {hint}")
    return True


def _hashes(folder: Path, summary: Mapping[str, Any], files: Iterable[ReadOnlyFile]) -> dict[str, str]:
    """Return the SHA-256 of each file of a run, and of its summary without checksums."""
    hashes = {}
    for file in files:
        with os_errors_as(RunError, f"{file.path} cannot be read: "):
            hashes[file.path.relative_to(folder).as_posix()] = hashlib.file_digest(file.at(), "sha256").hexdigest()
    content = {name: value for name, value in summary.items() if name != "seal"}
    return hashes | {"summary.json": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}


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
