"""MCP servers end quickly here, and a secret that a test sets is known to that test alone."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from agentlab.tools.mcp import transports as _mcp_transports
from agentlab.wire.recordings import KNOWN_SECRETS


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(_mcp_transports, "GRACE", 0.3)
    known = set(KNOWN_SECRETS)
    yield
    KNOWN_SECRETS.clear()
    KNOWN_SECRETS.update(known)
