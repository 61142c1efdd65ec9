"""A run as it would be without its seal, for tests that edit one by hand."""

from __future__ import annotations

import json
import re
from pathlib import Path


def unseal(folder: Path) -> None:
    """Take the seal off a finished run, the word that there is one, and the hashes of its rows."""
    for name, key in (("run.json", "sealed"), ("summary.json", "seal")):
        content = json.loads((folder / name).read_text())
        content.pop(key, None)
        (folder / name).write_text(json.dumps(content))
    turns = folder / "turns.jsonl"
    turns.write_bytes(re.sub(rb',"check":"[0-9a-f]{16}"\}\n', b"}\n", turns.read_bytes()))


def uncheck(baseline: Path) -> None:
    """Take the check out of a baseline."""
    first, rest = baseline.read_text().split("\n", 1)
    baseline.write_text(json.dumps({**json.loads(first), "check": ""}) + "\n" + rest)
