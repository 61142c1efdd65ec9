"""How a configuration describes an MCP server, checked: a command to start, or an address.

    config, problems = server_config("time", {"command": "mcp-server-time", "args": ["--local-timezone", "CET"]}, file)

No key need stand in a file: values of headers and of the environment may be `${NAME}`. No shell reads any of it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from agentlab.core import secrets
from agentlab.core.errors import ConfigError, ToolError
from agentlab.tools.mcp.listing import plain

_IGNORED = {"type", "transport", "disabled", "description", "name"}
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_SECRET = re.compile(r"key|token|secret|password|auth|cookie", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """How a server is reached: by a command, or by an address."""

    name: str
    folder: Path
    """Of its configuration; relative paths start there."""
    command: str = ""
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Values may be `${NAME}`: a variable of our environment, looked up when the server is started."""


def server_config(name: str, row: Any, file: Path) -> tuple[ServerConfig, list[str]]:
    """A server's entry in a configuration, checked, and what is odd about it; raises ConfigError."""
    where = f"{file}: server {name!r}"
    if not name or plain(name, 100) != name or "\n" in name:
        raise ConfigError(f"{where}: a server needs a short name without control characters")
    if not isinstance(row, dict) or ("command" in row) == ("url" in row):
        raise ConfigError(f"{where}: it is an object with either a 'command' or a 'url'")
    known = {"command": {"command", "args", "env"}, "url": {"url", "headers"}}["url" if "url" in row else "command"]
    problems = [
        f"{name}: {key!r} in {file.name} is not known and ignored" for key in row if key not in known | _IGNORED
    ]
    kind = row.get("type", row.get("transport"))
    if kind is not None and kind not in (("http", "streamable-http") if "url" in row else ("stdio",)):
        raise ConfigError(f"{where}: transport {kind!r} is not known; there are stdio and streamable-http")
    for key in ("command", "url"):
        if key in row and not (isinstance(row[key], str) and row[key].strip() and "\0" not in row[key]):
            raise ConfigError(f"{where}: {key!r} is a text")
    args = row.get("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str) and "\0" not in arg for arg in args):
        raise ConfigError(f"{where}: 'args' is a list of texts")
    for key in ("env", "headers"):
        pairs = row.get(key, {})
        if not isinstance(pairs, dict) or not all(isinstance(v, str) and v.isprintable() for v in pairs.values()):
            raise ConfigError(f"{where}: {key!r} maps names to texts of one line")
    config = ServerConfig(
        name=name,
        folder=file.parent.resolve(),
        command=row.get("command", ""),
        args=tuple(args),
        env=row.get("env", {}),
        url=row.get("url", ""),
        headers=row.get("headers", {}),
    )
    if config.url:
        _check_url(config.url, where)
    problems += [
        f"{name}: {key} stands in {file.name} as it is; write ${{NAME}} and set the variable NAME"
        for key in _literal_secrets(config)
    ]
    return config, problems


def _check_url(url: str, where: str) -> None:
    try:
        parts = urlsplit(url)
        is_whole = bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError(f"{where}: 'url' is no address") from None
    if parts.scheme not in ("http", "https") or not is_whole or not url.isprintable() or " " in url:
        raise ConfigError(f"{where}: 'url' is an address that begins with http:// or https://")
    if parts.username or parts.password:
        raise ConfigError(f"{where}: 'url' holds a password; put it into a header as ${{NAME}}")


def _literal_secrets(config: ServerConfig) -> Iterator[str]:
    for name, value in (*config.env.items(), *config.headers.items()):
        if _SECRET.search(name) and value and not _VARIABLE.search(value):
            yield name


def expanded(value: str, name: str) -> str:
    """`value` with the variables it names, registered so that no recording keeps it if it is a secret."""
    missing = [variable for variable in _VARIABLE.findall(value) if variable not in os.environ]
    if missing:
        raise ToolError(f"{name} needs the environment variable {missing[0]}, which is not set")
    text = _VARIABLE.sub(lambda found: os.environ[found[1]], value).strip()
    if _SECRET.search(name) or any(_SECRET.search(variable) for variable in _VARIABLE.findall(value)):
        # Of `Bearer KEY` the key alone as well.
        secrets.register((text, text.split()[-1]) if text else (), f"the MCP setting {name}")
    return text
