"""How the layered agent asks the model: one prompt, a JSON answer, once more where there is none, and events of it.

An answer that cannot be read either time is a decision `unreadable` in the trace and an error event; what becomes of it
is up to who asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic_core import from_json

from agentlab.core.errors import ContextOverflow, ModelError
from agentlab.core.events import Phase
from agentlab.core.messages import Message
from agentlab.flows.two_step.settings import read_object
from agentlab.session.session import Session

TEXT = ""
"""The key under which an answer stands that could not be read."""
AGAIN = "That cannot be used: {problem}. Reply with one JSON object that has {keys}, shorter than before, nothing else."
LONGEST = 1_000
"""Bytes of a sentence of the model's that later prompts show; it may have none of our limits."""
ECHOED = 2_000
"""Characters of an answer that could not be read which its author is shown."""


async def ask(
    session: Session, function: str, schema: Mapping[str, Any], phase: Phase, **values: object
) -> dict[str, Any]:
    """What the model answers to the prompt called `function`; what cannot be read is under `TEXT`, as it came.

    An answer that was cut off is taken as far as it goes, since it would be cut off again. A model that is not bound to
    `schema` may leave out keys; if it does so twice, what it gave is taken as it is.
    Raises ModelError, after an error event; a request above the session's token limit is a ContextOverflow.
    """
    messages = [Message(role="user", text=session.prompt(function, **values))]
    keys = list(schema["required"])
    for attempt in range(2):
        try:
            completion = await session.complete(messages, output_schema=dict(schema), phase=phase)
        except ContextOverflow:
            raise
        except ModelError as failure:
            session.notify("systemError", f"{type(failure).__name__}: {failure}", title=f"LLM error: {function}")
            raise
        text = completion.message.text
        session.notify("subsystemMessage", text[:500], title=f"LLM response: {function}")
        # Of an answer that was cut off, the first whole object is one inside it.
        found = max(read_object(text) or {}, _begun(text), key=lambda read: len(read.keys() & set(keys)))
        missing = [key for key in keys if key not in found]
        if not missing or (completion.finish_reason == "length" and len(missing) < len(keys)):
            return found
        problem = f"it lacks {', '.join(missing)}" if found else "it is no JSON object, or not all of one"
        messages = [
            messages[0],
            Message(role="agent", text=text[:ECHOED]),
            Message(role="user", text=AGAIN.format(problem=problem, keys=", ".join(keys))),
        ]
        session.decide(f"answer to {function}", "unreadable", f"attempt {attempt + 1}: {problem}")
    session.notify("systemError", problem, title=f"LLM response cannot be used: {function}")
    return found if len(missing) < len(keys) else {TEXT: text}


def cut(text: str, room: int) -> str:
    """`text`, or as much of it as takes `room` bytes, which is what a token limit knows to count in every language."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= room else f"{raw[:room].decode('utf-8', 'ignore')} ... (cut)"


def text_of(found: Mapping[str, Any], key: str) -> str:
    value = found.get(key)
    return value.strip() if isinstance(value, str) else ""


def sentence_of(found: Mapping[str, Any], key: str) -> str:
    """As `text_of`, in the length that later prompts show."""
    return cut(text_of(found, key), LONGEST)


def sentences_of(found: Mapping[str, Any], key: str, most: int) -> tuple[str, ...]:
    """As `texts_of`, in the length that later prompts show."""
    return tuple(cut(text, LONGEST) for text in texts_of(found, key, most))


def _begun(text: str) -> dict[str, Any]:
    """The object whose beginning `text` holds, with the last text in it as far as it goes; {} where there is none."""
    try:
        found = from_json(text[max(0, text.find("{")) :].encode("utf-8", "replace"), allow_partial="trailing-strings")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def number_of(found: Mapping[str, Any], key: str, low: float, high: float) -> float | None:
    """The number under `key`, also one written as text or in percent, kept between `low` and `high`; else None."""
    value = found.get(key)
    if isinstance(value, str):
        try:
            value = float(value.strip().removesuffix("%"))
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, (int, float)) or value != value:
        return None
    return float(min(max(value, low), high))


def truth_of(found: Mapping[str, Any], key: str) -> bool:
    value = found.get(key)
    return value is True or (isinstance(value, str) and value.strip().lower() in ("true", "yes"))


def texts_of(found: Mapping[str, Any], key: str, most: int) -> tuple[str, ...]:
    values = found.get(key)
    given = (value.strip() for value in values if isinstance(value, str)) if isinstance(values, list) else ()
    return tuple(text for text in given if text)[:most]


def closed(**properties: Any) -> dict[str, Any]:
    """A JSON schema of an object that has all of `properties` and no others."""
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
