"""Isolation of every test: no network beyond this machine, no keys or settings from outside, its own folders."""

from __future__ import annotations

import ipaddress
import os
import re
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from agentlab.core.protocols import Embedder
from agentlab.models import weights
from agentlab.models.embedders import local
from agentlab.models.keys import shared_ring
from support.mongo_server import SERVER, MongoServer

# A shell that starts the tests in the background has them, and all that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
# Of a shell in which another environment is active: IPython warns of that.
os.environ.pop("VIRTUAL_ENV", None)
# The time of an example depends more on the load of the machine; the same examples every time, new ones are
# for `--hypothesis-profile torture` to find.
settings.register_profile(
    "any machine",
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("any machine")
settings.register_profile("torture", max_examples=1000, derandomize=False)
_connect = socket.socket.connect
_SETTINGS = re.compile(
    r"(AGENTLAB|OPENAI|GEMINI|GOOGLE|CHATBOX|DISCORD|MASTER_DISCORD|FINAL_MEMORY|LLM_AGENT|HF|GITHUB_STEP)_"
)
_ENVIRONMENT = {"AGENTLAB_HOME", "AGENTLAB_OFFLINE"}
"""Folder of the weights that were pulled before the tests."""


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
    monkeypatch.setattr("agentlab.wire.retries.BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr("agentlab.core.secrets._registered", {})
    shared_ring.cache_clear()
    for name in [*os.environ]:
        if _SETTINGS.match(name) and name not in _ENVIRONMENT:
            monkeypatch.delenv(name)


@pytest.fixture
def own_home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty AGENTLAB_HOME, for tests that write caches and need no weights."""
    monkeypatch.setenv("AGENTLAB_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("AGENTLAB_OFFLINE", "1")
    return tmp_path / "home"


@pytest.fixture(scope="session")
def mongodb() -> Iterator[str]:
    """The address of a server of MongoDB's wire protocol: a stand-in, in a process of its own, of the test run."""
    if not SERVER.exists():
        pytest.skip("no MongoDB stand-in: install secantusdb, which is in the extra dev")
    running = MongoServer()
    yield running.uri
    running.stop()


@pytest.fixture(scope="session")
def minilm() -> Embedder:
    """The real sentence embedder; a test that takes it is marked `real_model`."""
    if not weights.is_present("all-minilm-l6-v2"):
        pytest.skip("the weights of all-minilm-l6-v2 are not here: agentlab pull all-minilm-l6-v2")
    return local.connect("all-minilm-l6-v2")
