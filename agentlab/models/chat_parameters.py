"""Learns from refusals which parameters a model does not support, and adapts later requests.

    parameters = Parameters()
    body = parameters.fit({"model": "gpt-5-mini", "temperature": 0.0, "max_tokens": 256, ...})
    parameters.learn(refusal, body)      # refuses `temperature`: omit it from now on, and log this once

Only a parameter that the server does not know or support is omitted. A wrong value is the user's mistake, and without
its tools a run would measure something else: both raise an error with the server's message.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Any

from agentlab.core.errors import BadRequest
from agentlab.models.chat_writing import shorten_ids
from agentlab.models.refusals import WORDS, parse_server_error

log = logging.getLogger(__name__)
_NEVER_LEFT_OUT = {"model", "messages", "tools", "stream"}
_CALL_IDS = "tool_call_id"
_INSTEAD = {"max_tokens": "max_completion_tokens", "max_completion_tokens": "max_tokens"}
_SCHEMA_NOTE = "Reply with one JSON object and nothing else. It has to fit this JSON schema:\n"


class Parameters:
    """Parameters that a model rejects, learnt while its adapter is connected."""

    def __init__(self) -> None:
        self._refused: set[str] = set()

    def fit(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the request without the parameters that the model is known to refuse."""
        fitted: dict[str, Any] = {}
        for name, value in body.items():
            accepted = next((pair for pair in _forms(name, value) if _key(*pair) not in self._refused), None)
            if accepted is not None:
                fitted[accepted[0]] = accepted[1]
        if _CALL_IDS in self._refused:
            fitted["messages"] = shorten_ids(fitted["messages"])
        wanted = body.get("response_format")
        if wanted is not None and fitted.get("response_format") != wanted:
            # OpenAI and others refuse a plain object format unless the prompt asks for JSON as well.
            note = _SCHEMA_NOTE + json.dumps(wanted["json_schema"]["schema"])
            fitted["messages"] = _with_note(fitted["messages"], note)
        return fitted

    def learn(self, refusal: BadRequest, sent: Mapping[str, Any]) -> None:
        """Never send the refused form of the parameter again; log this once, with the server's message."""
        name, value = refusal.parameter, sent.get(refusal.parameter)
        key = _key(name, value)
        if key not in self._refused:
            self._refused.add(key)
            instead = next((form for form in _forms(name, value) if _key(*form) not in self._refused), None)
            what = f"without {key}" if instead is None else f"with {_key(*instead)} in place of {key}"
            what = "with short ids of tool calls" if key == _CALL_IDS else what
            log.warning("%s (later requests are sent %s)", refusal, what)


def refused_parameter(content: str, sent: Mapping[str, Any]) -> str:
    """Return the name of the parameter that a response refuses, "" if it refuses something else."""
    # Only what states the problem: other fields of an error quote the request, and so name everything in it.
    text = " ".join(map(str, parse_server_error(content))).replace("body.", "")
    if "messages" in sent and WORDS["short_ids"].search(text) and shorten_ids(sent["messages"]) != sent["messages"]:
        return _CALL_IDS
    if "response_format" in sent and WORDS["format"].search(text):
        return "response_format"
    if not WORDS["unsupported"].search(text):
        return ""
    named = [name for name in sent if name not in _NEVER_LEFT_OUT and _pattern(name).search(text)]
    return named[-1] if named else ""


def _pattern(name: str) -> re.Pattern[str]:
    """Return a pattern for the name of a parameter, in snake, camel or Pascal case."""
    first, *rest = name.split("_")
    camel = first + "".join(part.capitalize() for part in rest)
    return re.compile(rf"(?<![\w.-])(?:{name}|{camel})(?![\w-])", re.IGNORECASE)


def _forms(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yield the forms of a parameter, the best one first."""
    yield name, value
    if name in _INSTEAD:
        yield _INSTEAD[name], value
    if name == "response_format" and value["type"] == "json_schema":
        yield name, {"type": "json_object"}


def _key(name: str, value: Any) -> str:
    """Return the parameter, with its value if a server may accept another value."""
    if name == "response_format":
        return f"{name} {value['type']}"
    return f"{name} {value}" if name == "tool_choice" and isinstance(value, str) else name


def _with_note(messages: list[dict[str, Any]], note: str) -> list[dict[str, Any]]:
    """Return the messages with a note at the end of the system message, which is created if there is none."""
    if messages[0]["role"] != "system":
        return [{"role": "system", "content": note}, *messages]
    return [{**messages[0], "content": f"{messages[0]['content']}\n\n{note}"}, *messages[1:]]
