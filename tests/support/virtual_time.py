"""An event loop whose time passes only while it waits, and then at once: minutes of limits in milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class VirtualTime(asyncio.SelectorEventLoop):
    """No code inside may wait for a socket or a thread."""

    def __init__(self) -> None:
        super().__init__()
        self._passed = 0.0
        self._select = self._selector.select
        self._selector.select = self._skip

    def time(self) -> float:
        return self._passed

    def _skip(self, timeout: float | None = None) -> Any:
        self._passed += timeout or 0.0
        return self._select(0)


def at_once(work: Callable[[VirtualTime], Coroutine[Any, Any, None]]) -> None:
    loop = VirtualTime()
    try:
        loop.run_until_complete(work(loop))
    finally:
        loop.close()
