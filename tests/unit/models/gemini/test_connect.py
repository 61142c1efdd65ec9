"""Connecting to Gemini: keys, servers, settings of our own only, and a missing SDK."""

from __future__ import annotations

import subprocess
import sys

import pytest

from agentlab.core.errors import ConfigError
from agentlab.models.gemini import GeminiModel, connect, identity
from agentlab.models.keys import KeyRing
from support.gemini import USER, sent

# The SDK derives a class from aiohttp's session, of which aiohttp disapproves.
pytestmark = pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")


def test_connect_needs_a_key_or_a_server(monkeypatch, tmp_path):
    with pytest.raises(ConfigError, match="GEMINI_API_KEY"):
        connect("flash")
    monkeypatch.setenv("GEMINI_BASE_URL", "localhost:8000")
    with pytest.raises(ConfigError, match="http"):
        connect("flash")
    monkeypatch.setenv("GEMINI_BASE_URL", "http://localhost:8000")
    assert connect("flash").name == "gemini/flash"
    assert identity("flash") == ("gemini/flash", "compatible")
    monkeypatch.delenv("GEMINI_BASE_URL")
    assert identity("flash") == ("gemini/flash", "gemini")
    keys = tmp_path / "keys.json"
    keys.write_text('{"gemini": ["from the file"]}')
    monkeypatch.setenv("AGENTLAB_KEYS", str(keys))
    assert connect("flash")._keys.keys == ("from the file",)
    monkeypatch.setenv("GOOGLE_API_KEY", "google")
    assert connect("flash")._keys.keys == ("google",)
    monkeypatch.setenv("GEMINI_API_KEY", "gemini")
    assert connect("flash")._keys.keys == ("gemini",)
    assert connect("flash", api_key="given")._keys.keys == ("given",)
    for name in ("", "../flash", "flash?x=1", "flash#", "a//b", "flash:streamGenerateContent"):
        with pytest.raises(ConfigError, match="name of a model"):
            connect(name)


async def test_only_own_settings_choose_the_address(monkeypatch):
    for name, value in (
        ("GOOGLE_GEMINI_BASE_URL", "http://127.0.0.1:9"),
        ("GOOGLE_GENAI_API_VERSION", "v7"),
        ("GOOGLE_GENAI_USE_VERTEXAI", "true"),
    ):
        monkeypatch.setenv(name, value)
    await sent(USER)
    options = GeminiModel("m", base_url=None, keys=KeyRing(["k"]))._connected()._api_client._http_options
    assert options.base_url == "https://generativelanguage.googleapis.com"


def test_missing_sdk_is_one_line_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "google.genai", None)
    with pytest.raises(ConfigError, match=r"pip install 'agentlab-harness\[gemini\]'"):
        connect("flash", api_key="k")


def test_the_sdk_is_loaded_for_a_call_only():
    code = "import sys, agentlab, agentlab.cli.parser, agentlab.models.gemini; sys.exit('google.genai' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
