"""The small data set of most runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.rules_set import CONVERSATIONS, DOCUMENTS, write_set


@pytest.fixture
def dataset(tmp_path: Path, own_home: Path) -> Path:
    return write_set(tmp_path / "rules", CONVERSATIONS, DOCUMENTS)
