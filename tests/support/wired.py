"""The embedded model's adapter, talking to a server that is there already."""

from __future__ import annotations

from pathlib import Path

from agentlab.models.local.model import LocalModel


class Wired(LocalModel):
    def __init__(self, port: int) -> None:
        super().__init__("any", Path)
        self._port = port

    async def start(self) -> None:
        pass
