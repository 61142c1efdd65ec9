"""Configurations of MCP servers: a bad one is one line, an odd one is reported."""

from __future__ import annotations

import pytest

from agentlab.core.errors import ConfigError
from agentlab.tools.mcp.config import ServerConfig, server_config
from agentlab.tools.mcp.tool_manager import ToolManager


@pytest.mark.parametrize(
    ("content", "problem"),
    {
        "{": ":1: not JSON",
        "[" * 100_000: ": nested deeper than 100 levels",
        "[]": ": it must be a JSON object",
        "{}": ': no servers; write {"mcpServers": {"time": {"command": "..."}}}',
        '{"mcpServers": {"a": 3}}': ": server 'a': it is an object with either a 'command' or a 'url'",
        '{"mcpServers": {"a": {"command": "x", "url": "http://x"}}}': ": server 'a': it is an object with either",
        '{"mcpServers": {"a": {"command": ""}}}': ": server 'a': command: String should have at least 1 character",
        '{"mcpServers": {"a": {"command": "x", "args": "-v"}}}': ": server 'a': args: Input should be a valid tuple",
        '{"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}': ": server 'a': env.A: Input should be a valid",
        '{"mcpServers": {"a": {"url": "http://x", "headers": {"A": "b\\nc"}}}}': ": server 'a': headers.A: String",
        '{"mcpServers": {"a": {"url": "file:///etc/passwd"}}}': ": server 'a': url: an address begins with http",
        '{"mcpServers": {"a": {"url": "ftp://x/y"}}}': ": server 'a': url: an address begins with http",
        '{"mcpServers": {"a": {"url": "http://[x"}}}': ": server 'a': url: Invalid IPv6 URL",
        '{"mcpServers": {"a": {"url": "http://"}}}': ": server 'a': url: an address begins with http",
        '{"mcpServers": {"a": {"url": "http://me:pw@x/"}}}': ": server 'a': url: it holds a password",
        '{"mcpServers": {"a": {"url": "http://x/", "type": "sse"}}}': ": server 'a': unknown transport 'sse';",
        '{"mcpServers": {"a\\u001b": {"command": "x"}}}': ": server 'a\\x1b': name: String should match pattern",
    }.items(),
)
async def test_a_bad_configuration_is_one_line(tmp_path, content, problem):
    file = tmp_path / "mcp.json"
    file.write_text(content)
    with pytest.raises(ConfigError) as refusal:
        await ToolManager.open(file)
    text = str(refusal.value)
    assert text.startswith(f"{file}{problem}") and "\n" not in text


def test_problems_in_a_configuration_are_reported(tmp_path):
    row = {"url": "https://example.org/mcp", "type": "http", "retries": 3, "headers": {"X-Api-Key": "abc", "A": "b"}}
    config, problems = server_config("far", row, tmp_path / "mcp.json")
    assert config == ServerConfig(
        name="far", folder=tmp_path, url="https://example.org/mcp", headers={"X-Api-Key": "abc", "A": "b"}
    )
    assert problems == [
        "far: unknown key 'retries' in mcp.json is ignored",
        "far: mcp.json contains the secret X-Api-Key; write ${NAME} instead and set the variable NAME",
    ]
