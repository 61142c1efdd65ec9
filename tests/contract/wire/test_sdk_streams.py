"""Streams in the shapes of the official SDK's own tests: read as the SDK reads them, or as `why` says, better.

`sdk_streams.jsonl` holds the bytes (`{@` stands for the head of a chunk), our reading of them, and the SDK's where it
differs: `sdk` with `why`.
"""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from agentlab.core.errors import ModelError
from agentlab.models.chat_reading import ChatReader
from support.wire_forms import rows_of

HEAD = '{"id":"cc-7041","object":"chat.completion.chunk","created":1731000042,"model":"heron-2",'
STREAMS = rows_of("sdk_streams.jsonl")
DIFFERENT = 61
"""Number of streams that the SDK reads differently; each of them states a reason."""


def body_of(row: dict[str, Any]) -> bytes:
    return row["body"].replace("{@", HEAD).encode() if "body" in row else base64.b64decode(row["base64"])


def read(pieces: list[bytes]) -> dict[str, Any]:
    """Return the completion as the adapter reads it: nothing after the end of the stream."""
    reader = ChatReader("m", lambda problem: ModelError(f"{problem}"))
    try:
        for piece in [*pieces, b""]:
            if not reader.is_done:
                reader.feed(piece)
        completion = reader.completion({})
    except (ModelError, ValueError) as problem:
        return {"error": str(problem) if type(problem) is ModelError else type(problem).__name__}
    usage = [completion.usage.input_tokens, completion.usage.output_tokens]
    calls = [
        [call.name, call.arguments if call.malformed is None else call.malformed]
        for call in completion.message.tool_calls
    ]
    return {"text": completion.text, "calls": calls, "finish": completion.finish_reason, "usage": usage}


@pytest.mark.parametrize("row", STREAMS, ids=lambda row: row["id"])
def test_a_stream_has_one_reading_in_pieces_of_any_size(row):
    body = body_of(row)
    wanted = {name: row[name] for name in ("text", "calls", "finish", "usage", "error") if name in row}
    for size in (len(body) or 1, 97, 1):
        reading = read([body[at : at + size] for at in range(0, len(body), size)])
        assert json.loads(json.dumps(reading)) == wanted


def test_a_reading_that_differs_from_the_sdk_has_its_reason():
    different = [row for row in STREAMS if "sdk" in row]
    assert all(row["why"] for row in different)
    assert len(STREAMS) == 267 and len(different) == DIFFERENT
