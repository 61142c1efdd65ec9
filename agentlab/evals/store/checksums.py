"""The seal of a run: hashes of its files in `summary.json`, so that what was edited afterwards is refused by name.

    {"run_id": "first", ..., "seal": {"run.json": "<sha256>", ..., "summary.json": "<sha256 of the rest>"}}

It tells an edit, a bad merge and a half-copied folder from what was run. It is no signature: who makes it anew after an
edit is not found out. A run that is older than seals has none, and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.files import HeldFile

_SUMMARY = "`agentlab score {}` makes it anew"
_PLAYED = "take the folder from a copy, or run it again"


def sealed(folder: Path, summary: Mapping[str, Any], files: Iterable[HeldFile]) -> dict[str, Any]:
    """The summary of the run in `folder` with its seal over `files`; raises OSError."""
    return {**summary, "seal": _hashes(folder, summary, files)}


def check_seal(
    folder: Path, summary: Any, header: Mapping[str, Any], files: Iterable[HeldFile], *, regrade: bool
) -> bool:
    """Whether there is a seal; raises RunError for a file that is not as it was sealed."""
    seal = summary.get("seal") if isinstance(summary, dict) else None
    if not isinstance(seal, dict):
        if header.get("sealed") and not regrade:
            raise RunError(f"{folder / 'summary.json'} lost its seal, so it was edited; {_SUMMARY.format(folder)}")
        return False
    found = _hashes(folder, summary, files)
    for name in sorted({*seal, *found}):
        if seal.get(name) != found.get(name) and not (regrade and name == "summary.json"):
            was = "was edited" if name in found else "was deleted"
            mend = _SUMMARY.format(folder) if name == "summary.json" else _PLAYED
            raise RunError(f"{folder / name} {was} after the run had ended; {mend}")
    return True


def _hashes(folder: Path, summary: Mapping[str, Any], files: Iterable[HeldFile]) -> dict[str, str]:
    """SHA-256 of the files of a run, and of its summary without a seal."""
    found = {}
    for file in files:
        try:
            found[file.path.relative_to(folder).as_posix()] = hashlib.file_digest(file.at(), "sha256").hexdigest()
        except OSError as problem:
            raise RunError(f"{file.path} cannot be read: {problem.strerror}") from None
    content = {name: value for name, value in summary.items() if name != "seal"}
    return found | {"summary.json": hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()}
