"""How a configuration describes an MCP server, checked: a command to start, or an address.

    config, problems = server_config("time", {"command": "mcp-server-time", "args": ["--local-timezone", "CET"]}, file)

No key need stand in a file: values of headers and of the environment may be `${NAME}`. No shell reads any of it.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, StringConstraints, ValidationError, model_validator

from agentlab.core import secrets
from agentlab.core.errors import ConfigError, ToolError
from agentlab.core.files import read_bytes
from agentlab.core.jsonl import first_error
from agentlab.core.strict_json import parse_json

_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_SECRET = re.compile(r"key|token|secret|password|auth|cookie", re.IGNORECASE)
_IGNORED = {"type", "transport", "disabled", "description", "name"}
"""What other programs write beside what is known here."""


def _web_address(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("an address begins with http:// or https://")
    if parts.username or parts.password:
        raise ValueError("it holds a password; put it into a header as ${NAME}")
    return url


Text = Annotated[str, StringConstraints(min_length=1, pattern=r"^[^\x00-\x1f\x7f]+$")]


class ServerConfig(BaseModel, frozen=True, extra="ignore"):
    """How a server is reached: by a command, or by an address."""

    name: Annotated[Text, StringConstraints(max_length=100)]
    folder: Path
    """Of its configuration; relative paths start there."""
    command: Text | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    url: Annotated[Text, AfterValidator(_web_address)] | None = None
    headers: dict[str, Text] = {}
    """Values may be `${NAME}`: a variable of our environment, looked up when the server is started."""

    @model_validator(mode="after")
    def _is_one_or_the_other(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("it is an object with either a 'command' or a 'url'")
        return self


def read_object_file(file: Path) -> dict[str, Any]:
    """The object that a JSON file holds; raises ConfigError, in one line."""
    try:
        content = parse_json(read_bytes(file))
    except OSError as problem:
        raise ConfigError(f"cannot read {file}: {problem.strerror}") from None
    except ValueError as problem:
        line = getattr(problem, "lineno", None)
        why = "not JSON" if line or isinstance(problem, UnicodeDecodeError) else problem
        raise ConfigError(f"{file}{f':{line}' if line else ''}: {why}") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{file}: it is a JSON object")
    return content


def servers_of_folder(data: Path) -> tuple[list[ServerConfig], list[str]]:
    """The servers that a data folder describes, a file each, and what is odd about them; raises ConfigError."""
    configs: dict[str, ServerConfig] = {}
    problems: list[str] = []
    for folder, keyword in (("mcp-servers", "command"), ("remote-mcp-servers", "url")):
        for file in sorted(data.joinpath(folder).glob("*.json")):
            config, notes = server_config(file.stem, read_object_file(file), file)
            if not getattr(config, keyword):
                raise ConfigError(f"{file}: a server in {folder} is described by its {keyword!r}")
            if config.name in configs:
                raise ConfigError(f"{file}: there is another server called {config.name!r}; rename one of the files")
            configs[config.name] = config
            problems += notes
    return list(configs.values()), problems


def servers_of_file(file: Path) -> tuple[list[ServerConfig], list[str]]:
    """The servers of a file `{"mcpServers": {name: {...}}}`, as other programs write it too; raises ConfigError."""
    servers = read_object_file(file).get("mcpServers")
    if not isinstance(servers, dict):
        raise ConfigError(f'{file}: it holds no servers, as in {{"mcpServers": {{"time": {{"command": "..."}}}}}}')
    read = [
        server_config(name, row, file)
        for name, row in servers.items()
        if not (isinstance(row, dict) and row.get("disabled") is True)
    ]
    return [config for config, _ in read], [note for _, notes in read for note in notes]


def server_config(name: str, row: Any, file: Path) -> tuple[ServerConfig, list[str]]:
    """A server's entry in a configuration, checked, and what is odd about it; raises ConfigError."""
    where = f"{file}: server {name!r}"
    given = row if isinstance(row, dict) else {}
    try:
        config = ServerConfig.model_validate({**given, "name": name, "folder": file.parent.resolve()})
    except ValidationError as problem:
        raise ConfigError(f"{where}: {first_error(problem, ServerConfig)}") from None
    kind = given.get("type", given.get("transport"))
    if kind is not None and kind not in (("stdio",) if config.command else ("http", "streamable-http")):
        raise ConfigError(f"{where}: transport {kind!r} is not known; there are stdio and streamable-http")
    known = _IGNORED | ({"command", "args", "env"} if config.command else {"url", "headers"})
    problems = [f"{name}: {key!r} in {file.name} is not known and ignored" for key in given if key not in known]
    problems += [
        f"{name}: {key} stands in {file.name} as it is; write ${{NAME}} and set the variable NAME"
        for key, value in (*config.env.items(), *config.headers.items())
        if _SECRET.search(key) and value and not _VARIABLE.search(value)
    ]
    return config, problems


def expand_variables(value: str, name: str) -> str:
    """`value` with the variables it names, registered so that no recording keeps it if it is a secret."""
    missing = [variable for variable in _VARIABLE.findall(value) if variable not in os.environ]
    if missing:
        raise ToolError(f"{name} needs the environment variable {missing[0]}, which is not set")
    text = _VARIABLE.sub(lambda found: os.environ[found[1]], value).strip()
    if _SECRET.search(name) or any(_SECRET.search(variable) for variable in _VARIABLE.findall(value)):
        # Of `Bearer KEY` the key alone as well.
        secrets.register((text, text.split()[-1]) if text else (), f"the MCP setting {name}")
    return text
