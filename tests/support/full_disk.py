"""A full disk: the n-th write to a file of a given name writes only a part of its data, the next write fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest


class FullDisk:
    """`name` also matches the new file that will replace it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, at: int = 0, fraction: float = 0.0) -> None:
        self.failed = False
        self._name, self._at, self._share = name, at, fraction
        self._opened: dict[int, str] = {}
        self._open, self._write = os.open, os.write
        monkeypatch.setattr(os, "open", self.open)
        monkeypatch.setattr(os, "write", self.write)

    def open(self, path: str | Path, *arguments: int, **more: int) -> int:
        descriptor = self._open(path, *arguments, **more)
        self._opened[descriptor] = Path(os.fsdecode(path)).name
        return descriptor

    def write(self, descriptor: int, data: bytes) -> int:
        name = self._opened.get(descriptor, "")
        if name == self._name or name.startswith(f".{self._name}."):
            if self.failed:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            if self._at == 0:
                self.failed = True
                if self._share == 0.0:
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                data = bytes(data)[: max(1, int(len(data) * self._share))]
            self._at -= 1
        return self._write(descriptor, data)
