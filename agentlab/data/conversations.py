"""Conversations: the rows of `conversations.jsonl`, strict and exact.

    {"id": "laws-001", "turns": [{"user": "How long is half-time?", "reference_answers": ["At most 15 minutes."],
     "relevant_doc_ids": ["law-07-duration"]}], "source": "...", "licence": "..."}

An unknown key, a wrong type or a broken line is a DatasetError that names file, line and key.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from agentlab.core.jsonl import STRICT


class StrictModel(BaseModel):
    model_config = STRICT


class Speaker(StrictModel):
    id: str
    name: str = ""


class ExpectedCall(StrictModel):
    name: str
    accepted_arguments: dict[str, list[Any]] = {}
    optional_arguments: list[str] = []
    arguments_visible_in_context: bool = True


class ToolResult(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)

    name: str


class ExpectedMemory(StrictModel):
    op: Literal["add", "update", "none"]
    content: str | None = None
    replaces: str | None = None


class ToolDefinition(StrictModel):
    name: str
    description: str = ""
    parameters: dict[str, Any] = {"type": "object", "properties": {}}


class Turn(StrictModel):
    user: str
    reference_answers: list[str] = Field(default_factory=list)
    relevant_doc_ids: list[str] | None = None
    unanswerable: bool = False
    scored: bool = True
    needs_document_lookup: bool | None = None
    expected_calls: list[ExpectedCall] | None = None
    call_order: str = "any"
    no_call: bool = False
    tool_results: list[ToolResult] = Field(default_factory=list)
    speaker: Speaker | None = None
    session: str | None = None
    expected_memory: list[ExpectedMemory] | None = None
    metadata: dict[str, Any] = Field(default_factory=dict)


INGEST_PREFIX = "ingest:"
"""How the names of conversations begin in which a flow fills its memory; no other may."""


class Conversation(StrictModel):
    id: str = Field(min_length=1)
    turns: list[Turn] = Field(min_length=1)
    source: str = ""
    licence: str = ""
    tools: list[ToolDefinition] = Field(default_factory=list)
    memory: str | None = None
    """A folder beside the file: what the flow has in memory when the conversation begins."""
    metadata: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _distinct_tools_and_a_date(self) -> Conversation:
        if self.id.startswith(INGEST_PREFIX):
            raise ValueError(f"id: {self.id!r:.80} begins as the filling of a memory does; call it something else")
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise ValueError("tools: two tools have the same name")
        today = self.metadata.get("today")
        if today is not None and not is_date(today):
            raise ValueError(f"metadata.today: {today!r} is not a date such as 2019-03-01")
        for number, turn in enumerate(self.turns):
            now = turn.metadata.get("now")
            if now is not None and not is_date(now):
                raise ValueError(f"turns.{number}.metadata.now: {now!r} is not a moment such as 2019-03-01T09:30")
        return self

    @property
    def scored_turns(self) -> list[int]:
        return [number for number, turn in enumerate(self.turns) if turn.scored]


def is_date(text: Any) -> bool:
    try:
        datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return False
    return True
