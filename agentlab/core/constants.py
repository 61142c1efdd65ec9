"""Names that several rooms share: modes of a run, and the notices, choices, steps and tools of a trace."""

from __future__ import annotations

from typing import Literal

Mode = Literal["live", "record", "replay", "auto"]
"""Mode of a run: call the model, record its calls, replay them, or replay and record the missing ones."""
IMPORTED = "imported"
"""Mode of an imported run, and the name of its flows in its spec."""
COMPATIBLE = "compatible"
"""Kind of a server that speaks a provider's protocol at another address; part of the key of each call."""

NOT_RECORDED = "not_recorded"
"""Notice after a call without a recording."""
MEMORY_UNAVAILABLE = "memory_unavailable"
"""Notice of a turn that was answered without memory, because the memory was unavailable."""
REPLY_STOPPED = "reply_stopped"
"""Notice of a reply that a filter or the server stopped, or that holds tool calls the server does not read."""
USAGE_UNKNOWN = "usage_unknown"
"""Notice, once a conversation, that a provider reported impossible token counts."""
INGEST_FAILED = "ingest_failed"
"""Notice of a message that a flow could not write to its memory."""
BACKGROUND_FAILED = "background_failed"
"""Notice of background work that raised."""

JUDGE_METRIC_PREFIX = "judge_"
"""Prefix of the measures that a judge model grades."""
LABEL_METRIC_PREFIX = "label_"
"""Prefix of the human labels that correct a judge's measure; only complete sets of labels are scores of a run."""

TOOL_CALL_DECISION = "call of a tool"
"""Decision on a tool call of a model; its choice is INVALID_CHOICE for an unknown tool or bad arguments."""
INVALID_CHOICE = "invalid"
"""Choice in a decision, if the model chose something unknown."""

FINAL_MEMORY, AFTER_RESPONSE = CLOSING_STEPS = ("final_memory", "after_response")
"""Steps in which flows write to memory at the end of a turn; the scorer of tool calls ignores them."""

LOOKUP_DOCUMENTS = "lookup_documents"
FETCH_MEMORY, SAVE_MEMORY, UPDATE_MEMORY = MEMORY_TOOLS = ("fetch_memory", "save_memory", "update_memory")
"""Tools that need a long-term memory; tools from the data set do not replace them."""
