"""Variants of flows: a flow with its settings from the spec, under one label of the results."""

from __future__ import annotations

import hashlib
import inspect
import os
import string
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.core.files import data_folder
from agentlab.core.jsonl import validate_settings
from agentlab.core.messages import Reply, UserTurn
from agentlab.core.protocols import Tool
from agentlab.flows.text_files import read_file
from agentlab.session.session import Session
from agentlab.workbench.prompt_files import find_prompt_files
from agentlab.workbench.spec import FlowSpec, GenerationSpec, RetrievalSpec, Spec


@dataclass(frozen=True, kw_only=True)
class Variant:
    """Flow with validated settings; `label` names it in the results."""

    label: str
    flow: Any
    """Flow's module or object."""
    settings: Any
    prompts: Mapping[str, str]
    prompt_sources: Mapping[str, str]
    """Source of each replaced prompt: `the spec`, or a file."""
    prompt_files: Mapping[str, str]
    """SHA-256 of each prompt file, by the prompt's name."""
    model: str
    retrieval: RetrievalSpec
    generation: GenerationSpec
    tools: tuple[Tool, ...]
    tool_folder: Path | None
    """Folder of an agent's scripts and MCP servers; None if it has none."""
    memory: str | None
    """Backend of its long-term memory; None for a flow without one."""

    @property
    def respond(self) -> Callable[[UserTurn, Session], Awaitable[Reply]]:
        return cast("Callable[[UserTurn, Session], Awaitable[Reply]]", getattr(self.flow, "respond", self.flow))

    def attribute(self, name: str, default: Any = None) -> Any:
        """Return an attribute of the flow, such as NEEDS; `agentlab.flows` documents them."""
        return getattr(self.flow, name, default)

    def check_tools(self, offered: Iterable[str]) -> None:
        """Raise ConfigError if the setting `tools` names a tool that is neither `offered` nor one of the flow."""
        names = {*offered, *(tool.spec.name for tool in self.tools)}
        plugins.check_names("tool", getattr(self.settings, "tools", None) or (), names, f"flow {self.label!r}: tools: ")


def make_variant(spec: Spec, flow: FlowSpec, given: Any = None) -> Variant:
    """Return the variant of `flow`, whose keys override those of the spec; raise ConfigError.

    `given` is an object that replaces the plug-in.
    """
    plugin = given if given is not None else plugins.resolve("flows", flow.flow)
    location = f"flow {flow.name!r}"
    if not inspect.iscoroutinefunction(getattr(plugin, "respond", plugin)):
        raise ConfigError(
            f"{location}: it has no `async def respond(turn, session)`; write file.py:name for another name"
        )
    from_environment = {
        key: os.environ[name] for name, key in getattr(plugin, "ENVIRONMENT", {}).items() if os.environ.get(name)
    }
    own_tools = getattr(plugin, "TOOLS", ())
    own = {key: value for key, value in from_environment.items() if key not in ("provider", "model")}
    model, values = getattr(plugin, "Settings", None), {**own, **flow.settings}
    if model is None and values:
        raise ConfigError(f"{location}: unknown key {min(values)!r}; this flow has no settings")
    settings: Any = None if model is None else validate_settings(model, values, location)
    overrides = {**spec.prompts.get(flow.flow, {}), **flow.prompts}
    modules = getattr(plugin, "PROMPT_MODULES", {})
    files = find_prompt_files(data_folder(settings.data) / "prompts", modules) if modules else {}
    files = {name: file for name, file in files.items() if name not in overrides}
    from_files = {name: read_file(file) for name, file in files.items()}
    return Variant(
        label=flow.name,
        flow=plugin,
        settings=settings,
        prompts=_prompts(getattr(plugin, "PROMPTS", {}), {**from_files, **overrides}, location),
        prompt_sources={name: str(file) for name, file in files.items()} | dict.fromkeys(overrides, "the spec"),
        prompt_files={name: hashlib.sha256(file.read_bytes()).hexdigest() for name, file in files.items()},
        model=_model(spec, flow, from_environment),
        retrieval=validate_settings(RetrievalSpec, {**_inherited(spec.retrieval, flow), **flow.retrieval}, location),
        generation=validate_settings(GenerationSpec, {**spec.generation.model_dump(), **flow.generation}, location),
        tools=tuple(plugins.resolve("tools", tool) if isinstance(tool, str) else tool for tool in own_tools),
        tool_folder=_tool_folder(settings, flow, location) if getattr(plugin, "DATA_TOOLS", False) else None,
        memory=_memory(spec, flow, getattr(plugin, "MEMORY", False), location),
    )


def check_consistency(spec: Spec, variants: Sequence[Variant]) -> None:
    """Raise ConfigError for epochs that would be identical, and for prompts of flows that the spec does not have."""
    for variant in variants:
        sampling = variant.generation
        if spec.epochs > 1 and (not sampling.temperature or sampling.seed is None):
            raise ConfigError(
                f"epochs: {spec.epochs} epochs of {variant.label} at temperature {sampling.temperature} with"
                f" seed {sampling.seed} would be identical; set generation.temperature above 0 and a seed"
                " (each epoch adds one to it)"
            )
    plugins.check_names("flow of this spec", spec.prompts, {flow.flow for flow in spec.flows}, "prompts: ")


def _inherited(retrieval: RetrievalSpec, flow: FlowSpec) -> dict[str, Any]:
    """Return the spec's keys for a flow's retrieval, without the settings of another retriever."""
    other = flow.retrieval.get("method", retrieval.method) != retrieval.method
    return retrieval.model_dump(include=set(RetrievalSpec.model_fields) if other else None)


def _model(spec: Spec, flow: FlowSpec, from_environment: Mapping[str, str]) -> str:
    """Return the model of the flow, else of the spec, else of the environment variables, else the spec's default."""
    keys = {"provider", "model"} & set(from_environment)
    if flow.model is not None or "model" in spec.model_fields_set or not keys:
        return flow.model or spec.model
    if len(keys) < 2:
        raise ConfigError(
            f"flow {flow.name!r}: only one of its environment variables for provider and model is set; set both"
        )
    return f"{from_environment['provider']}/{from_environment['model']}"


def _tool_folder(settings: Any, flow: FlowSpec, location: str) -> Path | None:
    folder = data_folder(settings.data)
    if "data" in flow.settings and settings.data and not folder.is_dir():
        raise ConfigError(f"{location}: data: there is no folder {folder}; make it, or name another")
    return folder if any((folder / part).is_dir() for part in ("tools", "mcp-servers", "remote-mcp-servers")) else None


def _memory(spec: Spec, flow: FlowSpec, has_memory: bool, location: str) -> str | None:
    if flow.memory is not None and not has_memory:
        raise ConfigError(f"{location}: it has no long-term memory; remove the key `memory`")
    name = flow.memory or spec.memory
    if not has_memory or name == "none":
        return None
    plugins.resolve("memory", name)
    return name


def _prompts(defaults: Mapping[str, str], overrides: Mapping[str, str], location: str) -> dict[str, str]:
    plugins.check_names("prompt", overrides, defaults, f"{location}: ")
    for name, text in overrides.items():
        allowed, used = placeholders(defaults[name]) or [], placeholders(text)
        if used is None:
            raise ConfigError(
                f"{location}: prompt {name!r} has a brace that opens no plain {{placeholder}};"
                " write {{ or }} for a brace itself"
            )
        extra = set(used) - set(allowed)
        if extra:
            names = ", ".join(f"{{{field}}}" for field in sorted(allowed)) or "none"
            raise ConfigError(f"{location}: prompt {name!r} has no placeholder {{{sorted(extra)[0]}}}; it has {names}")
    return {**defaults, **overrides}


def placeholders(text: str) -> list[str] | None:
    """Return the unique placeholders of a prompt in order; None if a brace is not part of a plain placeholder."""
    try:
        parts = [(field, form, how) for _, field, form, how in string.Formatter().parse(text) if field is not None]
    except ValueError:
        return None
    return None if any(form or how for _, form, how in parts) else list(dict.fromkeys(field for field, _, _ in parts))
