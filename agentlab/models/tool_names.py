"""Tool names as providers take them: letters, digits, `_` and `-`, at most 64 of them, no digit or `-` first."""

from __future__ import annotations

import re
from collections.abc import Iterable


def wire_names(names: Iterable[str]) -> dict[str, str]:
    """Tool names as the providers take them, each still its own."""
    wired: dict[str, str] = {}
    for name in dict.fromkeys(names):
        plain = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
        # Gemini wants a letter or `_` first; the others do not mind.
        plain = (plain if re.match("[a-zA-Z_]", plain) else f"_{plain}")[:64]
        number = 2
        candidate = plain
        while candidate in wired.values():
            candidate = f"{plain[:60]}_{number}"
            number += 1
        wired[name] = candidate
    return wired
