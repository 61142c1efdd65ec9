"""Flows, one orchestration per file. A flow is any module or object with `async def respond(turn, session) -> Reply`.

A flow file may also define:

* `Settings`, a frozen dataclass of the flow's own settings; `max_calls_per_turn` of it bounds the model calls
* `PROMPTS`, texts that a spec may replace
* `NEEDS`, requirements on the data set: `documents`, `tools`, or `documents or tools`
* `TOOLS`, names of built-in tools, or tools of its own
* `MEMORY`, True for a long-term memory unless the spec turns it off
* `ENVIRONMENT`, environment variables for a setting, the provider or the model
* `CALLS_PER_TURN`, for estimates
* `write_memory`, a coroutine that stores a message of a memory set without a reply
* `facts`, a function of the session that lists the facts of the flow's own memory
* `DATA_TOOLS`, True to offer the scripts and MCP servers of the folder in the setting `data` as tools
* `PROMPT_MODULES`, prompts that files of that folder may replace

Files: `rag_only` always searches; `tools` lets the model search; `tools_rag_fallback` searches if the model did not (it
decides that). `documents`: the steps of these three. `chatbox`, `discord` (`two_step/`), `coordinator/`, `ego/`: agents
with memory. Shared code: `tool_calls` runs tool calls (limits of results: `two_step/tool_selection`,
`ego/react`, `coordinator/llm_coordinator`), `json_replies` reads JSON replies, `text_files` reads prompts,
`history_cursor` follows the stored messages.
"""
