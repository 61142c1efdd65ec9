"""What several tests of tools stand on: a small web and a search engine of this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from support.search_engine import Engine
from support.small_web import Web


@pytest.fixture
def web() -> Iterator[Web]:
    with Web() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> type[Engine]:
    monkeypatch.setattr("ddgs.DDGS", Engine)
    Engine.found, Engine.asked = (), []
    return Engine
