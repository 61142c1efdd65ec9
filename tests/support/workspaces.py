"""A session of the file tools in a workspace of its own."""

from __future__ import annotations

from pathlib import Path

from agentlab.session.session import Session
from agentlab.tools import read_file, write_file
from agentlab.tools.workspace import WORKSPACE
from support.tool_sessions import session_with


def files(folder: Path) -> Session:
    session = session_with(read_file.build(), write_file.build())
    own = session.kept(WORKSPACE)
    own.rmdir()
    own.symlink_to(folder)
    return session
