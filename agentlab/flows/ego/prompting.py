"""How the layered agent asks the model: one prompt, a JSON answer, once more where there is none, and events of it.

An answer that cannot be read either time is a decision `unreadable` in the trace and an error event; what becomes of it
is up to who asked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from agentlab.core.errors import ContextOverflow, ModelError
from agentlab.core.events import Phase
from agentlab.core.messages import Message
from agentlab.flows.json_replies import read_object, read_unfinished_object, text_at, texts_at
from agentlab.session.session import Session

UNPARSED_KEY = ""
"""The key under which an answer stands that could not be read."""
MAX_TEXT_BYTES = 1_000
"""Bytes of a sentence of the model's that later prompts show; it may have none of our limits."""
MAX_ECHO_CHARS = 2_000
"""Characters of an answer that could not be read which its author is shown."""


async def ask_for_object(
    session: Session, function: str, schema: Mapping[str, Any], phase: Phase, **values: object
) -> dict[str, Any]:
    """What the model answers to the prompt called `function`; what cannot be read is under `UNPARSED_KEY`, as it came.

    An answer that was cut off is taken as far as it goes, since it would be cut off again. A model that is not bound to
    `schema` may leave out keys; if it does so twice, what it gave is taken as it is.
    Raises ModelError, after an error event; a request above the session's token limit is a ContextOverflow.
    """
    question = Message(role="user", text=session.prompt(function, **values))
    messages = [question]
    keys = list(schema["required"])
    for attempt in range(2):
        try:
            completion = await session.complete(messages, output_schema=dict(schema), phase=phase, shows=_texts_so_far)
        except ContextOverflow:
            raise
        except ModelError as failure:
            session.notify("systemError", f"{type(failure).__name__}: {failure}", title=f"LLM error: {function}")
            raise
        text = completion.message.text
        session.notify("subsystemMessage", text[:500], title=f"LLM response: {function}")
        # Of an answer that was cut off, the first whole object is one inside it.
        found = max(
            read_object(text) or {}, read_unfinished_object(text), key=lambda read: len(read.keys() & set(keys))
        )
        missing = [key for key in keys if key not in found]
        if not missing or (completion.finish_reason == "length" and len(missing) < len(keys)):
            return found
        problem = f"it lacks {', '.join(missing)}" if found else "it is no JSON object, or not all of one"
        again = session.prompt("again", problem=problem, keys=", ".join(keys))
        messages = [question, Message(role="agent", text=text[:MAX_ECHO_CHARS]), Message(role="user", text=again)]
        session.decide(f"answer to {function}", "unreadable", f"attempt {attempt + 1}: {problem}")
    session.notify("systemError", problem, title=f"LLM response cannot be used: {function}")
    return found if len(missing) < len(keys) else {UNPARSED_KEY: text}


def _texts_so_far(said: str) -> str:
    """What a reader sees of a JSON answer while it is written."""
    values = read_unfinished_object(said).values()
    return "\n\n".join(value.strip() for value in values if isinstance(value, str) and value.strip())


def cut_to_bytes(text: str, room: int) -> str:
    """`text`, or as much of it as takes `room` bytes, which is what a token limit knows to count in every language."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= room else f"{raw[:room].decode('utf-8', 'ignore')} ... (cut)"


def bounded_text_at(found: Mapping[str, Any], key: str) -> str:
    """As `text_at`, in the length that later prompts show."""
    return cut_to_bytes(text_at(found, key), MAX_TEXT_BYTES)


def sentences_at(found: Mapping[str, Any], key: str, most: int) -> tuple[str, ...]:
    """As `texts_at`, in the length that later prompts show."""
    return tuple(cut_to_bytes(text, MAX_TEXT_BYTES) for text in texts_at(found, key, most))
