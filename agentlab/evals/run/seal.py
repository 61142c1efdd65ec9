"""The seal of a run: hashes of its files in `summary.json`, so that what was edited afterwards is refused by name.

    {"run_id": "first", ..., "seal": {"run.json": "<sha256>", ..., "summary.json": "<sha256 of the rest>"}}

It tells an edit, a bad merge and a half-copied folder from what was run. It is no signature: who makes it anew after an
edit is not found out. A run that is older than seals has none, and says so.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.files import open_file

PLAYED = ("turns.jsonl", "calls.jsonl")
"""What only the flows can say again."""
FILES = ("run.json", *PLAYED, "scores.jsonl")
_MEND = {
    **dict.fromkeys(("summary.json", "scores.jsonl"), "`agentlab score {}` makes scores and summary anew"),
    **dict.fromkeys((*PLAYED, "run.json"), "take the folder from a copy, or run it again"),
}


def sealed(folder: Path, summary: Mapping[str, Any]) -> dict[str, Any]:
    """The summary of the run in `folder` with its seal; raises OSError."""
    seal = {name: digest for name in FILES if (digest := _of_file(folder / name)) is not None}
    content = {name: value for name, value in summary.items() if name != "seal"}
    return {**content, "seal": {**seal, "summary.json": _of_json(content)}}


def check_seal(folder: Path, summary: Any, header: Mapping[str, Any], names: Sequence[str] = FILES) -> bool:
    """Whether there is a seal; raises RunError for a file of `names` that is not as it was sealed."""
    seal = summary.get("seal") if isinstance(summary, dict) else None
    if not isinstance(seal, dict):
        if header.get("sealed"):
            raise RunError(
                f"{folder / 'summary.json'} lost its seal, so it was edited; {_MEND['summary.json'].format(folder)}"
            )
        return False
    content = {name: value for name, value in summary.items() if name != "seal"}
    found = {name: _of_file(folder / name) for name in names}
    if set(names) == set(FILES):
        found["summary.json"] = _of_json(content)
    for name, digest in found.items():
        if digest != seal.get(name):
            was = "was edited" if digest else "was deleted"
            raise RunError(f"{folder / name} {was} after the run had ended; {_MEND[name].format(folder)}")
    return True


def _of_file(path: Path) -> str | None:
    """None where there is no file."""
    try:
        with open_file(path, links=False) as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise RunError(f"{path} cannot be read: {problem.strerror}") from None


def _of_json(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
