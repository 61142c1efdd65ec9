"""agentlab replays the same conversations through several ways of orchestrating an LLM: what each costs and buys.

import agentlab as al

lab = al.Lab("evals/flows.yaml", limit=2)
run = lab.run_sync()            # or, in a notebook: await lab.run()
run.table()
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from agentlab.core.version import __version__ as __version__

if TYPE_CHECKING:
    from agentlab.core.errors import AgentlabError
    from agentlab.core.messages import Message, Passage, Reply, ToolCall, ToolSpec, UserTurn
    from agentlab.data.datasets import load_dataset
    from agentlab.data.documents import load_documents
    from agentlab.evals.published.reproduce import reproduce
    from agentlab.lab.judging import judge
    from agentlab.lab.lab import Lab
    from agentlab.lab.regrading import score
    from agentlab.lab.run import import_predictions, open_run
    from agentlab.models.scripted import Scripted
    from agentlab.session.session import Session
    from agentlab.workbench.spec import load_spec

_WHERE = {
    "AgentlabError": "agentlab.core.errors",
    "Lab": "agentlab.lab.lab",
    "Message": "agentlab.core.messages",
    "Passage": "agentlab.core.messages",
    "Reply": "agentlab.core.messages",
    "Scripted": "agentlab.models.scripted",
    "Session": "agentlab.session.session",
    "ToolCall": "agentlab.core.messages",
    "ToolSpec": "agentlab.core.messages",
    "UserTurn": "agentlab.core.messages",
    "import_predictions": "agentlab.lab.run",
    "judge": "agentlab.lab.judging",
    "load_dataset": "agentlab.data.datasets",
    "load_documents": "agentlab.data.documents",
    "load_spec": "agentlab.workbench.spec",
    "open_run": "agentlab.lab.run",
    "reproduce": "agentlab.evals.published.reproduce",
    "score": "agentlab.lab.regrading",
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
    "import_predictions",
    "judge",
    "load_dataset",
    "load_documents",
    "load_spec",
    "open_run",
    "reproduce",
    "score",
]


def __getattr__(name: str) -> Any:
    # Loaded on first use: `agentlab --help` must not wait for pydantic and numpy.
    if name not in _WHERE:
        raise AttributeError(f"module 'agentlab' has no attribute {name!r}")
    return getattr(importlib.import_module(_WHERE[name]), name)


def __dir__() -> list[str]:
    return __all__
