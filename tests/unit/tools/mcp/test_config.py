"""Configurations of MCP servers: a bad one is one line, an odd one is told."""

from __future__ import annotations

import pytest

from agentlab.core.errors import ConfigError
from agentlab.tools.mcp.config import ServerConfig, server_config
from agentlab.tools.mcp.folder import ToolManager


@pytest.mark.parametrize(
    ("content", "problem"),
    {
        "{": ":1: not JSON",
        "[" * 100_000: ": not JSON",
        "[]": ": it is a JSON object",
        "{}": ': it holds no servers, as in {"mcpServers": {"time": {"command": "..."}}}',
        '{"mcpServers": {"a": 3}}': ": server 'a': it is an object with either a 'command' or a 'url'",
        '{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}': ": server 'a': it is an object with either",
        '{"mcpServers": {"a": {"command": ""}}}': ": server 'a': 'command' is a text",
        '{"mcpServers": {"a": {"command": "x", "args": "-v"}}}': ": server 'a': 'args' is a list of texts",
        '{"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}': ": server 'a': 'env' maps names to texts of one",
        '{"mcpServers": {"a": {"url": "http://x", "headers": {"A": "b\\nc"}}}}': ": server 'a': 'headers' maps names",
        '{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}': ": server 'a': 'url' is an address that begins with",
        '{"mcpServers": {"a": {"url": "ftp://x/y"}}}': ": server 'a': 'url' is an address that begins with",
        '{"mcpServers": {"a": {"url": "http://[x"}}}': ": server 'a': 'url' is no address",
        '{"mcpServers": {"a": {"url": "http://"}}}': ": server 'a': 'url' is an address that begins with",
        '{"mcpServers": {"a": {"url": "http://me:pw@x/"}}}': ": server 'a': 'url' holds a password",
        '{"mcpServers": {"a": {"url": "http://x/", "type": "sse"}}}': ": server 'a': transport 'sse' is not known;",
        '{"mcpServers": {"a\\u001b": {"command": "x"}}}': ": server 'a\\x1b': a server needs a short name",
    }.items(),
)
async def test_a_bad_configuration_is_one_line(tmp_path, content, problem):
    file = tmp_path / "mcp.json"
    file.write_text(content)
    with pytest.raises(ConfigError) as refusal:
        await ToolManager.from_config(file)
    told = str(refusal.value)
    assert told.startswith(f"{file}{problem}") and "\n" not in told


def test_what_is_odd_in_a_configuration_is_told(tmp_path):
    row = {"url": "https://example.org/mcp", "type": "http", "retries": 3, "headers": {"X-Api-Key": "abc", "A": "b"}}
    config, problems = server_config("far", row, tmp_path / "mcp.json")
    assert config == ServerConfig(
        name="far", folder=tmp_path, url="https://example.org/mcp", headers={"X-Api-Key": "abc", "A": "b"}
    )
    assert problems == [
        "far: 'retries' in mcp.json is not known and ignored",
        "far: X-Api-Key stands in mcp.json as it is; write ${NAME} and set the variable NAME",
    ]
