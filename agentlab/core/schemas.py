"""Checks the arguments of a tool call against the tool's JSON schema, with an error a model can act on."""

from __future__ import annotations

import logging
from typing import Any

# Not where it is used, which would be in the first call of a tool: a second of its latency.
import jsonschema
import referencing

from agentlab.core.errors import ToolError
from agentlab.core.messages import ToolSpec

log = logging.getLogger(__name__)


def check_arguments(spec: ToolSpec, arguments: dict[str, Any]) -> None:
    """Raise ToolError where `arguments` break the schema of `spec`."""
    # A registry of its own, because the default one fetches what a schema refers to.
    validator = jsonschema.Draft202012Validator(spec.parameters, registry=referencing.Registry())
    try:
        problems = sorted(validator.iter_errors(arguments), key=str)
    except Exception:
        # Schemas come from other people's data sets, with types such as `dict`, broken patterns and dead references.
        log.debug("the schema of %s cannot be used; the call goes ahead unchecked", spec.name, exc_info=True)
        return
    if problems:
        first = problems[0]
        where = ".".join(str(part) for part in first.absolute_path) or "arguments"
        raise ToolError(f"{spec.name}: {where}: {first.message[:300]}")
