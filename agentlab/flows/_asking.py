"""How the layered agent asks the model: one prompt, a JSON answer, below its token limit, told to whoever listens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentlab.chat_history import CHARACTERS_PER_TOKEN
from agentlab.errors import ContextOverflow
from agentlab.events import Phase
from agentlab.flows._two_step import read_object
from agentlab.messages import Message
from agentlab.session import Session

TEXT = ""
"""The key under which an answer stands that is no JSON object."""


async def ask(
    session: Session, function: str, schema: Mapping[str, Any], phase: Phase, token_limit: int, **values: object
) -> dict[str, Any]:
    """What the model answers to the prompt called `function`; what is no JSON object is under `TEXT`, as it came.

    A prompt above `token_limit` (estimated, four characters a token) is rejected with ContextOverflow, unsent.
    """
    prompt = session.prompt(function, **values)
    tokens = len(prompt) // CHARACTERS_PER_TOKEN
    if tokens > token_limit:
        problem = f"{function}: the request has about {tokens} tokens, the limit is {token_limit}"
        session.notify("systemError", problem, title=f"Token limit: {function}")
        raise ContextOverflow(problem)
    message = Message(role="user", text=prompt)
    reply = await session.complete((message,), output_schema=dict(schema), phase=phase)
    session.notify("subsystemMessage", reply.message.text[:500], title=f"LLM response: {function}")
    return read_object(reply.message.text) or {TEXT: reply.message.text}


def text_of(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return value.strip() if isinstance(value, str) else ""


def number_of(found: Mapping[str, Any], key: str, low: float, high: float) -> float:
    """The number under `key`, kept between `low` and `high`; `low` where there is none."""
    value = found.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return low
    return float(min(max(value, low), high))


def texts_of(found: Mapping[str, Any], key: str, most: int) -> tuple[str, ...]:
    values = found.get(key)
    given = (value.strip() for value in values if isinstance(value, str)) if isinstance(values, list) else ()
    return tuple(text for text in given if text)[:most]


def closed(**properties: Any) -> dict[str, Any]:
    """A JSON schema of an object that has all of `properties` and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
