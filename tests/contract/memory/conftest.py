"""The memory backends under contract, each in a folder or on a server of the test run.

Where `MONGODB_URI` is set, the contract is held against that server too. Vector search, which the stand-in for MongoDB
does not have, is played by a few lines that answer as its documentation says, with an index that lags behind.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agentlab.memory import mongo
from support.memories import BACKENDS, Backend


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Backend]:
    uri = request.getfixturevalue("mongodb") if request.param in ("mongo", "mongo_index") else None
    monkeypatch.setattr(mongo, "_NEWEST", 8)
    made = Backend(request.param, tmp_path, uri)
    yield made
    made.close()
