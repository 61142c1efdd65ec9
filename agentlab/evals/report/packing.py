"""Packing of page data: texts are deflated, and each long text is stored once."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from agentlab.core.escaping import escape_json
from agentlab.core.messages import PLAIN, Message, ToolSpec, to_json

LONG = 24
"""Shortest text, in characters, that is stored once and replaced by its number."""
MARK = "#"
"""Prefix of a text's number; a text with this prefix is always replaced."""
PAGE = 200_000
"""Characters of texts that are deflated together."""


def deflated(value: Any) -> str:
    """Return the value as JSON, deflated, in base64; the page inflates it on demand."""
    text = escape_json(json.dumps(value, separators=(",", ":")))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


def _tool(spec: ToolSpec) -> str:
    return f"{spec.name}: {spec.description} {json.dumps(to_json(spec.parameters), ensure_ascii=False)}"


class TextPool:
    """Pages of long texts, in the order of first use; `pack` replaces each text by its number."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        """Deflated lists of texts."""
        self.starts: list[int] = []
        """Number of the first text of each page."""
        self._numbers: dict[str, int] = {}
        self._parts: dict[int, tuple[Message | ToolSpec, Any]] = {}
        """Packed parts of requests by `id`, since requests share them; keeping the part keeps its `id` unique."""
        self._open: list[str] = []
        self._size = 0

    @property
    def bytes(self) -> int:
        """Bytes of all pages; the open page is estimated at a third of its characters."""
        return sum(map(len, self.pages)) + self._size // 3

    def pack(self, value: Any) -> Any:
        """Return `value` with every long text replaced by its number, messages as JSON and tools as texts."""
        if isinstance(value, str):
            return f"{MARK}{self._number(value)}" if len(value) >= LONG or value.startswith(MARK) else value
        if type(value) in PLAIN:
            return value
        if isinstance(value, dict):
            return {key: self.pack(part) for key, part in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.pack(part) for part in value]
        if id(value) not in self._parts:
            self._parts[id(value)] = value, self.pack(_tool(value) if isinstance(value, ToolSpec) else to_json(value))
        return self._parts[id(value)][1]

    def _number(self, text: str) -> int:
        if text not in self._numbers:
            self._numbers[text] = len(self._numbers)
            self._open.append(text)
            self._size += len(text)
            if self._size >= PAGE:
                self.close()
        return self._numbers[text]

    def close(self) -> None:
        """Deflate the open page."""
        if self._open:
            self.starts.append(len(self._numbers) - len(self._open))
            self.pages.append(deflated(self._open))
            self._open, self._size = [], 0
