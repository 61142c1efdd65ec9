"""The secrets of this process: what no recording, log, report, screen or run folder may hold.

    secrets.register(["sk-123456789"], "a key of openai")
    secrets.find_secret("Authorization: Bearer sk-123456789")      # "a key of openai"
    secrets.scrub("use sk-123456789, or http://me:hunter2@host")    # "use <secret>, or http://me:<secret>@host"

The environment needs no registering: a variable whose name says so (`..._API_KEY`, `...TOKEN`, `...SECRET`,
`...PASSWORD`) holds one or several secrets, and an address in one (`..._URL`, `..._URI`, `..._PROXY`) may hold a
password. Whoever reads a secret elsewhere, from a file or an argument, registers it.
"""

from __future__ import annotations

import base64
import functools
import json
import os
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any
from urllib.parse import quote

REDACTED = "<secret>"
"""What stands in the place of one."""
_SECRET_WORDS = ("API_KEY", "TOKEN", "SECRET", "PASSWORD")
_ADDRESSES = ("URL", "URI", "PROXY", "ENDPOINT")
_MIN_SECRET_CHARS = 8
"""Characters; anything shorter stands in ordinary texts, too. Of a longer one, half is taken out as well."""
_registered: dict[str, str] = {}
_IN_ADDRESS = re.compile(r"""(://[^\s/@:"'<>\\]*:)[^\s/@"'<>\\]+(?=@)""")
_IN_QUERY = re.compile(
    r"""([?&;](?:api[-_]?key|key|(?:access[-_]|auth[-_])?token|auth|(?:client[-_])?secret|password|passwd|pwd"""
    r"""|sig|signature)=)[^&\s"'<>#\\]{6,}""",
    re.IGNORECASE,
)


def register(values: Iterable[str], name: str) -> None:
    """Add `values` to the secrets, under a name that may be shown."""
    _registered.update(dict.fromkeys(values, name))


def find_secret(text: str) -> str | None:
    """The name of a secret that `text` holds, as it is or escaped in JSON; None if it holds none."""
    for value, name in (_registered | _in_environment()).items():
        if len(value) >= _MIN_SECRET_CHARS and (value in text or json.dumps(value)[1:-1] in text):
            return name
    return None


def redact(text: str) -> str:
    """`text` without the secrets of this process, and without passwords and keys in any address.

    A secret is found whole, by a half of it that is longer than eight characters, in base64 and as a URL has it.
    """
    hidden: set[int] = set()
    for form, least, pieces in _forms((*_registered, *_in_environment())):
        for begin, piece in pieces:
            at = text.find(piece)
            while at >= 0:
                start, end = at, at + len(piece)
                while start > 0 and begin - (at - start) > 0 and text[start - 1] == form[begin - (at - start) - 1]:
                    start -= 1
                while end < len(text) and begin + (end - at) < len(form) and text[end] == form[begin + (end - at)]:
                    end += 1
                if end - start >= least:
                    hidden.update(range(start, end))
                at = text.find(piece, end)
    if hidden:
        runs = groupby(enumerate(text), lambda placed: placed[0] in hidden)
        text = "".join(REDACTED if is_secret else "".join(c for _, c in run) for is_secret, run in runs)
    if "://" in text and "@" in text:
        text = _IN_ADDRESS.sub(rf"\1{REDACTED}", text)
    return _IN_QUERY.sub(rf"\1{REDACTED}", text) if "=" in text else text


def redact_json(value: Any) -> tuple[Any, int]:
    """JSON without secrets, and how many of its texts held one."""
    if isinstance(value, str):
        text = redact(value)
        return text, int(text != value)
    if isinstance(value, dict):
        keys, values = redact_json(list(value)), redact_json(list(value.values()))
        return dict(zip(keys[0], values[0], strict=True)), keys[1] + values[1]
    if isinstance(value, list):
        parts = [redact_json(part) for part in value]
        return [part for part, _ in parts], sum(count for _, count in parts)
    return value, 0


@functools.lru_cache(maxsize=1)  # every line that is written asks, and next to never is there a new one
def _forms(values: tuple[str, ...]) -> list[tuple[str, int, list[tuple[int, str]]]]:
    """What to look for: a form of a secret, how much of it tells, and the pieces one of which stands in so much."""
    found = []
    for form in dict.fromkeys(form for value in values for form in _encodings(value)):
        least = len(form) if len(form) <= _MIN_SECRET_CHARS else max(_MIN_SECRET_CHARS + 1, len(form) // 2)
        size = (least + 1) // 2
        found.append((form, least, [(at, form[at : at + size]) for at in range(0, len(form) - size + 1, size)]))
    return found


def _encodings(value: str) -> Iterator[str]:
    """A secret as it is, escaped in JSON and in URLs, and in base64, wherever in that it begins."""
    if len(value) < _MIN_SECRET_CHARS:
        return
    yield from (value, json.dumps(value)[1:-1], quote(value, safe="", errors="surrogatepass"))
    data = value.encode("utf-8", "surrogatepass")
    for before, start in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + data).decode()[start:whole]


def _in_environment() -> dict[str, str]:
    # Every line that is shown or written asks. What `os.environ` does to read one variable costs more than the search,
    # so it is read again only where the mapping behind it has changed.
    global _read
    variables: dict[bytes, bytes] = vars(os.environ)["_data"]
    if variables == _read[0]:
        return _read[1]
    found: dict[str, str] = {}
    for name, value in ((os.fsdecode(name), os.fsdecode(value)) for name, value in variables.items()):
        if any(word in name.upper() for word in _SECRET_WORDS):
            # A variable may hold several keys.
            found |= dict.fromkeys(value.replace(",", " ").replace(";", " ").split(), name)
        elif name.upper().endswith(_ADDRESSES) and (password := re.search(r":([^/@\s][^@\s]*)@", value)):
            # A malformed address is no address to whoever prints it; a short password is known by what is around it.
            found |= {password[1]: name, password[0]: name}
    _read = dict(variables), found
    return found


_read: tuple[dict[bytes, bytes], dict[str, str]] = {}, {}
"""The environment as it was read last, and the secrets in it."""
