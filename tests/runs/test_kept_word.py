"""A chat of the terminal keeps its word: after a reset, without a memory server, and without a key."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import agentlab as al
from agentlab.cli.parser import main
from agentlab.core.errors import Refused
from agentlab.memory import mongo
from support.fake_openai import serving
from support.typed_lines import type_lines

MONGO = ("--set", "memory=mongo")


@pytest.fixture
def typed(monkeypatch, capsys, tmp_path, own_home):
    """Types lines into a chat of the terminal; returns its exit code and the whole output."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("agentlab.models.weights.is_present", lambda name: False)
    Path("replies.yaml").write_text("loop: true\nreplies: [Noted.]\n")

    def talk(flow: str, *texts: str, model: str = "scripted/replies.yaml", more: tuple[str, ...] = ()):
        type_lines(monkeypatch, texts)
        code = main(["chat", flow, "--model", model, "--set", "embedder=hashing/hashing-64", *more])
        captured = capsys.readouterr()
        return code, captured.out + captured.err

    return talk


@pytest.mark.parametrize("flow", ["chatbox", "discord", "coordinator", "ego", "tools_rag_fallback"])
def test_a_reset_conversation_stays_reset(typed, flow):
    typed(flow, "My PIN is 4711.")
    assert "Continuing" in typed(flow, "/reset", "/quit")[1]
    code, screen = typed(flow, "And now?", "/fork")
    assert code == 0 and "Continuing" not in screen and "4711" not in screen


def test_a_chat_without_an_address_of_its_memory_does_not_start(typed, monkeypatch):
    monkeypatch.delenv("MONGODB_URI", raising=False)
    code, screen = typed("coordinator", "Hello", more=MONGO)
    assert code == 1 and screen.count("\n") == 1 and "set MONGODB_URI" in screen
    monkeypatch.setenv("MONGODB_URI", "mongodb://127.0.0.1:1")
    assert typed("coordinator", "/quit", more=MONGO)[0] == 0


async def test_a_key_that_is_refused_names_the_status(own_home, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret-key-1")
    refusal = {"status": 401, "message": "Incorrect API key provided: sk-secret-key-1"}
    async with serving(lambda body: refusal) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        lab = al.Lab(model="openai/gpt-5-mini", embedder="hashing/hashing-64", flows=["rag_only"])
        with lab, pytest.raises(Refused, match="HTTP 401: Incorrect API key provided") as refused:
            await lab.chat(documents=()).say("Hello")
    assert "secret" not in str(refused.value)


def test_an_unavailable_server_costs_one_short_wait(typed, monkeypatch):
    monkeypatch.setenv("MONGODB_URI", "mongodb://127.0.0.1:1")
    monkeypatch.setattr(mongo, "_PING_TIMEOUT", 1.1)
    code, screen = typed("coordinator", "I live in Ulm.", "Where do I live?", "/memory", "/trace all", more=MONGO)
    assert code == 0 and screen.count("Noted.") >= 2
    seconds = [float(text) for text in re.findall(r"([0-9.]+) s\b[^\n]*\n", screen) if float(text) > 1]
    assert seconds, "the wait is part of the turn that waited"
    assert [line for line in screen.splitlines() if line.startswith("the mongo memory")]
    assert "Topology" not in screen and "configured timeouts" not in screen
