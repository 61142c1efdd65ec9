"""A session of the file tools in a workspace of its own."""

from __future__ import annotations

from pathlib import Path

from agentlab.session.session import Session
from agentlab.tools.files import WORKSPACE, read_file, write_file
from support.tool_sessions import session_with


def files(folder: Path) -> Session:
    session = session_with(read_file, write_file)
    own = session.state(WORKSPACE)
    own.rmdir()
    own.symlink_to(folder)
    return session
