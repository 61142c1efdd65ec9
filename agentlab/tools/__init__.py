"""The built-in tools, one a file; the name of the file is the name of the tool."""

MEMORY_TOOLS = ("fetch_memory", "save_memory", "update_memory")
"""Tools that work on long-term memory: they need one, and tools that a data set brings along do not replace them."""
