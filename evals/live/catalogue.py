"""Servers of the live checks: their versions, their requirements, and their checks.

The check modules add their functions with `tries`. The table of `docs/howto/servers.md` is made from this catalogue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

Check = Callable[[Any], str]
"""Takes a `Bench` and returns a detail; raises AssertionError for a fault, `Lacking` for a missing requirement."""


class Lacking(Exception):
    """A part of this machine, or a package, that a check needs and does not find."""


@dataclass(frozen=True)
class Server:
    name: str
    kind: Literal["model", "mcp"]
    needs: str
    """Address, key and settings, for the table."""
    example: str = ""
    """Commands, for the page."""
    registry: Literal["npm", "pypi", ""] = ""
    package: str = ""
    version: str = ""
    binary: str = ""
    """The program in the package."""
    tests: str = ""
    """The file of tests against a double of this server, instead of `make live`."""
    checks: dict[str, Check] = field(default_factory=dict)


def compatible(name: str, address: str, more: str = "", *, key: bool = False) -> Server:
    """Return a server with OpenAI's protocol that a double stands for; `key` is true if it wants one."""
    needs = f"`OPENAI_BASE_URL={address}`, {'its key in `OPENAI_API_KEY`' if key else 'no key'}; `openai/<model>`"
    return Server(name=name, kind="model", needs=needs + more, tests="tests/contract/wire/test_servers.py")


SERVERS = {
    server.name: server
    for server in (
        Server(
            name="llama.cpp server",
            kind="model",
            package="xllamacpp",
            needs="`OPENAI_BASE_URL=http://127.0.0.1:8080/v1`, no key but that of `--api-key`; `openai/<name>`",
            example="""# llama-server --jinja -m model.gguf --port 8080
OPENAI_BASE_URL=http://127.0.0.1:8080/v1 agentlab chat tools --model openai/qwen""",
        ),
        Server(
            name="LiteLLM proxy",
            kind="model",
            registry="pypi",
            package="litellm[proxy]",
            version="1.105.7",
            binary="litellm",
            needs="`OPENAI_BASE_URL=http://127.0.0.1:4000/v1`, its master key; `openai/<model_name>`."
            " Its versions 1.82.7 and 1.82.8 held code that steals keys: install neither",
            example="""# litellm --config config.yaml --host 127.0.0.1 --port 4000
OPENAI_BASE_URL=http://127.0.0.1:4000/v1 OPENAI_API_KEY=sk-... agentlab run --model openai/my-model""",
        ),
        Server(
            name="OpenAI",
            kind="model",
            needs="`OPENAI_API_KEY`, or several keys in `llm_api_keys.json`; `openai/<model>`",
            tests="tests/contract/wire/test_answers.py",
        ),
        Server(
            name="Azure OpenAI",
            kind="model",
            needs="`AZURE_OPENAI_ENDPOINT`, `AZURE_OPENAI_API_KEY`, `OPENAI_API_VERSION`; `azure/<deployment>`",
            tests="tests/unit/models/test_openai_connection.py",
        ),
        Server(
            name="Gemini",
            kind="model",
            needs="`GEMINI_API_KEY`; `gemini/<model>`",
            tests="tests/unit/models/gemini/test_connect.py",
        ),
        compatible("Ollama", "http://127.0.0.1:11434/v1"),
        compatible(
            "vLLM",
            "http://127.0.0.1:8000/v1",
            ". Tools need `--enable-auto-tool-choice` and the `--tool-call-parser` of the model",
        ),
        compatible("LM Studio", "http://127.0.0.1:1234/v1"),
        compatible(
            "OpenRouter", "https://openrouter.ai/api/v1", ", with its vendor: `openai/<vendor>/<model>`", key=True
        ),
        compatible("Mistral", "https://api.mistral.ai/v1", key=True),
        compatible("Groq", "https://api.groq.com/openai/v1", key=True),
        compatible("DeepSeek", "https://api.deepseek.com/v1", key=True),
        Server(
            name="any other with OpenAI's protocol",
            kind="model",
            needs="`OPENAI_BASE_URL`, mostly with `/v1` at its end, and its key in `OPENAI_API_KEY`; `openai/<model>`",
            tests="tests/contract/wire/test_refusals.py",
        ),
        Server(
            name="everything",
            kind="mcp",
            registry="npm",
            package="@modelcontextprotocol/server-everything",
            version="2026.8.31",
            binary="mcp-server-everything",
            needs="`command`, or for HTTP `url`; `PORT` is its port",
            example='{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]}',
        ),
        Server(
            name="filesystem",
            kind="mcp",
            registry="npm",
            package="@modelcontextprotocol/server-filesystem",
            version="2026.8.31",
            binary="mcp-server-filesystem",
            needs="`command`, and the folders that it may use as `args`",
            example='{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-filesystem", "${HOME}/notes"]}',
        ),
        Server(
            name="memory",
            kind="mcp",
            registry="npm",
            package="@modelcontextprotocol/server-memory",
            version="2026.8.31",
            binary="mcp-server-memory",
            needs="`command`; `MEMORY_FILE_PATH` in `env` keeps its graph in a file of yours",
            example='{"command": "npx", "args": ["-y", "@modelcontextprotocol/server-memory"],'
            ' "env": {"MEMORY_FILE_PATH": "${HOME}/graph.jsonl"}}',
        ),
        Server(
            name="time",
            kind="mcp",
            registry="pypi",
            package="mcp-server-time",
            version="2026.10.19",
            binary="mcp-server-time",
            needs="`command`",
            example='{"command": "uvx", "args": ["mcp-server-time", "--local-timezone=Europe/Berlin"]}',
        ),
        Server(
            name="fetch",
            kind="mcp",
            registry="pypi",
            package="mcp-server-fetch",
            version="2026.10.24",
            binary="mcp-server-fetch",
            needs="`command`; `--allow-private-ips` for addresses of your own network",
            example='{"command": "uvx", "args": ["mcp-server-fetch"]}',
        ),
        Server(
            name="conformance kit",
            kind="mcp",
            registry="npm",
            package="@modelcontextprotocol/conformance",
            version="0.1.16",
            binary="conformance",
            needs="nothing: it tests agentlab as a client. OAuth is not offered and not tried",
        ),
    )
}


def tries(server: str, what: str) -> Callable[[Check], Check]:
    """Add a function to the checks of a server; `what` completes the sentence "it ..."."""

    def add(check: Check) -> Check:
        SERVERS[server].checks[what] = check
        return check

    return add


def table(kind: str) -> Iterator[str]:
    """Yield the lines of the table of all servers of a kind."""
    yield "| server | version | needs | tried |"
    yield "| --- | --- | --- | --- |"
    for server in SERVERS.values():
        if server.kind == kind:
            tried = "; ".join(server.checks) if server.checks else f"a double, in `{server.tests}`"
            version = server.version or ("that of agentlab" if server.package else "")
            yield f"| {server.name} | {version} | {server.needs} | {tried} |"


def page() -> str:
    """Return the part of the page that is made from the catalogue."""
    parts = ["## Model servers", "", *table("model"), ""]
    parts += ["```sh", "\n\n".join(each.example for each in SERVERS.values() if each.kind == "model" and each.example)]
    parts += ["```", "", "## MCP servers", "", *table("mcp"), "", "```json", '{"mcpServers": {']
    rows = [f'  "{each.name}": {each.example}' for each in SERVERS.values() if each.kind == "mcp" and each.example]
    return "\n".join([*parts, ",\n".join(rows), "}}", "```"])
