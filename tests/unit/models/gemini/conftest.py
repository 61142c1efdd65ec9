"""Only the keys of the test, and certificates that are read once."""

from __future__ import annotations

import functools
import ssl

import pytest

# A client of the SDK reads all certificates three times over, and a test takes a tenth of that.
_certificates = functools.cache(ssl.create_default_context)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    monkeypatch.setattr(ssl, "create_default_context", _certificates)
    for name in ("GEMINI_API_KEY", "GOOGLE_API_KEY", "GEMINI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTLAB_KEYS", str(tmp_path / "none.json"))
