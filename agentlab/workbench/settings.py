"""What can be set of a flow, for people and for editors: each key with its type, its default and what it means.

for key, schema in flow_settings("chatbox").items():
    print(key, schema["default"], schema["description"])
"""

from __future__ import annotations

import ast
import inspect
import itertools
import textwrap
from typing import Any

from pydantic import TypeAdapter

from agentlab.core import plugins
from agentlab.workbench.spec import Spec


def flow_settings(flow: str) -> dict[str, dict[str, Any]]:
    """The JSON schema of each setting; {} for a flow without settings. A default that is a file of ours has none."""
    settings = getattr(plugins.resolve("flows", flow), "Settings", None)
    if settings is None:
        return {}
    properties: dict[str, dict[str, Any]] = TypeAdapter(settings).json_schema()["properties"]
    told = {key: text for each in reversed(settings.__mro__[:-1]) for key, text in _docstrings(each).items()}
    for key, schema in properties.items():
        schema["description"] = told.get(key, "")
        if str(schema.get("default", "")).startswith(("/", "\\")) or ":\\" in str(schema.get("default", "")):
            schema["default"] = "the one that comes with it"
    return properties


def _docstrings(settings: type) -> dict[str, str]:
    """The texts that stand below the fields of a class, by the field."""
    [body] = ast.parse(textwrap.dedent(inspect.getsource(settings))).body
    found = {}
    for field, below in itertools.pairwise(getattr(body, "body", ())):
        match field, below:
            case ast.AnnAssign(target=ast.Name(id=key)), ast.Expr(value=ast.Constant(value=str(text))):
                found[key] = " ".join(text.split())
    return found


def spec_schema() -> dict[str, Any]:
    """The JSON schema of a spec; an entry of `flows` has the settings of the flow that it names."""
    schema = Spec.model_json_schema()
    schema["$defs"]["FlowSpec"]["allOf"] = [
        {"if": {"properties": {"flow": {"const": flow}}}, "then": {"properties": flow_settings(flow)}}
        for flow in plugins.names("flows")
    ]
    return schema
