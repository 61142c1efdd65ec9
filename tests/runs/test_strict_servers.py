"""Whole runs and chats against the strictest server: a turn that failed never spoils the ones after it."""

from __future__ import annotations

from typing import Any

import pytest

import agentlab as al
from support.fake_openai import Response, in_a_thread, text
from support.rules_set import DOCUMENTS, write_set
from support.strict_server import refusal, strictly

FLOWS = ["rag_only", "tools", "tools_rag_fallback", "chatbox", "discord", "coordinator", "ego"]
FAILING = "Fail, please."
TURNS = ["How heavy is the ball?", FAILING, "And how long is the pitch?", FAILING, "Thanks!"]


class Server:
    """Calls a tool, with arguments that are no JSON, wherever it may; fails where the user asks for it."""

    def __init__(self) -> None:
        self.broken: list[str] = []

    def __call__(self, body: dict[str, Any]) -> Response:
        if message := refusal(body):
            self.broken.append(message)
        last = body["messages"][-1]
        if FAILING in str(last["content"]).split("\n\n")[-1] and last["role"] == "user":
            return {"status": 400, "message": "not today"}
        if body.get("tools") and body["tool_choice"] == "auto" and last["role"] == "user":
            function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"query": "a "b""}'}
            parts = [{"index": 0, "id": "c", "type": "function", "function": function}]
            return strictly({"deltas": [{"tool_calls": parts}], "finish": "tool_calls"}, body)
        return strictly(text('{"tool": null}' if "response_format" in body else "410 grams."), body)


@pytest.mark.parametrize("flow", FLOWS)
def test_every_flow_continues_after_turns_that_failed(flow, tmp_path, own_home, monkeypatch):
    data = write_set(tmp_path / "rules", [{"id": "c", "turns": [{"user": message} for message in TURNS]}], DOCUMENTS)
    server = Server()
    with in_a_thread(server) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        spec = {"datasets": [str(data)], "embedder": "hashing/hashing-64", "flows": [flow]}
        with al.Lab(model="openai/any", **spec) as lab:
            run = lab.run_sync(out=tmp_path / "run")
    assert not server.broken
    assert {row.user for row in run.turn_rows() if row.error} <= {FAILING}


@pytest.mark.parametrize("flow", ["tools", "chatbox", "coordinator", "ego"])
def test_a_chat_continues_after_failures_and_a_restart(typed, flow, monkeypatch):
    server = Server()
    with in_a_thread(server) as fake:
        monkeypatch.setenv("OPENAI_BASE_URL", fake.base_url)
        for messages in (["Hello", FAILING, "And now?"], ["Again", FAILING], ["At last"]):
            screen = typed(flow, messages, [], "--model", "openai/any")
    assert not server.broken
    assert "410 grams." in screen if flow != "ego" else "not today" not in screen
