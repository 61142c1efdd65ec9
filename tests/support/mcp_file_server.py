"""An MCP server over streamable HTTP that reads one folder, as the official server for files does over stdio.

python mcp_file_server.py --http 8123        serves the working directory at http://127.0.0.1:8123/mcp
"""

import argparse
from pathlib import Path
from typing import Any

ROOT = Path.cwd().resolve()


def inside(path: str) -> Path:
    from mcp.server.mcpserver.exceptions import ToolError

    target = (ROOT / path).resolve()
    if not target.is_relative_to(ROOT):
        raise ToolError(f"Access denied - path outside allowed directories: {path}")
    if not target.exists():
        raise ToolError(f"ENOENT: no such file or directory, open '{path}'")
    return target


def both(text: str) -> Any:
    """The text, and the same as structured content: the official server sends both."""
    from mcp_types import CallToolResult, TextContent

    return CallToolResult(content=[TextContent(type="text", text=text)], structured_content={"content": text})


def serve(port: int) -> None:
    from mcp.server import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError
    from mcp_types import CallToolResult

    server = MCPServer("files", log_level="CRITICAL")

    @server.tool()
    def read_text_file(path: str) -> CallToolResult:
        """Read a file as text."""
        return both(inside(path).read_text(encoding="utf-8", errors="replace"))

    @server.tool()
    def read_multiple_files(paths: list[str]) -> CallToolResult:
        """Read several files; one that fails does not stop the others."""
        parts = []
        for path in paths:
            try:
                parts.append(f"{path}:\n{inside(path).read_text(encoding='utf-8')}")
            except ToolError as problem:
                parts.append(f"{path}: Error - {problem}")
        return both("\n---\n".join(parts))

    @server.tool()
    def list_directory(path: str = ".") -> CallToolResult:
        """List the files and folders in a folder."""
        entries = sorted(inside(path).iterdir())
        return both("\n".join(f"[{'DIR' if each.is_dir() else 'FILE'}] {each.name}" for each in entries))

    @server.tool()
    def search_files(pattern: str) -> CallToolResult:
        """Find files by a pattern such as `**/*.md`."""
        matches = sorted(str(each.relative_to(ROOT)) for each in ROOT.glob(pattern))
        return both("\n".join(matches) or "No matches found")

    server.run("streamable-http", host="127.0.0.1", port=port)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--http", type=int, required=True)
    serve(parser.parse_args().http)
