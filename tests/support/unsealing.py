"""A run without its checksums, for tests that edit a run by hand."""

from __future__ import annotations

import json
from pathlib import Path


def unseal(folder: Path) -> None:
    """Remove the checksums of a finished run, and the mark that it has checksums."""
    for name, key in (("run.json", "sealed"), ("summary.json", "seal")):
        content = json.loads((folder / name).read_text())
        content.pop(key, None)
        (folder / name).write_text(json.dumps(content))


def uncheck(baseline: Path) -> None:
    """Remove the checksum of a baseline."""
    first, rest = baseline.read_text().split("\n", 1)
    baseline.write_text(json.dumps({**json.loads(first), "check": ""}) + "\n" + rest)
