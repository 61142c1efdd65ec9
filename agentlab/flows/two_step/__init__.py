"""Orchestrator of `chatbox` and `discord`: one model call chooses a tool, a second one writes its arguments.

`orchestrator`: the turn, with the hooks of a `Profile`. `tool_selection`: the two calls. `prompts.yaml`
and `personalities/`: its prompts and personalities.
"""
