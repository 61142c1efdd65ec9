"""The clock tool returns the time of the session."""

from __future__ import annotations

from datetime import UTC, datetime

from agentlab.tools.clock import get_current_time
from support.tool_sessions import call, session_with


async def test_the_time_is_that_of_the_session():
    session = session_with(get_current_time)
    assert await call(session, "get_current_time") == "Thursday, 5 March 2026, 09:20"
    session.begin_turn(0, now=datetime(2026, 12, 31, 23, 59, tzinfo=UTC))
    assert await call(session, "get_current_time") == "Thursday, 31 December 2026, 23:59 (UTC+0000)"
    assert (await call(session, "get_current_time", zone="CET")).startswith("Error: get_current_time: ")
