"""What every test runs under: no network beyond this machine, no keys or settings from outside, its own folders."""

from __future__ import annotations

import ipaddress
import socket
from pathlib import Path
from typing import Any

import pytest

_connect = socket.socket.connect


def _is_local(address: Any) -> bool:
    if not isinstance(address, tuple):
        return True  # a Unix socket
    try:
        return ipaddress.ip_address(address[0]).is_loopback
    except ValueError:
        return str(address[0]) == "localhost"


def _guarded(self: socket.socket, address: Any) -> None:
    if not _is_local(address):
        raise AssertionError(f"a test tried to reach {address}; tests stay on this machine")
    _connect(self, address)


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket.socket, "connect", _guarded)
    monkeypatch.setattr("agentlab.retrying.BACK_OFF", 0.0)
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "AGENTLAB_MODEL",
        "AGENTLAB_EMBEDDER",
        "AGENTLAB_LOCAL_MODEL",
        "AGENTLAB_MODE",
        "AGENTLAB_KEYS",
        "GEMINI_API_KEY",
        "GEMINI_BASE_URL",
        "GOOGLE_API_KEY",
        "GITHUB_STEP_SUMMARY",
        "LLM_AGENT_DATA_DIR",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty AGENTLAB_HOME, for tests that write caches and need no weights."""
    monkeypatch.setenv("AGENTLAB_HOME", str(tmp_path / "home"))
    return tmp_path / "home"
