"""Refusals as servers word them, each by the front door: a session over a server on this machine."""

from __future__ import annotations

import json
import re
from contextlib import AsyncExitStack
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace

import pytest
import yaml

from agentlab.core.errors import ModelError
from agentlab.flows import rag_only
from agentlab.models import refusals
from agentlab.models.openai import connect
from agentlab.wire import limits, retries
from support.doubles import session_over
from support.fake_openai import serving
from support.wire_forms import siblings

ROWS = yaml.safe_load((Path(__file__).parent / "refusals.yaml").read_text(encoding="utf-8"))
REFUSALS = [
    {**row, "body": json.dumps({"error": {"message": text}})} for row in ROWS for text in row.get("messages", ())
]
REFUSALS += [row for row in ROWS if "messages" not in row] + siblings("refusal")


@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda row: f"{row['means'][:12]}-{row.get('body', row)}"[:60])
async def test_each_refusal_has_its_one_meaning(refusal, monkeypatch):
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(round(seconds, 2))

    monkeypatch.setattr(retries, "BACKOFF_SECONDS", 0.0)
    monkeypatch.setattr(limits, "MAX_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(retries, "asyncio", SimpleNamespace(sleep=pause))
    if "now" in refusal:
        now = datetime.fromisoformat(refusal["now"]).timestamp()
        monkeypatch.setattr(refusals, "time", SimpleNamespace(time=lambda: now))
    response = {
        "status": refusal.get("status", 400),
        "headers": refusal.get("headers", {}),
        "text": refusal.get("body", ""),
    }
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(serving(lambda body: response))
        model = connect("m", base_url=fake.base_url, api_key=f"key-of-{hash(str(refusal))}")
        stack.push_async_callback(model.close)
        with pytest.raises(ModelError) as caught:
            await session_over(rag_only, model).complete("Hello")
    assert re.match(refusal["means"], f"{type(caught.value).__name__}: {caught.value}")
    assert len(fake.seen) == refusal["attempts"]
    assert [*waited, 0.0][0] == refusal.get("wait", 0)


@pytest.mark.parametrize(
    ("path", "text", "hint"),
    [
        ("", {"detail": "Not Found"}, "no /v1"),
        ("/v1/chat/completions", {"error": {"message": "Invalid URL"}}, "before /chat/completions"),
        ("/api-gateway", {"error": {"message": "model 'qwen9' not found"}}, ""),
        ("/v1", {"detail": "Not Found"}, ""),
    ],
)
def test_an_address_without_its_version_is_named_where_nothing_is_found(path, text, hint):
    error = refusals.read_refusal(404, {}, json.dumps(text), "openai/m", address=f"http://127.0.0.1:1{path}")
    assert hint in str(error) and ("address" in str(error)) == bool(hint)


def test_an_error_never_says_the_key():
    error = refusals.read_refusal(
        401, {}, '{"error": "Incorrect API key: abc"}', "m", lambda text: text.replace("abc", "<key>")
    )
    assert "abc" not in str(error)
