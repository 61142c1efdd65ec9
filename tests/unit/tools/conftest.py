"""A small web and a local search engine for the tests of tools."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator

import pytest

from agentlab.tools.pages import read_page
from support.search_engine import Engine
from support.small_web import Web
from support.tool_sessions import anywhere


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
    # The pages that it finds are on this machine, which is refused otherwise.
    monkeypatch.setattr("agentlab.tools.web.read_page", functools.partial(read_page, allowed=anywhere))
    Engine.results, Engine.received = (), []
    return Engine
