"""Conversations: the rows of `conversations.jsonl`, strict and exact.

    {"id": "laws-001", "turns": [{"user": "How long is half-time?", "reference_answers": ["At most 15 minutes."],
     "relevant_doc_ids": ["law-07-duration"]}], "source": "...", "licence": "..."}

An unknown key, a wrong type or a broken line raises a DatasetError with file, line and key.
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
    """One turn of a scripted conversation: the user's message and the expectations that grade the reply.

    An expectation of None is unknown, so its graders skip the turn.
    """

    user: str
    """Message of the user, the only required key."""
    reference_answers: list[str] = Field(default_factory=list)
    """Correct answers; a reply is compared with the nearest one."""
    relevant_doc_ids: list[str] | None = None
    """Documents that hold the answer; [] if none does."""
    unanswerable: bool = False
    """True if the flow should decline."""
    scored: bool = True
    """False for a turn that is only history."""
    needs_document_lookup: bool | None = None
    """True if the flow should search the documents."""
    expected_calls: list[ExpectedCall] | None = None
    """Tool calls that the flow should make."""
    call_order: str = "any"
    """`any`, or `sequence` if the order of the calls counts."""
    no_call: bool = False
    """True if the flow should call no tool."""
    tool_results: list[ToolResult] = Field(default_factory=list)
    """Results of the tools that the conversation supplies."""
    speaker: Speaker | None = None
    """Person who writes the message, in a conversation of several people."""
    session: str | None = None
    """Name of the session; a new one starts with an empty history."""
    expected_memory: list[ExpectedMemory] | None = None
    """Facts that the flow should store; [] if none."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Free keys; `now` sets the clock of the turn, `category`, `language` and `tags` form slices."""


INGEST_PREFIX = "ingest:"
"""Prefix of the names of conversations in which a flow fills its memory."""


class Conversation(StrictModel):
    """One row of `conversations.jsonl`: turns under a unique id, with their source and licence.

    Raises DatasetError, when a file is read, for duplicate tools and for a `today` or `now` that is no date.
    """

    id: str = Field(min_length=1)
    turns: list[Turn] = Field(min_length=1)
    source: str = ""
    licence: str = ""
    tools: list[ToolDefinition] = Field(default_factory=list)
    """Tools that the conversation supplies; `tool_results` of its turns are their results."""
    memory: str | None = None
    """Folder beside the file with the initial memory."""
    metadata: dict[str, Any] = Field(default_factory=dict)
    """Free keys; `today` sets the clock of the conversation."""

    @model_validator(mode="after")
    def _distinct_tools_and_a_date(self) -> Conversation:
        if self.id.startswith(INGEST_PREFIX):
            raise ValueError(f"id: {self.id!r:.80} starts with {INGEST_PREFIX!r}, which is reserved; rename it")
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
