"""Tools of a folder of Python files, which run in this process.

    NAME = "dice"
    DESCRIPTION = "Roll a die."
    PARAMETERS = {"type": "object", "properties": {"sides": {"type": "integer"}}, "required": ["sides"]}

    def execute(arguments):          # or async; returns text, or what JSON can hold
        return 4

A file may have `build()` instead and hand out a tool as agentlab's own are made. The names may be written small.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import importlib.util
import inspect
import json
import threading
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import AgentlabError, ConfigError, ToolError
from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import Tool
from agentlab.tools.mcp.listing import accepted

if TYPE_CHECKING:
    from agentlab.session.session import Session


def load_tools(folder: Path, seconds: float) -> tuple[list[tuple[str, Tool]], list[str]]:
    """The tool of each file, by its stem, and what is odd about them; raises ConfigError for the first broken one."""
    tools: list[tuple[str, Tool]] = []
    problems: list[str] = []
    for file in sorted(folder.glob("[!_]*.py")):
        tool, notes = _tool(_loaded(file), file, seconds)
        tools.append((file.stem, tool))
        problems += notes
    return tools, problems


class FunctionTool:
    """A function of somebody else's; `seconds` is how long it is waited for."""

    def __init__(self, spec: ToolSpec, execute: Callable[[dict[str, Any]], Any], seconds: float) -> None:
        self.spec = spec
        self._execute = execute
        self._seconds = seconds

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """What it returns, as text; raises what it raises, and ToolError where it takes too long."""
        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                if inspect.iscoroutinefunction(self._execute):
                    result = await self._execute(arguments)
                else:
                    result = await _in_thread(self._execute, arguments)
                    result = await result if inspect.isawaitable(result) else result
        except TimeoutError:
            if not limit.expired():
                raise
            raise ToolError(f"{self.spec.name} did not finish within {self._seconds:g} seconds") from None
        if result is None or isinstance(result, str):
            return result or ""
        return json.dumps(result, ensure_ascii=False, default=str)


async def _in_thread(execute: Callable[[dict[str, Any]], Any], arguments: dict[str, Any]) -> Any:
    """As asyncio.to_thread, for what may block; a call that is given up goes on there but keeps no process alive."""
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            outcome.set_result(context.run(execute, arguments))
        except BaseException as failure:
            outcome.set_exception(failure)

    threading.Thread(target=work, name="agentlab-tool", daemon=True).start()
    return await asyncio.wrap_future(outcome)


def _loaded(file: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"agentlab_data_tool_{file.stem}", file)
    assert spec is not None and spec.loader is not None, "a .py file has a loader"
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as failure:
        raise ConfigError(f"{file}: cannot be loaded: {_told(failure)}") from None
    return module


def _tool(module: ModuleType, file: Path, seconds: float) -> tuple[Tool, list[str]]:
    if hasattr(module, "build"):
        try:
            built = module.build()
        except Exception as failure:
            raise ConfigError(f"{file}: build() failed: {_told(failure)}") from None
        if not isinstance(getattr(built, "spec", None), ToolSpec) or not callable(getattr(built, "run", None)):
            raise ConfigError(f"{file}: build() returns a tool with a spec (ToolSpec) and run(arguments, session)")
        return built, []
    execute = getattr(module, "execute", None)
    row = {
        key: getattr(module, name.upper(), getattr(module, name, default))
        for key, name, default in (
            ("name", "name", file.stem),
            ("description", "description", ""),
            ("inputSchema", "parameters", None),
        )
    }
    if not callable(execute) or row["inputSchema"] is None:
        raise ConfigError(f"{file}: a tool has PARAMETERS and execute(arguments), or build()")
    specs, problems = accepted(file.stem, [row])
    if not specs:
        raise ConfigError(f"{file}: {problems[0]}")
    return FunctionTool(specs[0], execute, seconds), list(problems)


def _told(failure: BaseException) -> str:
    if isinstance(failure, AgentlabError):
        return str(failure)
    return f"{type(failure).__name__}: {' '.join(str(failure).split())[:200]}"
