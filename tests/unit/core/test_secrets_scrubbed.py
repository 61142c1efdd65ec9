"""Redaction removes secrets in every form from shown and written text, and nothing else."""

from __future__ import annotations

import base64
import json
import time
from urllib.parse import quote

import pytest

from agentlab.core import secrets
from agentlab.core.secrets import REDACTED, redact, redact_json

KEY = "sk-proj-aB3dE5/H7jK9+N1pQ3rS5tU7vW9xY1z"


@pytest.fixture(autouse=True)
def _environment() -> None:
    secrets.register([KEY], "a key")


@pytest.mark.parametrize(
    "form",
    [KEY, f"Bearer {KEY}", KEY[: len(KEY) // 2], KEY[len(KEY) // 2 :], KEY[3:-3], quote(KEY, safe=""), json.dumps(KEY)]
    + [base64.b64encode(f"{'x' * before}{KEY}".encode()).decode() for before in range(4)]
    + [base64.urlsafe_b64encode(KEY.encode()).decode()],
)
def test_a_secret_is_found_in_every_form(form):
    result = redact(f"it said: {form}, and more")
    assert REDACTED in result and result.startswith("it said: ") and result.endswith(", and more")
    longest = max((n for n in range(len(KEY)) for at in range(len(KEY) - n) if KEY[at : at + n] in result), default=0)
    assert longest <= 8


@pytest.mark.parametrize(
    "text, without",
    [
        ("http://me:hunter2@host/v1", f"http://me:{REDACTED}@host/v1"),
        ("mongodb://u:p@h,h2/db?x=1", f"mongodb://u:{REDACTED}@h,h2/db?x=1"),
        ("https://h/v1?api_key=abc123def&q=ball", f"https://h/v1?api_key={REDACTED}&q=ball"),
        ("https://h/v1?q=1&Token=abc123def", f"https://h/v1?q=1&Token={REDACTED}"),
    ],
)
def test_an_address_keeps_neither_a_password_nor_a_key(text, without):
    assert redact(text) == without == redact(without)


@pytest.mark.parametrize(
    "text",
    [
        *(KEY[:8], "sk-proj-", "mailto:joe@example.com", "http://host:8000/a@b", "a key = value; ratio 3:2 @ home"),
        *("https://h/?q=key&page=2", "https://h/?token=x", "the key=word of a sentence"),
    ],
)
def test_harmless_text_is_not_redacted(text):
    assert redact(text) == text


def test_a_password_of_an_address_in_the_environment_is_known_by_itself(monkeypatch):
    monkeypatch.setenv("OPENAI_BASE_URL", "htp:/me:hunter2@host/v1")
    monkeypatch.setenv("MONGODB_URI", "mongodb://me:correct-horse@host")
    assert "hunter2" not in redact("OPENAI_BASE_URL='htp:/me:hunter2@host/v1' is not an address")
    assert redact("authentication of correct-horse failed") == f"authentication of {REDACTED} failed"


def test_json_is_scrubbed_text_by_text_and_counted():
    result, count = redact_json({"a": [KEY, "b", 1, None], KEY: {"c": f"x{KEY}"}})
    assert (result, count) == ({"a": [REDACTED, "b", 1, None], REDACTED: {"c": f"x{REDACTED}"}}, 3)
    assert redact_json({"a": "b"}) == ({"a": "b"}, 0)


@pytest.mark.parametrize(
    "text", ["A" * 300_000, "://" * 100_000, "://a:" + "b" * 300_000, "?key=" * 60_000, KEY[:5] * 60_000]
)
def test_no_text_makes_it_slow(text):
    started = time.process_time()
    redact(f"{text} :// @ =")
    assert time.process_time() - started < 2
