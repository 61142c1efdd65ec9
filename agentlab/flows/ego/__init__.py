"""Layered agent: ego, planner and step-by-step coordinator, with text memory and reflection after each response.

`agent`: the outer layer. `plain`: messages without a plan. `planner`: strategy and steps. `react`: carries out the
steps. `prompting`: its model calls.
`memory`, `short_term`: its memory files; the part that prompts show. `own_tools`: its tools for itself.
`tool_choice`: tools that a prompt shows. `parameters`: repairs arguments. `commands`: commands of users to the memory.
`prompts.yaml`, `personalities/`: its prompts and personalities.
"""

from __future__ import annotations

from pathlib import Path

from agentlab.flows.ego.agent import EgoSettings, respond
from agentlab.flows.ego.memory import facts
from agentlab.flows.ego.own_tools import TOOLS
from agentlab.flows.text_files import read_texts
from agentlab.tools import ask, web

__all__ = ["PROMPTS", "PROMPT_MODULES", "TOOLS", "Settings", "facts", "respond"]

PROMPT_MODULES: dict[str, dict[str, str]] = {
    **read_texts(Path(__file__).with_name("prompts.yaml")),
    "tools": {"question": ask.PROMPT, "llmquery": web.PROMPT},
}
"""Prompts by folder. A file `<data folder>/prompts/<folder>/<PROMPT_NAME>.txt` replaces one of them."""
PROMPTS = {name: text for prompts in PROMPT_MODULES.values() for name, text in prompts.items()}
DATA_TOOLS = True
CALLS_PER_TURN = 12.0
ENVIRONMENT = {"LLM_AGENT_DATA_DIR": "data"}
Settings = EgoSettings
