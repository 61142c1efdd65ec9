"""Outcomes of turns as scorers get them, and the values they give."""

from __future__ import annotations

import numpy as np

from agentlab.core.events import Search, ToolRun
from agentlab.core.messages import Citation, Passage, Reply, ToolCall
from agentlab.evals.scorers import TurnOutcome


def search_event(*doc_ids: str, text: str = "") -> Search:
    passages = tuple(Passage(id=f"{d}#0", doc_id=d, title="", text=text, start=0, end=0) for d in doc_ids)
    return Search(id=0, turn=0, phase="retrieve", query="q", passages=passages)


def outcome(text: str = "", cited: tuple[str, ...] = (), events: tuple = (), embed=None) -> TurnOutcome:
    made = tuple(Citation(doc_id=d, passage_id=f"{d}#0", title="") for d in cited)
    return TurnOutcome(reply=Reply(text=text, citations=made), events=events, embed=embed or (lambda texts: np.eye(2)))


def values(scores: dict) -> dict[str, float]:
    return {name: score.value for name, score in scores.items()}


def ran(
    name: str, number: int = 0, parent: int | None = None, error: str | None = None, **arguments: object
) -> ToolRun:
    made = ToolCall(id=f"c{number}", name=name, arguments=arguments)
    return ToolRun(id=number, turn=0, phase="tool", call=made, parent=parent, error=error)
