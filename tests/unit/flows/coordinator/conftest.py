"""A memory for the tests of the coordinator."""

from __future__ import annotations

import pytest

from agentlab.memory import sqlite
from agentlab.models.embedders import hashing


@pytest.fixture
async def memory(tmp_path):
    opened = sqlite.connect(str(tmp_path), hashing.connect("hashing-64"))
    yield opened
    await opened.close()
