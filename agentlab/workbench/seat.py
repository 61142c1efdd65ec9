"""Parts of a session that depend on the conversation and not on the flow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from agentlab.core.constants import LOOKUP_DOCUMENTS, MEMORY_TOOLS
from agentlab.core.protocols import Index, Memory, Tool
from agentlab.core.stream import Stream
from agentlab.core.trace import Trace
from agentlab.session.history import History
from agentlab.wire.recorder import Recorder
from agentlab.workbench.variants import Variant


@dataclass(frozen=True, kw_only=True)
class Seat:
    """Parts of one conversation for its session. A missing part is new, empty or taken from the spec."""

    trace: Trace
    index: Index | None = None
    tools: Sequence[Tool] = ()
    """Tools from the data set. They replace the flow's tools except the document search and the memory tools."""
    memory: Memory | None = None
    folder: Path | None = None
    history: History | None = None
    now: datetime | None = None
    stream: Stream = field(default_factory=Stream)
    mcp: Path | None = None
    """File of MCP servers whose tools are added; it replaces the `mcp` of the spec."""
    live: bool = False
    """True for a chat. It adopts changed tools of servers, reports their problems, and edits the spec's folder `files`
    in place."""
    recorder: Recorder | None = None

    def tools_of(self, variant: Variant) -> dict[str, Tool]:
        """Return the offered tools of the flow, then those from the data set."""
        dataset_tools = {tool.spec.name: tool for tool in self.tools}

        def is_offered(name: str) -> bool:
            if name == LOOKUP_DOCUMENTS:
                return self.index is not None
            if name in MEMORY_TOOLS:
                # A tool from the data set replaces the built-in one of its name.
                return self.memory is not None and name not in dataset_tools
            return not dataset_tools

        own = {tool.spec.name: tool for tool in variant.tools if is_offered(tool.spec.name)}
        return {**own, **{name: tool for name, tool in dataset_tools.items() if name not in own}}
