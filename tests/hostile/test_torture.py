"""The short versions of `make torture`: a few kills, stops, full disks, faults, damaged stores and odd inputs."""

from __future__ import annotations

import os
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest

from agentlab.core.files import is_disk_full
from support.faulty_server import FAULTS
from support.fuzzing import mutated

TESTS = Path(__file__).parents[1]
PARTS = ("kills", "stops", "disks", "faults", "damage", "inputs", "edits")


@pytest.mark.slow
@pytest.mark.parametrize("part", PARTS)
def test_a_few_of_each_kind_are_survived(part):
    paths = os.pathsep.join([str(TESTS.parent), str(TESTS)])
    command = [sys.executable, str(TESTS / "hostile" / "torture.py"), part, "--short"]
    ended = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"PYTHONPATH": paths}, timeout=300)
    text, *failures = ended.stdout.splitlines() or [ended.stderr]
    assert re.match(rf"{part}: \d+ cases", text), ended.stdout + ended.stderr
    assert not failures and not ended.returncode, ended.stdout + ended.stderr


def test_there_are_eighty_kinds_of_faults_and_no_two_inputs_are_alike():
    assert len(FAULTS) >= 80
    chance = random.Random(1)
    assert len({mutated(b'{"a": [1, "b"], "c": null}', chance) for _ in range(200)}) > 150


@pytest.mark.parametrize(
    "error, is_full",
    [
        (OSError(28, "No space left on device"), True),
        (OSError(27, "File too large"), True),
        (OSError(13, "Permission denied"), False),
        (RuntimeError("database or disk is full"), True),
        ("error returned from database: (code: 778) disk I/O error", True),
        (RuntimeError("the disk is round"), False),
        (None, False),
    ],
)
def test_a_full_disk_is_known_by_its_number_and_by_its_words(error, is_full):
    assert is_disk_full(error) is is_full
    if isinstance(error, Exception):
        wrapped = ValueError("the memory cannot be used")
        wrapped.__cause__ = error
        assert is_disk_full(wrapped) is is_full
