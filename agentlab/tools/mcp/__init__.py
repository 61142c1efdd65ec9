"""Tools of a data folder: MCP servers and the user's own scripts.

Import `ToolManager` from `tool_manager`, which uses the other modules.
"""
