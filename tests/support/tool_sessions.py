"""A session with the tools of a test, and calls of these tools."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from agentlab.core.events import Notice
from agentlab.core.messages import ToolCall
from agentlab.core.trace import Trace
from agentlab.models.embedders import hashing
from agentlab.models.scripted import Scripted
from agentlab.session.session import Session
from agentlab.session.traced import Has
from agentlab.wire.recorder import Recorder
from support.doubles import gateway_to

EMBEDDER = hashing.connect("hashing-64")
NOW = datetime(2026, 3, 5, 9, 20)


def session_with(*tools: Any, model: Any = None, recorder: Recorder | None = None, memory: Any = None) -> Session:
    trace = Trace("test", "conversation")
    model = model or Scripted([])
    gateway = gateway_to(model, trace, EMBEDDER, recorder)
    has = Has(memory=memory, tools={tool.spec.name: tool for tool in tools})
    return Session(trace=trace, gateway=gateway, now=NOW, has=has)


async def call(session: Session, name: str, **arguments: Any) -> str:
    return (await session.call_tool(ToolCall(id="c1", name=name, arguments=arguments))).text


def notices(session: Session, name: str) -> list[Notice]:
    return [event for event in session.trace.events if isinstance(event, Notice) and event.name == name]


def anywhere(address: Any) -> bool:
    return True
