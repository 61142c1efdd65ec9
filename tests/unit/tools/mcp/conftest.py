"""MCP servers end quickly here."""

from __future__ import annotations

import pytest

from agentlab.tools.mcp import transports as _mcp_transports


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mcp_transports, "GRACE", 0.3)
