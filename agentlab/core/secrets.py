"""The secrets of this process: what no recording, log or report may hold.

    secrets.register(["sk-123456789"], "a key of openai")
    secrets.name_in("Authorization: Bearer sk-123456789")      # "a key of openai"

The environment needs no registering: a variable whose name says so (`..._API_KEY`, `...TOKEN`, `...SECRET`,
`...PASSWORD`) holds one or several secrets. Whoever reads a secret elsewhere, from a file or an argument, registers it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable

_TELLING = ("API_KEY", "TOKEN", "SECRET", "PASSWORD")
_SHORTEST = 8
"""Characters; anything shorter stands in ordinary texts, too."""
_registered: dict[str, str] = {}


def register(values: Iterable[str], name: str) -> None:
    """Add `values` to the secrets, under a name that may be shown."""
    _registered.update(dict.fromkeys(values, name))


def name_in(text: str) -> str | None:
    """The name of a secret that `text` holds, as it is or escaped in JSON; None if it holds none."""
    for value, name in (_registered | _in_environment()).items():
        if len(value) >= _SHORTEST and (value in text or json.dumps(value)[1:-1] in text):
            return name
    return None


def _in_environment() -> dict[str, str]:
    # A variable may hold several keys.
    return {
        value: name
        for name, held in os.environ.items()
        if any(word in name.upper() for word in _TELLING)
        for value in held.replace(",", " ").replace(";", " ").split()
    }
