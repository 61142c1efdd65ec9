"""Validated configurations of MCP servers: a command to start, or an address.

    config, problems = server_config("time", {"command": "mcp-server-time", "args": ["--local-timezone", "CET"]}, file)

No file needs to contain a key: `${NAME}`, `${env:NAME}` and `${NAME:-default}` stand for environment variables in every
setting, as in the files of other programs. No shell runs the command.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, Field, StringConstraints, model_validator

from agentlab.core import secrets
from agentlab.core.errors import ConfigError, ToolError, os_errors_as
from agentlab.core.files import read_bytes
from agentlab.core.jsonl import validate
from agentlab.core.strict_json import parse_json

_VARIABLE = re.compile(r"\$\{([^{}]*)\}")
_NAME = re.compile(r"(?:env:)?([A-Za-z_]\w*)(?::-(.*))?", re.DOTALL)
_SECRET = re.compile(r"key|token|secret|password|auth|cookie", re.IGNORECASE)
_SHARED = {"type", "transport", "disabled", "description", "name", "timeout"}
"""Keys of an entry of either kind; some stand for nothing here, but other programs write them."""
_TRANSPORTS = ("http", "streamable-http", "streamableHttp", "streamable_http")


def _web_address(url: str) -> str:
    if url.startswith("${"):
        return url  # checked when the server starts
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address begins with http:// or https://")
    if parts.username or parts.password:
        raise ValueError("it holds a password; put it into a header as ${NAME}")
    return url


Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ServerConfig(BaseModel, frozen=True, extra="ignore"):
    """The command or the address of a server."""

    name: Annotated[Text, StringConstraints(max_length=100)]
    folder: Path
    """Folder of the configuration file, to which paths are relative."""
    command: Text | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: Annotated[Text, AfterValidator(_web_address)] | None = None
    headers: dict[str, Text] = {}
    timeout: Annotated[float, Field(gt=0, le=3600)] | None = None
    """Seconds of a start, and of a call since its last progress message."""

    @model_validator(mode="after")
    def _has_command_or_url(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("it is an object with either a 'command' or a 'url'")
        return self


def read_object_file(file: Path) -> dict[str, Any]:
    """Return the object in a JSON file; raise ConfigError in one line."""
    try:
        with os_errors_as(ConfigError, f"cannot read {file}: "):
            content = parse_json(read_bytes(file))
    except ValueError as problem:
        line = getattr(problem, "lineno", None)
        reason = "not JSON" if line or isinstance(problem, UnicodeDecodeError) else problem
        raise ConfigError(f"{file}{f':{line}' if line else ''}: {reason}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: it must be a JSON object")
    return content


@contextlib.contextmanager
def left_out(missing: list[str] | None) -> Iterator[None]:
    """Add a ConfigError of the block, which loads one part, to `missing`; raise it if that is None."""
    try:
        yield
    except ConfigError as problem:
        if missing is None:
            raise
        missing.append(f"{problem}; it is left out")


def read_servers(path: Path, missing: list[str] | None = None) -> tuple[list[ServerConfig], list[str]]:
    """Return the servers of a data folder, one file each, or of one file, and a line for each problem.

    The one file is `{"mcpServers": {name: {...}}}`, which other programs write, too. `missing` gets a line for each
    broken file or entry; without it such a file or entry raises ConfigError.
    """
    configs: dict[str, ServerConfig] = {}
    problems: list[str] = []
    files = [*sorted(path.glob("mcp-servers/*.json")), *sorted(path.glob("remote-mcp-servers/*.json"))]
    for file in files if path.is_dir() else [path]:
        with left_out(missing):
            content = read_object_file(file)
            rows = {file.stem: content} if path.is_dir() else content.get("mcpServers")
            if not isinstance(rows, dict):
                raise ConfigError(f'{file}: no servers; write {{"mcpServers": {{"time": {{"command": "..."}}}}}}')
            for name, row in rows.items():
                if isinstance(row, dict) and row.get("disabled") is True:
                    continue
                with left_out(missing):
                    config, notes = server_config(name, row, file)
                    if name in configs:
                        raise ConfigError(f"{file}: there is another server called {name!r}; rename one of the files")
                    configs[name] = config
                    problems += notes
    return list(configs.values()), problems


def server_config(name: str, row: Any, file: Path) -> tuple[ServerConfig, list[str]]:
    """Return the validated entry of a server and a line for each problem; raise ConfigError."""
    location = f"{file}: server {name!r}"
    entry = row if isinstance(row, dict) else {}
    kind, folder = entry.get("type", entry.get("transport")), file.parent.resolve()
    config = validate(ServerConfig, {**entry, "name": name, "folder": folder}, location)
    if kind is not None and kind not in (("stdio",) if config.command else _TRANSPORTS):
        advice = "use stdio or streamable-http, which replaced sse (mostly .../mcp in place of .../sse)"
        raise ConfigError(f"{location}: unknown transport {kind!r}; {advice}")
    fields = _SHARED | ({"command", "args", "env"} if config.command else {"url", "headers"})
    problems = [f"{name}: unknown key {key!r} in {file.name} is ignored" for key in entry if key not in fields]
    problems += [
        f"{name}: {file.name} contains the secret {key}; write ${{NAME}} instead and set the variable NAME"
        for key, value in (*config.env.items(), *config.headers.items())
        if _SECRET.search(key) and value and not _VARIABLE.search(value)
    ]
    return config, problems


def expand_variables(value: str, name: str) -> str:
    """Return `value` with its variables replaced; register a secret, so that recordings redact it."""

    def fill(form: re.Match[str]) -> str:
        parts = _NAME.fullmatch(form[1])
        if parts is None:
            forms = "${NAME}, ${NAME:-default} and ${env:NAME}"
            raise ToolError(f"{name}: {form[0]} cannot be filled; agentlab fills {forms}")
        variable, default = parts.groups()
        setting = os.environ.get(variable)
        if default is not None and not setting:
            return default
        if setting is None:
            raise ToolError(f"{name} needs the environment variable {variable}, which is not set")
        if _SECRET.search(variable):
            secrets.register((setting,) if setting else (), f"the variable {variable}")
        return setting

    text = _VARIABLE.sub(fill, value)
    if _SECRET.search(name) and text.strip():
        # For `Bearer KEY`, register the key alone as well.
        secrets.register((text.strip(), text.split()[-1]), f"the MCP setting {name}")
    return text
