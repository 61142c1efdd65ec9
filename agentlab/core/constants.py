"""Names that several rooms know: modes of a run; notices, choices, steps and tools as they stand in a trace."""

from __future__ import annotations

from typing import Literal

Mode = Literal["live", "record", "replay", "auto"]
"""Of a run: what is asked, what is written down, what is looked up."""
IMPORTED = "imported"
"""The mode of a run that was not played here, and what its flows are called in its spec."""

NOT_RECORDED = "not_recorded"
"""The notice beside a call that was not among the recordings."""
MEMORY_UNAVAILABLE = "memory_unavailable"
"""The notice of a turn that was answered without its memory, because that could not be reached."""
USAGE_UNKNOWN = "usage_unknown"
"""The notice, once a conversation, that a provider reported token counts that cannot be."""
INGEST_FAILED = "ingest_failed"
"""The notice of something told that a flow could not write to its memory."""
BACKGROUND_FAILED = "background_failed"
"""The notice of background work that raised."""

JUDGE_METRIC_PREFIX = "judge_"
"""How the names of measures begin that a model has graded."""

TOOL_CALL_DECISION = "call of a tool"
"""The decision on a call that a model made; its choice is INVALID where there is no such tool or no such arguments."""
INVALID_CHOICE = "invalid"
"""The choice of a model that chose what there is not."""

FINAL_MEMORY, AFTER_RESPONSE = CLOSING_STEPS = ("final_memory", "after_response")
"""What flows do with their memory once the turn is as good as over: the scorer of tool calls leaves it out."""

LOOKUP_DOCUMENTS = "lookup_documents"
FETCH_MEMORY, SAVE_MEMORY, UPDATE_MEMORY = MEMORY_TOOLS = ("fetch_memory", "save_memory", "update_memory")
"""Tools that work on long-term memory: they need one, and tools that a data set brings along do not replace them."""
