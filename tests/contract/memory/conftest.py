"""The memory backends under contract, each in a folder or on a server of the test run.

Where `MONGODB_URI` is set, the contract is compared with that server too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.memories import BACKENDS, Backend


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Backend]:
    uri = request.getfixturevalue("mongodb") if request.param == "mongo" else None
    made = Backend(request.param, tmp_path, uri)
    yield made
    made.close()
