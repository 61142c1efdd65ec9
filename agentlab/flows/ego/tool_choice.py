"""Selection of the tools nearest to the task, if not all tools fit into a prompt."""

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

MESSAGE_WEIGHT = 3.0
"""Weight of the message against memories, steps and comments together; both scores are scaled to 1."""
BUILT_IN_TOOLS = frozenset(tool if isinstance(tool, str) else tool.spec.name for tool in TOOLS)


def select_tools(session: Session, query: str, needed: Collection[str] = (), *, message: str = "") -> tuple[Tool, ...]:
    """Return the session's tools, in their order, that fit into the setting `tool_tokens`.

    The `needed` ones come first, then the agent's own, then those nearest to `query` by BM25, of which `message` counts
    most. A selection is a decision in the trace.
    """
    tools = [tool for tool in session.tools.values() if tool is not reflection]
    limit = session.settings.tool_tokens
    sizes = [_size(tool) for tool in tools]
    if sum(sizes) <= limit * BYTES_PER_TOKEN:
        return tuple(tools)
    ranking = Bm25Index.build([_words(tool.spec) for tool in tools])
    scores = ranking.scores(_split_names(query))
    if message:
        of_message = ranking.scores(_split_names(message))
        scores = scores / max(scores.max(), 1e-9) + MESSAGE_WEIGHT * of_message / max(of_message.max(), 1e-9)
    names = [tool.spec.name for tool in tools]
    best = sorted(
        range(len(tools)), key=lambda i: (names[i] not in needed, names[i] not in BUILT_IN_TOOLS, -scores[i], i)
    )
    remaining, chosen = limit * BYTES_PER_TOKEN, set()
    for index in best:
        if sizes[index] <= remaining:
            remaining -= sizes[index]
            chosen.add(index)
    n_matching = sum(1 for index in chosen if scores[index] > 0)
    reason = f"{limit} tokens hold no more; {n_matching} of them share words with what is to be done"
    session.decide("tools offered", f"{len(chosen)} of {len(tools)}", reason)
    return tuple(tools[index] for index in sorted(chosen))


def _size(tool: Tool) -> int:
    """Return the bytes of a tool in a prompt, including its schema in the requested completion."""
    texts = [tool_manual([tool]), *(json.dumps(schema, ensure_ascii=False) for schema in step_schemas([tool.spec]))]
    return sum(len(text.encode("utf-8", "replace")) for text in texts)


def _words(spec: ToolSpec) -> str:
    return _split_names(" ".join([spec.name, spec.description, *properties_of(spec.parameters)]))


def _split_names(text: str) -> str:
    """Return `text` with `snake_case` and `camelCase` names split into words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])|_", " ", text)
