"""The place of one conversation: what it brings to its session, whichever flow answers in it."""

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
    """What is left out is new, empty or as the spec says."""

    trace: Trace
    index: Index | None = None
    tools: Sequence[Tool] = ()
    """Of its data set; they replace the flow's own, but for look-ups and, where there is a memory, what works on it."""
    memory: Memory | None = None
    folder: Path | None = None
    history: History | None = None
    now: datetime | None = None
    stream: Stream = field(default_factory=Stream)
    mcp: Path | None = None
    """A file of servers whose tools come on top, in place of the spec's."""
    live: bool = False
    """Of a chat: it takes up what servers change, tells what is odd about them, and works in the folder `files` of the
    spec itself."""
    recorder: Recorder | None = None

    def tools_of(self, variant: Variant) -> dict[str, Tool]:
        """Those of the flow that are offered here, then those that the conversation brings."""
        brought = {tool.spec.name: tool for tool in self.tools}

        def offered(name: str) -> bool:
            if name == LOOKUP_DOCUMENTS:
                return self.index is not None
            if name in MEMORY_TOOLS:
                # What a conversation brings answers in place of ours; the steps on memory stay.
                return self.memory is not None and name not in brought
            return not brought

        own = {tool.spec.name: tool for tool in variant.tools if offered(tool.spec.name)}
        return {**own, **{name: tool for name, tool in brought.items() if name not in own}}
