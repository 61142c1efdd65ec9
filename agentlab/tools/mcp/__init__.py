"""Tools of a data folder: MCP servers and the user's own scripts.

`tool_manager`: `ToolManager`, all tools of a folder, and the stored lists of tools. `config`: servers in the
configuration file. `client`, `connection`, `transports`, `launch`: one server; a connection to it; its pipes or HTTP;
its child process with limits. `listing`: names and schemas of tools. `answers`: results as text, truncated at a limit.
`repairs`: repairs messages of servers before validation. `forms`, `browsing`: questions, resources and prompts of
servers. `scripts`:
tools from Python files.
"""
