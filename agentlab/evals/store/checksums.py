"""Checksums of a run's files in `summary.json`, so that a file edited later is refused by name.

    {"run_id": "first", ..., "seal": {"run.json": "<sha256>", ..., "summary.json": "<sha256 of the rest>"}}

They detect an edit, a bad merge and an incomplete copy. They are no signature: they do not detect an edit whose author
rewrites them. A run from before checksums has none.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
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
