"""A flow with all its settings filled in from the spec: what a label in the results stands for."""

from __future__ import annotations

import hashlib
import inspect
import os
import string
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.core.files import data_folder
from agentlab.core.jsonl import first_error
from agentlab.core.messages import Reply, UserTurn
from agentlab.core.protocols import Tool
from agentlab.flows.text_files import read_file
from agentlab.session.session import Session
from agentlab.workbench.prompt_files import find_prompt_files
from agentlab.workbench.spec import FlowSpec, GenerationSpec, RetrievalSpec, Spec


@dataclass(frozen=True, kw_only=True)
class Variant:
    """A flow with all its settings filled in, under the label that results carry."""

    label: str
    flow: Any
    """The plug-in, or the object in its place."""
    settings: Any
    prompts: Mapping[str, str]
    prompt_sources: Mapping[str, str]
    """Where a prompt that is not the flow's own comes from: `the spec`, or a file."""
    prompt_files: Mapping[str, str]
    """SHA-256 of the file a prompt comes from, by the prompt's name."""
    model: str
    retrieval: RetrievalSpec
    generation: GenerationSpec
    tools: tuple[Tool, ...]
    tool_folder: Path | None
    """Where an agent's own scripts and MCP servers are described; None where it has none."""
    memory: str | None
    """The backend of its long-term memory; None for a flow without one."""

    @property
    def respond(self) -> Callable[[UserTurn, Session], Awaitable[Reply]]:
        return cast("Callable[[UserTurn, Session], Awaitable[Reply]]", getattr(self.flow, "respond", self.flow))

    def says(self, name: str, otherwise: Any = None) -> Any:
        """What the flow says of itself, such as NEEDS; its docs stand in `agentlab.flows`."""
        return getattr(self.flow, name, otherwise)

    def check_tools(self, there: Iterable[str]) -> None:
        """ConfigError where the setting `tools` names one that neither the flow nor anything found has."""
        known = {*there, *(tool.spec.name for tool in self.tools)}
        for name in getattr(self.settings, "tools", None) or ():
            if name not in known:
                raise ConfigError(f"flow {self.label!r}: tools: {plugins.unknown_name('tool', name, known)}")


def make_variant(spec: Spec, flow: FlowSpec, given: Any = None) -> Variant:
    """Resolve the flow (or take the object `given`) and lay its keys over the spec's; raises ConfigError."""
    found = given if given is not None else plugins.resolve("flows", flow.flow)
    where = f"flow {flow.name!r}"
    if not inspect.iscoroutinefunction(getattr(found, "respond", found)):
        raise ConfigError(
            f"{where}: it has no `async def respond(turn, session)`; another name is written as file.py:name"
        )
    set_outside = {
        key: os.environ[name] for name, key in getattr(found, "ENVIRONMENT", {}).items() if os.environ.get(name)
    }
    own_tools = getattr(found, "TOOLS", ())
    own = {key: value for key, value in set_outside.items() if key not in ("provider", "model")}
    settings = _validated(getattr(found, "Settings", None), {**own, **flow.settings}, where)
    overrides = {**spec.prompts.get(flow.flow, {}), **flow.prompts}
    modules = getattr(found, "PROMPT_MODULES", {})
    files = find_prompt_files(data_folder(settings.data) / "prompts", modules) if modules else {}
    files = {name: file for name, file in files.items() if name not in overrides}
    from_files = {name: read_file(file) for name, file in files.items()}
    return Variant(
        label=flow.name,
        flow=found,
        settings=settings,
        prompts=_prompts(getattr(found, "PROMPTS", {}), {**from_files, **overrides}, where),
        prompt_sources={name: str(file) for name, file in files.items()} | dict.fromkeys(overrides, "the spec"),
        prompt_files={name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()},
        model=_model(spec, flow, set_outside),
        retrieval=_validated(RetrievalSpec, {**spec.retrieval.model_dump(), **flow.retrieval}, where),
        generation=_validated(GenerationSpec, {**spec.generation.model_dump(), **flow.generation}, where),
        tools=tuple(plugins.resolve("tools", tool) if isinstance(tool, str) else tool for tool in own_tools),
        tool_folder=_tool_folder(settings, flow, where) if getattr(found, "DATA_TOOLS", False) else None,
        memory=_memory(spec, flow, getattr(found, "MEMORY", False), where),
    )


def check_consistency(spec: Spec, variants: Sequence[Variant]) -> None:
    """Raise ConfigError for epochs that would repeat themselves, and for prompts of flows that are not there."""
    for variant in variants:
        sampling = variant.generation
        if spec.epochs > 1 and (not sampling.temperature or sampling.seed is None):
            raise ConfigError(
                f"epochs: {spec.epochs} epochs of {variant.label} at temperature {sampling.temperature} with"
                f" seed {sampling.seed} would only repeat themselves; set generation.temperature above 0 and a seed"
                " (each epoch adds one to it)"
            )
    flows = {flow.flow for flow in spec.flows}
    for name in spec.prompts:
        if name not in flows:
            raise ConfigError(f"prompts: {plugins.unknown_name('flow of this spec', name, flows)}")


def _model(spec: Spec, flow: FlowSpec, from_environment: Mapping[str, str]) -> str:
    """The flow's own, then the spec's, then what the flow's environment variables say, then the spec's default."""
    named = {"provider", "model"} & set(from_environment)
    if flow.model is not None or "model" in spec.model_fields_set or not named:
        return flow.model or spec.model
    if len(named) < 2:
        raise ConfigError(
            f"flow {flow.name!r}: of the environment variables for its provider and model only one is set"
        )
    return f"{from_environment['provider']}/{from_environment['model']}"


def _tool_folder(settings: Any, flow: FlowSpec, where: str) -> Path | None:
    folder = data_folder(settings.data)
    if "data" in flow.settings and settings.data and not folder.is_dir():
        raise ConfigError(f"{where}: data: there is no folder {folder}; make it, or name another")
    return folder if any((folder / part).is_dir() for part in ("tools", "mcp-servers", "remote-mcp-servers")) else None


def _memory(spec: Spec, flow: FlowSpec, has_memory: bool, where: str) -> str | None:
    if flow.memory is not None and not has_memory:
        raise ConfigError(f"{where}: it has no long-term memory, so `memory` cannot be chosen")
    name = flow.memory or spec.memory
    if not has_memory or name == "none":
        return None
    plugins.resolve("memory", name)
    return name


def _validated(model: Any, values: dict[str, Any], where: str) -> Any:
    if model is None:
        if values:
            raise ConfigError(f"{where}: it has no settings of its own, and {sorted(values)[0]!r} is no key of a spec")
        return None
    known = getattr(model, "model_fields", None) or model.__dataclass_fields__
    for key in values:
        if key not in known:
            raise ConfigError(f"{where}: {plugins.unknown_name('key', key, known)}")
    try:
        return TypeAdapter(model).validate_python(values)
    except ValidationError as problem:
        raise ConfigError(f"{where}: {first_error(problem, model)}") from None


def _prompts(defaults: Mapping[str, str], overrides: Mapping[str, str], where: str) -> dict[str, str]:
    for name, text in overrides.items():
        if name not in defaults:
            raise ConfigError(f"{where}: {plugins.unknown_name('prompt', name, defaults)}")
        allowed, used = placeholders(defaults[name]) or [], placeholders(text)
        if used is None:
            raise ConfigError(
                f"{where}: prompt {name!r} has a brace that opens no plain {{placeholder}};"
                " write {{ or }} for a brace itself"
            )
        extra = set(used) - set(allowed)
        if extra:
            known = ", ".join(f"{{{field}}}" for field in sorted(allowed)) or "none"
            raise ConfigError(f"{where}: prompt {name!r} has no placeholder {{{sorted(extra)[0]}}}; it has {known}")
    return {**defaults, **overrides}


def placeholders(text: str) -> list[str] | None:
    """The names that a prompt has filled in, in order, each once; None for braces that are no plain placeholder."""
    try:
        parts = [(field, form, how) for _, field, form, how in string.Formatter().parse(text) if field is not None]
    except ValueError:
        return None
    return None if any(form or how for _, form, how in parts) else list(dict.fromkeys(field for field, _, _ in parts))
