"""One orchestration a file. A flow is anything with `async def respond(turn, session) -> Reply`.

A flow file may also say: `Settings` (a frozen dataclass of its own settings), `PROMPTS` (texts a spec may replace),
`NEEDS` (what a data set must bring: `documents`, `tools`, or `documents or tools`), `TOOLS` (names of built-in tools,
or tools of its own), `MEMORY` (True: it has a long-term memory unless the spec says otherwise), `ENVIRONMENT`
(environment variables that set a setting, the provider or the model), `CALLS_PER_TURN` (for estimates) and
`write_memory` (how a memory set tells it what was said, without a reply) and `facts` (what is in a memory of its own, a
function of the session). With a setting `data`, a folder: `DATA_TOOLS` (True: its scripts and MCP servers are offered
as tools) and `PROMPT_MODULES` (which prompts its files may replace).
"""
