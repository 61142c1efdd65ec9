"""Runs of the two-step orchestrator on a model that follows a plan for every message."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import agentlab as al
from agentlab.core.errors import MemoryUnavailable
from agentlab.core.messages import Message, Request
from agentlab.flows import chatbox
from agentlab.lab.run import Run
from agentlab.memory import sqlite
from agentlab.models.scripted import Scripted, call
from agentlab.tools import web

WRITES = ("save_memory", "update_memory")
NOTHING_SAVED = "Long-term memory is not available at the moment: nothing was saved. Go on without it."
TIME = ("get_current_time", {})
WEB = ("search_web", {"query": "ferry"})


@dataclass(frozen=True)
class Plan:
    """Behaviour of the model for one message: its tool calls and its attempts to write to memory."""

    tools: tuple[tuple[str, dict[str, Any]], ...] = ()
    writes: tuple[tuple[str, dict[str, Any]], ...] = ()


def following(plans: Mapping[str, Plan]) -> Scripted:
    """A model that reads from each request how far the plan for the user's last message has come."""

    def reply(request: Request) -> str | Message:
        if request.messages[0].text == web.PROMPT:
            return "The ferry is blue."
        # Other texts in the user's role are facts, results of tools and the speaker.
        last, question = [(n, text) for n, text in enumerate(map(spoken, request.messages)) if text in plans][-1]
        plan, since = plans[question], request.messages[last + 1 :]
        guidance = {chatbox.PROMPTS[name] for name in ("memory_guidance", "native_memory_guidance")}
        answered = [message for message in since if message.role == "tool"]
        if any(message.text in guidance for message in since):
            to_do = plan.writes
            done = len(answered) + sum("The last attempt failed" in message.text for message in since)
        else:
            to_do, done = plan.tools, len(answered) or sum(message.text.startswith("Tool ") for message in since)
        if request.output_schema is None:
            if request.tools and request.tool_choice != "none" and done < len(to_do):
                name, arguments = to_do[done]
                return call(name, f"{name}_{last}_{done}", **arguments)
            return f"Answer to {question}"
        if "tool" not in request.output_schema.get("properties", {}):
            return json.dumps(to_do[min(done, len(to_do) - 1)][1])
        return json.dumps({"tool": to_do[done][0] if done < len(to_do) else None})

    return Scripted([reply], loop=True)


def spoken(message: Message) -> str | None:
    """The words of a user, without the name that discord puts before them."""
    return re.sub(r"^\w+ said: ", "", message.text) if message.role == "user" else None


def write_set(folder: Path, *conversations: Iterable[str]) -> Path:
    folder.mkdir()
    rows = [{"id": f"c{n}", "turns": [{"user": text} for text in texts]} for n, texts in enumerate(conversations)]
    (folder / "conversations.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def play(data: Path, out: Path, model: Scripted, *flows: Any, **spec: Any) -> Run:
    spec = {"embedder": "hashing/hashing-64", "memory": "sqlite", **spec}
    with al.Lab(model=model, datasets=[str(data)], flows=list(flows), **spec) as lab:
        return lab.run_sync(out=out)


def memory_failure_messages(run: Run, flow: str = "chatbox") -> list[str]:
    """Return the messages of the turns marked as without memory."""
    turns = run.turns[run.turns["flow"] == flow]
    return sorted(turns[turns["memory_unavailable"] == 1]["user"])


def check_sums(run: Run) -> None:
    """Assert that nothing failed, and that turns, calls and summary agree."""
    assert run.summary["status"] == "complete" and not any(run.turns["failed"])
    for trace in run.traces.values():
        trace.check()
    for label, flow in run.summary["flows"].items():
        turns = run.turns[run.turns["flow"] == label]
        calls = run.calls[run.calls["flow"] == label]["kind"].value_counts()
        for total, kind in (("llm_calls", "model_call"), ("tool_calls", "tool"), ("memory_ops", "memory")):
            filling = flow.get("ingest", {}).get(total, 0)
            assert flow[total] == turns[total].sum() + filling == calls.get(kind, 0), (label, total)


def saving(*contents: str | None) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Attempts to save; None is one without the content, which the schema refuses."""
    return tuple(("save_memory", {} if content is None else {"content": content}) for content in contents)


class Store:
    """The sqlite backend, unavailable after `operations` of all conversations together, or on demand."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, operations: int = 10**9) -> None:
        self.left = operations
        self.refused: list[str] = []
        for name in ("search", "add", "update", "facts", "clear", "ingest", "snapshot"):
            real = getattr(sqlite.SqliteMemory, name)
            monkeypatch.setattr(sqlite.SqliteMemory, name, self._cut(name, real), raising=False)
        connect = sqlite.connect

        def connect_if_there(*arguments: Any, **options: Any) -> Any:
            if self.left <= 0:
                raise MemoryUnavailable("the server does not answer")
            return connect(*arguments, **options)

        monkeypatch.setattr(sqlite, "connect", connect_if_there)

    def disconnect(self) -> None:
        self.left = 0

    def come_back(self) -> None:
        self.left = 10**9

    def _cut(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        async def operation(memory: Any, *arguments: Any, **options: Any) -> Any:
            self.left -= 1
            if self.left < 0:
                self.refused.append(name)
                raise MemoryUnavailable("the store is gone")
            return await real(memory, *arguments, **options)

        return operation
