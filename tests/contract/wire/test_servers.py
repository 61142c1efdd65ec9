"""Servers with OpenAI's protocol, by name: each is used as its row of docs/howto/servers.md says."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import yaml

from agentlab.core.messages import ToolSpec
from agentlab.flows import rag_only
from agentlab.models.openai import connect
from support.doubles import session_over
from support.fake_openai import serving
from support.paths import ROOT

SERVERS = yaml.safe_load((Path(__file__).parent / "servers.yaml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "howto" / "servers.md").read_text(encoding="utf-8")
LOOK = ToolSpec(name="look", description="Looks.", parameters={"type": "object", "properties": {}})
KEY = "key-of-a-test"


def whole(server: dict[str, Any], events: list[str]) -> dict[str, bytes]:
    stream = "".join(f"data: {event}\n\n" for event in [*events, "[DONE]"])
    return {"whole": (server.get("comment", "") + stream).encode()}


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server["name"])
async def test_a_server_is_used_as_its_row_of_the_page_says(server, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if server.get("key"):
        monkeypatch.setenv("OPENAI_API_KEY", KEY)
    answers = iter([whole(server, server["call"]), whole(server, server["reply"])])
    path = urlsplit(server["address"]).path
    async with AsyncExitStack() as stack:
        fake = await stack.enter_async_context(serving(lambda body: next(answers)))
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url.removesuffix("/v1") + path)
        model = connect("m")
        stack.push_async_callback(model.close)
        session = session_over(rag_only, model)
        call = await session.complete("How many?", tools=[LOOK])
        reply = await session.complete("How many?", tools=[LOOK])
    assert [(made.name, made.arguments) for made in call.message.tool_calls] == [("look", {"q": 1})]
    assert (reply.text, reply.thought, reply.finish_reason) == ("Seven.", "3+4", "stop")
    counts = [(each.usage.input_tokens, each.usage.output_tokens) for each in (call, reply)]
    assert counts == [(9, 5), (9, 2)] and len(session.trace.events) == 2, "no notice beside the two calls"
    assert fake.urls == [f"{path}/chat/completions"] * 2
    assert all((header["Authorization"] == f"Bearer {KEY}") == bool(server.get("key")) for header in fake.headers)


@pytest.mark.parametrize("server", SERVERS, ids=lambda server: server["name"])
def test_the_page_gives_the_address_of_the_server(server):
    (row,) = [line for line in PAGE.splitlines() if line.startswith(f"| {server['name']} |")]
    assert f"`OPENAI_BASE_URL={server['address']}`" in row
    assert ("in `OPENAI_API_KEY`" in row) == bool(server.get("key"))
