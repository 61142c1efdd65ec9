"""The client that the conformance kit tests: a chat of one turn, whose scripted model calls the scenario's tool.

python kit_client.py URL    (the kit sets MCP_CONFORMANCE_SCENARIO)
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS = {
    "initialize": [],
    "tools_call": [{"name": "add_numbers", "arguments": {"a": 5, "b": 3}}],
    "elicitation-sep1034-client-defaults": [{"name": "test_client_elicitation_defaults", "arguments": {}}],
    "sse-retry": [{"name": "test_reconnection", "arguments": {}}],
}
LINES = ["Go.", "", "", "", "", ""]
"""One message, and an empty line for each field of a form: the user takes every default."""


def main() -> int:
    calls = CALLS[os.environ["MCP_CONFORMANCE_SCENARIO"]]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.joinpath("servers.json").write_text(json.dumps({"mcpServers": {"kit": {"url": sys.argv[1]}}}))
        replies = [{"tool_calls": calls}] if calls else []
        folder.joinpath("replies.yaml").write_text(json.dumps({"replies": [*replies, "Done."], "loop": True}))
        command = [sys.executable, "-m", "agentlab", "chat", "tools", "--model", "scripted/replies.yaml"]
        options = ["--set", "embedder=hashing/hashing-64", "--memory", "kept", "--mcp", "servers.json"]
        text = "".join(f"{line}\n" for line in LINES)
        return subprocess.run([*command, *options], cwd=folder, input=text, text=True, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
