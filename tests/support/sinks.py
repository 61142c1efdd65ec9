"""The tests of two hundred hostile strings in every field, each a case."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from support.hostile_strings import STRINGS
from support.paths import TESTS


def play(cases: int, folder: Path, chance: random.Random, part: str) -> tuple[str, Iterator[str | None]]:
    """Play all of them, for any number of `cases`."""
    unit = f"looks at what {len(STRINGS)} hostile strings in every field become in commands, pages, files and exports"
    return unit, _cases(folder)


def _cases(folder: Path) -> Iterator[str | None]:
    files = [TESTS / "hostile" / name for name in ("test_sinks.py", "test_secrets.py", "test_roles.py")]
    command = [sys.executable, "-m", "pytest", "-q", "-rA", "--no-header", "-p", "no:cacheprovider", "--tb=no"]
    env = {**os.environ, "PYTHONPATH": str(TESTS.parent)}
    ended = subprocess.run(
        [*command, f"--basetemp={folder / 'tmp'}", *files], capture_output=True, text=True, env=env, cwd=TESTS.parent
    )
    outcomes = re.findall(r"^(PASSED|FAILED|ERROR) (\S+)", ended.stdout, re.MULTILINE)
    assert outcomes, ended.stdout + ended.stderr
    for outcome, name in outcomes:
        yield None if outcome == "PASSED" else name
