"""A memory for the tests of the two-step orchestrator."""

from __future__ import annotations

import pytest

from agentlab.memory import sqlite
from agentlab.models.embedders import hashing


@pytest.fixture
async def memory(tmp_path):
    return sqlite.connect(tmp_path, hashing.connect("hashing-64"))
