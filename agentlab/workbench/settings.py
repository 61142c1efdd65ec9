"""Descriptions of a flow's settings from its settings class, for `agentlab list flows` and `list schema`."""

from __future__ import annotations

import ast
import inspect
import textwrap
from itertools import pairwise
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.workbench.spec import Spec, Strict

PACKAGE = Path(__file__).parents[1]


def settings_of(flow: str) -> dict[str, dict[str, Any]]:
    """Return the JSON schema of each setting of a flow, with the docstring below it as its `description`."""
    try:
        settings = getattr(plugins.resolve("flows", flow), "Settings", None)
    except ConfigError:
        return {}  # a broken plug-in must not hide the other flows
    if settings is None:
        return {}
    schema = TypeAdapter(settings).json_schema()
    _describe(schema["properties"], settings)
    for setting in schema["properties"].values():
        if str(setting.get("default")).startswith(str(PACKAGE)):
            del setting["default"]  # the path of a package file differs between machines
    return dict(schema["properties"])


def spec_schema() -> dict[str, Any]:
    """Return the JSON schema of a spec, with the settings of all known flows."""
    schema = Spec.model_json_schema()
    for kind in Strict.__subclasses__():
        _describe(schema["$defs"].get(kind.__name__, schema)["properties"], kind)
    schema["$defs"]["FlowSpec"]["allOf"] = [
        {
            "if": {"properties": {"flow": {"const": flow}}, "required": ["flow"]},
            "then": {"properties": settings_of(flow)},
        }
        for flow in plugins.names("flows")
    ]
    return schema


def _describe(properties: dict[str, Any], settings: type) -> None:
    """Add to each key of `settings` in a schema the docstring below it as its description."""
    for kind in reversed(settings.__mro__):
        for name, text in _docstrings(kind).items():
            properties.get(name, {})["description"] = text


def _docstrings(kind: type) -> dict[str, str]:
    try:
        body = ast.parse(textwrap.dedent(inspect.getsource(kind))).body[0]
    except (OSError, TypeError, SyntaxError):
        return {}
    return {
        field.target.id: " ".join(str(text.value.value).split())
        for field, text in pairwise(getattr(body, "body", ()))
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)
        if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant)
    }
