"""`write_file`: the model writes a text file into its workspace, over an older one where there is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from agentlab.core.messages import ToolSpec
from agentlab.tools.workspace import WORKSPACE, write_text

if TYPE_CHECKING:
    from agentlab.session.session import Session

SPEC = ToolSpec(
    name="write_file",
    description=(
        "Write a text file in the workspace. A file of that name is replaced as a whole; missing folders are made."
    ),
    parameters={
        "type": "object",
        "properties": {
            "file_path": {"type": "string", "description": "The file, relative to the workspace: notes/today.txt"},
            "content": {"type": "string", "description": "Everything the file shall hold"},
        },
        "required": ["file_path", "content"],
        "additionalProperties": False,
    },
)


class WriteFile:
    spec = SPEC
    instruction = (
        'As "file_path", give the path of the file in the workspace, and as "content" everything the file shall hold.'
    )

    async def run(self, arguments: dict[str, Any], session: Session) -> str:
        """Raises ToolError for a path that is not inside the workspace and for what is no text."""
        write_text(session.kept(WORKSPACE), arguments["file_path"], arguments["content"])
        return f"Written: {arguments['file_path']}"


def build() -> WriteFile:
    return WriteFile()
