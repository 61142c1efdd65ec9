"""One orchestration a file. A flow is anything with `async def respond(turn, session) -> Reply`.

A flow file may also say: `Settings` (a frozen dataclass of its own settings), `PROMPTS` (texts a spec may replace),
`NEEDS` (what a data set must bring: `documents`, `tools`, or `documents or tools`), `TOOLS` (names of built-in tools)
and `CALLS_PER_TURN` (for estimates).
"""
