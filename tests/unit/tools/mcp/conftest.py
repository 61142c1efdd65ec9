"""MCP servers end quickly here."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mcp.client.stdio.PROCESS_TERMINATION_TIMEOUT", 0.3)
    monkeypatch.setattr("mcp.client.stdio.FORCE_KILL_TIMEOUT", 0.3)
