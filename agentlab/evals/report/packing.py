"""What keeps the page small: text that is deflated, and each long text once, however often a trace repeats it."""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from agentlab.core.escaping import escape_json

LONG = 24
"""Characters from which a text is kept once and named by its number."""
MARK = "#"
"""How the name of a text begins; a text that begins so is always named."""
PAGE = 200_000
"""Characters of texts that are deflated together, and read together."""


def deflated(value: Any) -> str:
    """JSON, deflated, in base64; the page inflates it once it is looked at."""
    text = escape_json(json.dumps(value, separators=(",", ":")))
    return base64.b64encode(zlib.compress(text.encode(), 9)).decode()


class TextPool:
    """Long texts in the order of their first use, in pages; `pack` puts their numbers where they stand."""

    def __init__(self) -> None:
        self.pages: list[str] = []
        """Deflated lists of texts."""
        self.starts: list[int] = []
        """The number of the first text of each page."""
        self._known: dict[str, int] = {}
        self._open: list[str] = []
        self._size = 0

    @property
    def bytes(self) -> int:
        """What stands in the page by now; what waits for its page is taken to shrink to a third."""
        return sum(map(len, self.pages)) + self._size // 3

    def pack(self, value: Any) -> Any:
        """`value` with every long text in it replaced by its name."""
        if isinstance(value, str):
            return f"{MARK}{self._number(value)}" if len(value) >= LONG or value.startswith(MARK) else value
        if isinstance(value, dict):
            return {key: self.pack(part) for key, part in value.items()}
        return [self.pack(part) for part in value] if isinstance(value, (list, tuple)) else value

    def _number(self, text: str) -> int:
        if text not in self._known:
            self._known[text] = len(self._known)
            self._open.append(text)
            self._size += len(text)
            if self._size >= PAGE:
                self.close()
        return self._known[text]

    def close(self) -> None:
        """End the page that texts are added to."""
        if self._open:
            self.starts.append(len(self._known) - len(self._open))
            self.pages.append(deflated(self._open))
            self._open, self._size = [], 0
