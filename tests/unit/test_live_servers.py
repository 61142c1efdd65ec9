"""The page of servers lists exactly the checks of `make live`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
COMMAND = [sys.executable, str(ROOT / "evals" / "live" / "all.py")]


@pytest.fixture(scope="module")
def printed() -> str:
    return subprocess.run([*COMMAND, "--page"], capture_output=True, text=True, check=True, timeout=120).stdout


def test_the_page_has_the_tables_of_the_command(printed):
    assert printed in (ROOT / "docs" / "howto" / "servers.md").read_text(), "run python evals/live/all.py --page"


def test_each_server_is_tried_by_a_check_or_by_tests_that_exist(printed):
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("| ")]
    for name, _, needs, tried in (row for row in rows if row[0] not in ("| server", "| ---")):
        assert needs, name
        doubles = re.findall(r"a double, in `([^`]+)`", tried)
        assert doubles or len(tried) > 10, name
        assert all((ROOT / file).is_file() for file in doubles), name


def test_an_unknown_server_is_refused_by_name():
    ended = subprocess.run([*COMMAND, "--only", "nowhere"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 2 and "nowhere" in ended.stderr


def test_a_server_that_cannot_be_had_is_a_line_and_no_failure(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    ended = subprocess.run([*COMMAND, "--only", "filesystem"], capture_output=True, text=True, timeout=120)
    assert ended.returncode == 0 and "0 right, 0 wrong, 1 lacking" in ended.stdout
    assert "lacking filesystem" in ended.stdout and "npm and node are not installed" in ended.stdout
