"""Resources and prompts of MCP servers, for a user to list and read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from agentlab.core.errors import ToolError
from agentlab.core.plugins import check_names
from agentlab.tools.mcp.answers import to_prompt_text, to_resource_text
from agentlab.tools.mcp.client import McpServer
from agentlab.tools.mcp.listing import text_table

if TYPE_CHECKING:
    from mcp import Client

Kind = Literal["resources", "prompts"]
MAX_ITEMS = 500
"""Maximum number of resources or prompts that are listed for a server."""


async def browse(servers: Sequence[McpServer], kind: Kind, words: Sequence[str]) -> str:
    """Return a table of the servers' resources or prompts, or the text of the one that `words` name.

    The words are a server, a URI or the name of a prompt, and the prompt's arguments as `KEY=VALUE`. Raises ConfigError
    for an unknown server, ToolError if the server gives no text.
    """
    if words:
        server, name, *arguments = [*words, ""]
        owners = {each.name: each for each in servers}
        check_names("MCP server", [server], owners)
        async with await owners[server].request(name or kind) as client:
            if kind == "resources":
                return to_resource_text((await client.read_resource(name)).model_dump(mode="json", by_alias=True))
            pairs = (each.partition("=") for each in arguments if each)
            prompt = await client.get_prompt(name, {key: value for key, _, value in pairs})
            return to_prompt_text(prompt.model_dump(mode="json", by_alias=True))
    rows, problems = [["SERVER", "URI" if kind == "resources" else "PROMPT", "DESCRIPTION"]], []
    for owner in servers:
        try:
            async with await owner.request(kind) as client:
                rows += [[owner.name, *row] for row in await _rows(client, kind)]
        except ToolError as problem:
            problems.append(f"note: {problem}")
    return "\n".join([text_table(rows) if len(rows) > 1 else f"no MCP server has {kind}", *problems])


async def _rows(client: Client, kind: Kind) -> list[list[str]]:
    rows: list[list[str]] = []
    names = ("resources", "resource_templates") if kind == "resources" else ("prompts",)
    for name in names if getattr(client.server_capabilities, kind) is not None else ():
        cursors: list[str | None] = [None]
        while cursors[-1] not in cursors[:-1] and len(rows) < MAX_ITEMS:
            page: Any = await getattr(client, f"list_{name}")(cursor=cursors[-1])
            rows += [_row(item) for item in getattr(page, name)]
            cursors.append(page.next_cursor or None)
    return rows[:MAX_ITEMS]


def _row(item: Any) -> list[str]:
    arguments = getattr(item, "arguments", None) or ()
    parts = [f"{each.name}=TEXT" if each.required else f"[{each.name}=TEXT]" for each in arguments]
    name = getattr(item, "uri", None) or getattr(item, "uri_template", None) or " ".join([item.name, *parts])
    return [str(name), str(item.description or item.title or item.name)]
