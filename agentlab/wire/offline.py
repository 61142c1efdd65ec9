"""Refuses the connections that a flow opens itself during a replay, which would reach a model behind the recordings.

Only memories and MCP servers, which the spec declares, may connect. The guard sees the sockets of this process: of the
tasks that play, and of threads that start while they play. It cannot see a program that a flow starts.
"""

from __future__ import annotations

import contextlib
import functools
import sys
import threading
import traceback
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

DECLARED = ("agentlab.memory", "agentlab.tools.mcp", "pymongo")
"""Packages that connect to services of the spec; a driver's own threads have no other frames."""
_replays: ContextVar[bool] = ContextVar("replays", default=False)
_threads_before: list[set[int | None]] = []
"""One entry per running replay: the threads that were alive when the first of the replays started."""


_install = functools.cache(sys.addaudithook)
"""Adds a hook once, because Python cannot remove it."""


class ConnectionRefusedInReplay(BaseException):
    """A connection of a flow during a replay; no client retries it or takes it for a failure of the network."""


@contextlib.contextmanager
def refuse_connections() -> Iterator[None]:
    """Refuse connections of the code inside the block, and of the threads that it starts."""
    _install(_check)
    token = _replays.set(True)
    _threads_before.append(_threads_before[0] if _threads_before else {each.ident for each in threading.enumerate()})
    try:
        yield
    finally:
        _threads_before.pop()
        _replays.reset(token)


def refusal_in(failure: BaseException) -> BaseException:
    """Return the refusal that a client wrapped in other exceptions, or the failure itself."""
    parts = failure.exceptions if isinstance(failure, BaseExceptionGroup) else ()
    causes = [*parts, *filter(None, (failure.__cause__, failure.__context__))]
    refusals = [refusal_in(cause) for cause in causes] if not isinstance(failure, ConnectionRefusedInReplay) else []
    return next((each for each in refusals if isinstance(each, ConnectionRefusedInReplay)), failure)


def _check(event: str, arguments: tuple[Any, ...]) -> None:
    if event != "socket.connect" or not _threads_before or not isinstance(arguments[1], tuple):
        return
    started = threading.get_ident() not in _threads_before[0]
    modules = (str(frame.f_globals.get("__name__")) for frame, _ in traceback.walk_stack(None))
    if not (_replays.get() or started) or any(module.startswith(DECLARED) for module in modules):
        return
    arguments[0].close()  # clients close a socket only after an OSError
    raise ConnectionRefusedInReplay(
        f"a replay opens no connection, but the flow tried {arguments[1][0]}:{arguments[1][1]}; use the session, or"
        " name the server under `mcp` or `memory`"
    )
