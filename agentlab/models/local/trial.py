"""Trial of a model file that the catalogue does not know: can its chat template take a system text, does it call tools?

The chat template is that of the file. The trial makes three short calls when the file is first started. Its result is
written to `trials/` in AGENTLAB_HOME, by the content of the file, and `agentlab doctor` shows it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from agentlab.core.errors import ModelError
from agentlab.core.files import open_regular_file, write_atomically
from agentlab.core.messages import Completion, Message, Request, ToolSpec
from agentlab.models.weights import home

_TOOL = ToolSpec(
    name="get_weather",
    description="Tell the weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
_MAX_TOKENS = 96
_METADATA_BYTES, _TAIL_BYTES = 2**25, 2**20


class Trial(Struct, frozen=True, kw_only=True):
    name: str = ""
    has_template: bool = True
    """False for a file without a chat template: llama.cpp then uses ChatML."""
    system_role: bool = True
    """False if the template has no system role: the system text then opens the first user message."""
    calls_tools: bool = True
    """False if the model does not write a call even where its output is restricted to one."""
    chooses: bool = True
    """False if it calls a tool after thanks, or none after a question that needs one."""

    def __str__(self) -> str:
        template = "chat template of the file" if self.has_template else "no chat template, so ChatML"
        system = "system role" if self.system_role else "no system role, so the first user message has its text"
        tools = "calls tools" if self.calls_tools else "calls no tools"
        choice = "" if self.chooses or not self.calls_tools else ", but not when it should"
        return f"{template}; {system}; {tools}{choice}"


MEASURED = Trial()
"""Result for the models of the catalogue, which need no trial."""


def file_id(file: Path) -> str:
    """Return the hash of a file's head and its size: two files may share a name. Raises OSError."""
    with open_regular_file(file) as opened:
        return f"{hashlib.sha256(opened.read(2**20)).hexdigest()[:12]} of {file.stat().st_size} bytes"


def _stored(file: Path) -> Path:
    """Return the path of a file's result; the hash covers its chat template, which follows the vocabulary."""
    with open_regular_file(file) as opened:
        content = hashlib.sha256(opened.read(_METADATA_BYTES))
        opened.seek(-min(_TAIL_BYTES, file.stat().st_size), os.SEEK_END)
        content.update(opened.read())
    return home() / "trials" / f"{content.hexdigest()[:24]}.json"


def stored_trials() -> list[Trial]:
    """Return the results of all trials; a damaged one is left out."""
    trials = []
    for file in sorted((home() / "trials").glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            trials.append(msgspec.json.decode(file.read_bytes(), type=Trial))
    return trials


async def load_or_run(
    file: Path, name: str, properties: Mapping[str, Any], ask: Callable[[Request], Awaitable[Completion]]
) -> Trial:
    """Return the stored result for the file, or make the trial with `ask` and store its result.

    `properties` are those of llama.cpp's server: `chat_template` and `chat_template_caps`.
    """
    stored = _stored(file)
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(stored.read_bytes(), type=Trial)
    trial = Trial(
        name=name,
        has_template=bool(properties.get("chat_template")),
        system_role=bool((properties.get("chat_template_caps") or {}).get("supports_system_role", True)),
        calls_tools=await _calls(ask, "What is the weather in Bern?", "required"),
        chooses=await _calls(ask, "What is the weather in Bern?", "auto") and not await _calls(ask, "Thanks!", "auto"),
    )
    stored.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(stored, msgspec.json.encode(trial).decode())
    return trial


async def _calls(ask: Callable[[Request], Awaitable[Completion]], text: str, choice: str) -> bool:
    message = Message(role="user", text=text)
    request = Request(
        messages=(message,), tools=(_TOOL,), tool_choice=choice, temperature=0.0, seed=7, max_tokens=_MAX_TOKENS
    )
    try:
        calls = (await ask(request)).message.tool_calls
    except ModelError:
        return False
    return bool(calls) and all(call.name == _TOOL.name and call.malformed is None for call in calls)
