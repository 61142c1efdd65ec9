"""The embedded model's adapter, connected to a running server."""

from __future__ import annotations

from pathlib import Path

from agentlab.models.local.model import LocalModel


class Wired(LocalModel):
    def __init__(self, port: int) -> None:
        super().__init__("any", Path)
        self._port = port

    async def start(self) -> None:
        pass
