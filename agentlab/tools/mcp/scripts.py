"""Tools from a folder of Python files, which run in this process.

    NAME = "dice"
    DESCRIPTION = "Roll a die."
    PARAMETERS = {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}

    def execute(arguments):          # or async; returns text or a JSON value
        return 4

The names may be lower case. A file may instead define functions with the decorator `@tool`, like the built-in tools.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import inspect
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from agentlab.core.errors import AgentlabError, ConfigError, ToolError
from agentlab.core.plugins import load_user_file
from agentlab.core.protocols import ToolContext
from agentlab.tools import FunctionTool, Work
from agentlab.tools.mcp.answers import truncate_result
from agentlab.tools.mcp.config import left_out
from agentlab.tools.mcp.listing import FoundTool, usable_tools


def load_scripts(folder: Path, seconds: float, missing: list[str] | None = None) -> list[FoundTool]:
    """Return the tools of all files.

    `seconds` is the time limit of one `execute`. `missing` gets a line for each broken file; without it such a file
    raises ConfigError.
    """
    tools: list[FoundTool] = []
    for file in sorted(folder.glob("[!_]*.py")):
        with left_out(missing):
            module = _load_module(file)
            decorated = [value for value in vars(module).values() if isinstance(value, FunctionTool)]
            tools += [FoundTool(tool.spec, tool.run, tool.instruction, tool.defaults, file.stem) for tool in decorated]
            if not decorated:
                tools.append(_script(module, file, seconds))
    return tools


def _load_module(file: Path) -> ModuleType:
    try:
        return cast(ModuleType, load_user_file(file))
    except (Exception, SystemExit) as failure:
        kind = "" if isinstance(failure, AgentlabError) else f"{type(failure).__name__}: "
        raise ConfigError(f"{file}: cannot be loaded: {kind}{' '.join(str(failure).split())[:200]}") from None


def _script(module: ModuleType, file: Path, seconds: float) -> FoundTool:
    def value_of(name: str, default: Any) -> Any:
        return getattr(module, name.upper(), getattr(module, name, default))

    execute, parameters = getattr(module, "execute", None), value_of("parameters", None)
    if not callable(execute) or parameters is None:
        raise ConfigError(f"{file}: no tool; define PARAMETERS and execute(arguments), or use the decorator @tool")
    row = {"name": value_of("name", file.stem), "description": value_of("description", ""), "inputSchema": parameters}
    specs, problems = usable_tools(file.stem, [row])
    if not specs:
        raise ConfigError(f"{file}: {problems[0]}")
    return FoundTool(specs[0], _within(seconds, specs[0].name, execute), source=file.stem)


def _within(seconds: float, name: str, execute: Callable[[dict[str, Any]], Any]) -> Work:
    async def run(arguments: dict[str, Any], context: ToolContext) -> str:
        """Return the result of `execute` as text; raise its exceptions, and ToolError if it takes too long."""
        limit = asyncio.timeout(seconds)
        try:
            async with limit:
                result = await _in_thread(execute, arguments)
                result = await result if inspect.isawaitable(result) else result
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolError(f"{name} did not finish within {seconds:g} seconds") from None
        if result is None or isinstance(result, str):
            return truncate_result(result or "")
        return truncate_result(json.dumps(result, ensure_ascii=False, default=str))

    return run


async def _in_thread(execute: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Any:
    """Run `execute` like asyncio.to_thread, but in a daemon thread: an abandoned call keeps no process alive."""
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()
    variables = contextvars.copy_context()

    def work() -> None:
        try:
            outcome.set_result(variables.run(execute, arguments))
        except BaseException as failure:
            outcome.set_exception(failure)

    threading.Thread(target=work, name="agentlab-tool", daemon=True).start()
    return await asyncio.wrap_future(outcome)
