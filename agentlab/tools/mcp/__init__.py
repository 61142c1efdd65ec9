"""Tools that a flow finds in its data folder: MCP servers, and scripts of the user's own.

Import `ToolManager` from `folder`; the rest is its parts.
"""
