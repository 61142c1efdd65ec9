"""Stub tools from the data set, which return the results that a conversation lists for each turn.

A tool returns the results of its name in their order within the turn. After the last one it returns a neutral success:
a data set with too few results must not look like a failing tool.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import ToolContext
from agentlab.tools import FunctionTool, Work

NEUTRAL = '{"status": "success"}'


class StubTools:
    """Tools of one conversation; `begin_turn` sets the results of the next turn."""

    def __init__(self, specs: Sequence[ToolSpec]) -> None:
        self.tools = tuple(FunctionTool(spec, self._next_result_of(spec.name)) for spec in specs)
        self._queues: dict[str, list[Mapping[str, Any]]] = {}

    def begin_turn(self, results: Sequence[Mapping[str, Any]]) -> None:
        self._queues = {}
        for result in results:
            self._queues.setdefault(result["name"], []).append(result)

    def _next_result_of(self, name: str) -> Work:
        async def run(arguments: dict[str, Any], context: ToolContext) -> str:
            queue = self._queues.get(name)
            if not queue:
                return NEUTRAL
            result = {key: value for key, value in queue.pop(0).items() if key != "name"}
            value = result.get("results") if set(result) == {"results"} else result
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

        return run
