"""Which tools a prompt shows, where there are more than it has room for: those nearest to what is to be done."""

from __future__ import annotations

import json
import re
from collections.abc import Collection

from agentlab.core.messages import ToolSpec
from agentlab.core.protocols import Tool
from agentlab.core.schemas import properties_of
from agentlab.flows.ego.own_tools import TOOLS, reflection
from agentlab.flows.ego.planner import step_schemas
from agentlab.knowledge.bm25 import Bm25Index
from agentlab.session.session import BYTES_PER_TOKEN, Session
from agentlab.tools.manual import tool_manual

BUILT_IN_TOOLS = frozenset(tool if isinstance(tool, str) else tool.spec.name for tool in TOOLS)


def select_tools(session: Session, wanted: str, needed: Collection[str] = ()) -> tuple[Tool, ...]:
    """The tools that are there now, in their order; of more than fit the `needed` ones, the agent's own, then those
    whose words are nearest to `wanted` (BM25). What is left out is a decision in the trace.
    """
    tools = [tool for tool in session.tools.values() if tool is not reflection]
    limit = session.settings.tool_tokens
    sizes = [_size(tool) for tool in tools]
    if sum(sizes) <= limit * BYTES_PER_TOKEN:
        return tuple(tools)
    scores = Bm25Index.build([_words(tool.spec) for tool in tools]).scores(_apart(wanted))
    names = [tool.spec.name for tool in tools]
    best = sorted(
        range(len(tools)), key=lambda at: (names[at] not in needed, names[at] not in BUILT_IN_TOOLS, -scores[at], at)
    )
    room, chosen = limit * BYTES_PER_TOKEN, set()
    for at in best:
        if sizes[at] <= room:
            room -= sizes[at]
            chosen.add(at)
    near = sum(1 for at in chosen if scores[at] > 0)
    why = f"{limit} tokens hold no more; {near} of them share words with what is to be done"
    session.decide("tools offered", f"{len(chosen)} of {len(tools)}", why)
    return tuple(tools[at] for at in sorted(chosen))


def _size(tool: Tool) -> int:
    """Bytes in a prompt, the schema of an answer that calls it included."""
    texts = [tool_manual([tool]), *(json.dumps(schema, ensure_ascii=False) for schema in step_schemas([tool.spec]))]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def _words(spec: ToolSpec) -> str:
    return _apart(" ".join([spec.name, spec.description, *properties_of(spec.parameters)]))


def _apart(text: str) -> str:
    """With the words of `snake_case` and `camelCase` names apart."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
