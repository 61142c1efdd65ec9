"""agentlab replays the same conversations through several ways of orchestrating an LLM: what each costs and buys.

import agentlab as al

lab = al.Lab("evals/flows.yaml", limit=2)
run = lab.run_sync()            # or, in a notebook: await lab.run()
run.table()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentlab.errors import AgentlabError
    from agentlab.evals.datasets import load_dataset
    from agentlab.evals.results import open_run
    from agentlab.knowledge.documents import load_documents
    from agentlab.lab import Lab
    from agentlab.messages import Message, Passage, Reply, ToolCall, ToolSpec, UserTurn
    from agentlab.models.scripted import Scripted
    from agentlab.session import Session
    from agentlab.spec import load_spec

__version__ = "0.1.0"

_WHERE = {
    "AgentlabError": "agentlab.errors",
    "Lab": "agentlab.lab",
    "Message": "agentlab.messages",
    "Passage": "agentlab.messages",
    "Reply": "agentlab.messages",
    "Scripted": "agentlab.models.scripted",
    "Session": "agentlab.session",
    "ToolCall": "agentlab.messages",
    "ToolSpec": "agentlab.messages",
    "UserTurn": "agentlab.messages",
    "load_dataset": "agentlab.evals.datasets",
    "load_documents": "agentlab.knowledge.documents",
    "load_spec": "agentlab.spec",
    "open_run": "agentlab.evals.results",
}

__all__ = [
    "AgentlabError",
    "Lab",
    "Message",
    "Passage",
    "Reply",
    "Scripted",
    "Session",
    "ToolCall",
    "ToolSpec",
    "UserTurn",
    "__version__",
    "load_dataset",
    "load_documents",
    "load_spec",
    "open_run",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use: `agentlab --help` must not wait for pydantic and numpy.
    if name not in _WHERE:
        raise AttributeError(f"module 'agentlab' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
