"""Trial of a model file that the catalogue does not know: can its chat template take a system text, does it call tools?

The chat template is that of the file. The trial makes at most six short calls when the file is first started. Its
result is written to `trials/` in AGENTLAB_HOME, by the content of the file. `agentlab list models` shows it.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlab.core.errors import ModelError, Unreachable
from agentlab.core.files import open_regular_file, write_atomically
from agentlab.core.messages import Completion, Message, Request, ToolSpec
from agentlab.models.provider import UNREADABLE
from agentlab.models.weights import home

_TOOL = ToolSpec(
    name="get_weather",
    description="Tell the weather in a city.",
    parameters={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)
_QUESTION = "What is the weather in Bern?"
_REQUEST = Request(messages=(), tools=(_TOOL,), temperature=0.0, seed=7, max_tokens=96)
_METADATA_BYTES, _TAIL_BYTES = 2**25, 2**20
_EDITION = "2"
"""Folder of the results; another name when the trial makes other calls."""
Ability = Literal["calls no tools", "calls tools, but not when it should", "calls tools"]
"""`not when it should`: it calls a tool after thanks, or none after a question that needs one."""
_ABILITIES: tuple[Ability, ...] = get_args(Ability)


class Trial(Struct, frozen=True, kw_only=True):
    name: str = ""
    has_template: bool = True
    """False for a file without a chat template: llama.cpp then uses ChatML."""
    system_role: bool = True
    """False if the template has no system role: the system text then opens the first user message."""
    own_form: Ability = "calls tools"
    """Result with tools in our form, a grammar that restricts the reply."""
    template_form: Ability | None = None
    """Result with tools in the form of the chat template; None if the template has no tools."""

    @property
    def calls_tools(self) -> bool:
        return {self.own_form, self.template_form} & {*_ABILITIES[1:]} != set()

    @property
    def prefers_template_form(self) -> bool:
        form = self.template_form
        return form is not None and _ABILITIES.index(form) > _ABILITIES.index(self.own_form)

    def __str__(self) -> str:
        template = "chat template of the file" if self.has_template else "no chat template, so ChatML"
        system = "system role" if self.system_role else "no system role, so the first user message has its text"
        form = f"in the form of its template: {self.template_form}" if self.template_form else "template without tools"
        return f"{template}; {system}; {self.own_form}; {form}{', which is used' if self.prefers_template_form else ''}"


MEASURED = Trial()
"""Result for the models of the catalogue, which need no trial."""


def file_id(file: Path) -> str:
    """Return the hash of a file's head and its size: two files may share a name. Raises OSError."""
    with open_regular_file(file) as opened:
        return f"{hashlib.sha256(opened.read(2**20)).hexdigest()[:12]} of {file.stat().st_size} bytes"


def stored_trials() -> list[Trial]:
    """Return the results of all trials; a damaged one is left out."""
    trials = []
    for file in sorted((home() / "trials" / _EDITION).glob("*.json")):
        with suppress(OSError, msgspec.MsgspecError):
            trials.append(msgspec.json.decode(file.read_bytes(), type=Trial))
    return trials


def read_template(name: str, properties: Mapping[str, Any]) -> Trial:
    """Return the result before any call; `properties` are those of llama.cpp's server."""
    can = properties.get("chat_template_caps") or {}
    return Trial(
        name=name,
        has_template=bool(properties.get("chat_template")),
        system_role=bool(can.get("supports_system_role", True)),
        template_form=_ABILITIES[0] if can.get("supports_tools") else None,
    )


async def load_or_run(file: Path, template: Trial, ask: Callable[[Request, bool], Awaitable[Completion]]) -> Trial:
    """Return the stored result for the file, or make the trial with `ask` and store its result.

    `ask` takes a request, and True for tools in the form of the template.
    """
    # The hash covers the chat template of the file, and its first and last tensors.
    with open_regular_file(file) as opened:
        content = hashlib.sha256(opened.read(_METADATA_BYTES))
        opened.seek(-min(_TAIL_BYTES, file.stat().st_size), os.SEEK_END)
        content.update(opened.read())
    stored = home() / "trials" / _EDITION / f"{content.hexdigest()[:24]}.json"
    with suppress(OSError, msgspec.MsgspecError):
        return msgspec.json.decode(stored.read_bytes(), type=Trial)
    in_template = None if template.template_form is None else await _ability(ask, True)
    trial = replace(template, own_form=await _ability(ask, False), template_form=in_template)
    stored.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(stored, msgspec.json.encode(trial).decode())
    return trial


async def _ability(ask: Callable[[Request, bool], Awaitable[Completion]], in_template_form: bool) -> Ability:
    async def calls(text: str, choice: str) -> bool:
        request = replace(_REQUEST, messages=(Message(role="user", text=text),), tool_choice=choice)
        try:
            made = (await ask(request, in_template_form)).message.tool_calls
        except Unreachable:
            raise
        except (ModelError, *UNREADABLE):
            return False
        return bool(made) and all(call.name == _TOOL.name and call.malformed is None for call in made)

    if not await calls(_QUESTION, "required"):
        return "calls no tools"
    chooses = await calls(_QUESTION, "auto") and not await calls("Thanks!", "auto")
    return "calls tools" if chooses else "calls tools, but not when it should"
