"""A run without its checksums, for tests that edit a run by hand."""

from __future__ import annotations

import json
from pathlib import Path


def unseal(folder: Path) -> None:
    """Take the seal off a finished run, and the word that there is one."""
    for name, key in (("run.json", "sealed"), ("summary.json", "seal")):
        content = json.loads((folder / name).read_text())
        content.pop(key, None)
        (folder / name).write_text(json.dumps(content))


def uncheck(baseline: Path) -> None:
    """Take the check out of a baseline."""
    first, rest = baseline.read_text().split("\n", 1)
    baseline.write_text(json.dumps({**json.loads(first), "check": ""}) + "\n" + rest)
