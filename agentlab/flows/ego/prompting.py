"""Model calls of the layered agent: one prompt, a JSON completion, a second call if it cannot be read, and events.

Each unreadable completion is a decision `unreadable` in the trace; the second one is also an error event. The caller
decides how to continue.
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
"""Key of the text of an unreadable completion."""
MAX_TEXT_BYTES = 1_000
"""Length to which later prompts truncate a text of the model, which need not obey the schema's limits."""
MAX_ECHO_CHARS = 2_000
"""Characters of an unreadable completion that the second prompt repeats."""


async def ask_for_object(
    session: Session, function: str, schema: Mapping[str, Any], phase: Phase, **values: object
) -> dict[str, Any]:
    """Return the JSON object with which the model completes the prompt `function`.

    A completion cut off by the token limit is read as far as it goes: a second one would be cut off, too. A model that
    does not enforce `schema` may omit keys; after the second call the object is returned without them. An unreadable
    text is returned under `UNPARSED_KEY`. Raises ModelError after an error event, and ContextOverflow if the request
    exceeds the session's token limit.
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
        # In a truncated completion, the first complete object may be a nested one, so compare both readings.
        data = max(read_object(text) or {}, read_unfinished_object(text), key=lambda read: len(read.keys() & set(keys)))
        missing = [key for key in keys if key not in data]
        if not missing or (completion.finish_reason == "length" and len(missing) < len(keys)):
            return data
        problem = f"it lacks {', '.join(missing)}" if data else "it is no JSON object, or not all of one"
        again = session.prompt("again", problem=problem, keys=", ".join(keys))
        messages = [question, Message(role="agent", text=text[:MAX_ECHO_CHARS]), Message(role="user", text=again)]
        session.decide(f"answer to {function}", "unreadable", f"attempt {attempt + 1}: {problem}")
    session.notify("systemError", problem, title=f"LLM response cannot be used: {function}")
    return data if len(missing) < len(keys) else {UNPARSED_KEY: text}


def _texts_so_far(partial_json: str) -> str:
    """Return the texts in a partial JSON completion, which a chat shows while it streams."""
    values = read_unfinished_object(partial_json).values()
    return "\n\n".join(value.strip() for value in values if isinstance(value, str) and value.strip())


def truncate_to_bytes(text: str, max_bytes: int) -> str:
    """Return `text` truncated to `max_bytes`; the token limit counts bytes, because they suit every language."""
    raw = text.encode("utf-8", "replace")
    return text if len(raw) <= max_bytes else f"{raw[:max_bytes].decode('utf-8', 'ignore')} ... (cut)"


def bounded_text_at(data: Mapping[str, Any], key: str) -> str:
    """Return `text_at` truncated to MAX_TEXT_BYTES."""
    return truncate_to_bytes(text_at(data, key), MAX_TEXT_BYTES)


def sentences_at(data: Mapping[str, Any], key: str, max_count: int) -> tuple[str, ...]:
    """Return `texts_at`, each truncated to MAX_TEXT_BYTES."""
    return tuple(truncate_to_bytes(text, MAX_TEXT_BYTES) for text in texts_at(data, key, max_count))
