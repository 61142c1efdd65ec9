"""Finds and redacts the secrets of this process, so that no recording, log, report, screen or run has one.

    secrets.register(["sk-123456789"], "a key of openai")
    secrets.find_secret("Authorization: Bearer sk-123456789")      # "a key of openai"
    secrets.redact("use sk-123456789, or http://me:hunter2@host")   # "use <secret>, or http://me:<secret>@host"

Environment variables are not registered: `..._API_KEY`, `...TOKEN`, `...SECRET` and `...PASSWORD` contain secrets,
and an address (`..._URL`, `..._URI`, `..._PROXY`) may contain a password. Code that reads a secret from a file or an
argument registers it.
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
"""Replacement of a secret."""
_SECRET_WORDS = ("API_KEY", "TOKEN", "SECRET", "PASSWORD")
_ADDRESSES = ("URL", "URI", "PROXY", "ENDPOINT")
_MIN_SECRET_CHARS = 8
"""Shorter values also occur in ordinary texts. Half of a longer secret is redacted as well."""
_registered: dict[str, str] = {}
_IN_ADDRESS = re.compile(r"""(://[^\s/@:"'<>\\]*:)[^\s/@"'<>\\]+(?=@)""")
_IN_QUERY = re.compile(
    r"""([?&;](?:api[-_]?key|key|(?:access[-_]|auth[-_])?token|auth|(?:client[-_])?secret|password|passwd|pwd"""
    r"""|sig|signature)=)[^&\s"'<>#\\]{6,}""",
    re.IGNORECASE,
)


def register(values: Iterable[str], name: str) -> None:
    """Add `values` to the secrets, under a name that is not secret."""
    _registered.update(dict.fromkeys(values, name))


def find_secret(text: str) -> str | None:
    """Return the name of a secret in `text`, plain or escaped in JSON; None if there is none."""
    for value, name in (_registered | _in_environment()).items():
        if len(value) >= _MIN_SECRET_CHARS and (value in text or json.dumps(value)[1:-1] in text):
            return name
    return None


def redact(text: str) -> str:
    """Return `text` without the secrets of this process and without passwords and keys in any address.

    A secret is found whole, by a half of more than eight characters, in base64 and escaped in a URL.
    """
    hidden: set[int] = set()
    for form, min_chars, pieces in _forms((*_registered, *_in_environment())):
        for begin, piece in pieces:
            at = text.find(piece)
            while at >= 0:
                start, end = at, at + len(piece)
                while start > 0 and begin - (at - start) > 0 and text[start - 1] == form[begin - (at - start) - 1]:
                    start -= 1
                while end < len(text) and begin + (end - at) < len(form) and text[end] == form[begin + (end - at)]:
                    end += 1
                if end - start >= min_chars:
                    hidden.update(range(start, end))
                at = text.find(piece, end)
    if hidden:
        runs = groupby(enumerate(text), lambda placed: placed[0] in hidden)
        text = "".join(REDACTED if is_secret else "".join(c for _, c in run) for is_secret, run in runs)
    if "://" in text and "@" in text:
        text = _IN_ADDRESS.sub(rf"\1{REDACTED}", text)
    return _IN_QUERY.sub(rf"\1{REDACTED}", text) if "=" in text else text


def redact_json(value: Any) -> tuple[Any, int]:
    """Return a JSON value without secrets, and the number of its texts that had one."""
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


@functools.lru_cache(maxsize=1)  # each written line calls it, and the secrets hardly ever change
def _forms(values: tuple[str, ...]) -> list[tuple[str, int, list[tuple[int, str]]]]:
    """Return for each encoding of a secret: itself, the minimum length to redact, and pieces to search for.

    Any part of that length contains at least one of the pieces.
    """
    forms = []
    for form in dict.fromkeys(form for value in values for form in _encodings(value)):
        min_chars = len(form) if len(form) <= _MIN_SECRET_CHARS else max(_MIN_SECRET_CHARS + 1, len(form) // 2)
        size = (min_chars + 1) // 2
        forms.append((form, min_chars, [(at, form[at : at + size]) for at in range(0, len(form) - size + 1, size)]))
    return forms


def _encodings(value: str) -> Iterator[str]:
    """Yield a secret as it is, escaped in JSON and in URLs, and in base64 at each of its three alignments."""
    if len(value) < _MIN_SECRET_CHARS:
        return
    yield from (value, json.dumps(value)[1:-1], quote(value, safe="", errors="surrogatepass"))
    data = value.encode("utf-8", "surrogatepass")
    for before, start in ((0, 0), (1, 2), (2, 3)):
        whole = (before + len(data)) * 8 // 6
        for encode in (base64.b64encode, base64.urlsafe_b64encode):
            yield encode(b"\0" * before + data).decode()[start:whole]


def _in_environment() -> dict[str, str]:
    # Each line that is shown or written calls this. Reading one variable of `os.environ` costs more than the search,
    # so it is read again only if the mapping behind it has changed.
    global _read
    variables: dict[bytes, bytes] = vars(os.environ)["_data"]
    if variables == _read[0]:
        return _read[1]
    values: dict[str, str] = {}
    for name, value in ((os.fsdecode(name), os.fsdecode(value)) for name, value in variables.items()):
        if any(word in name.upper() for word in _SECRET_WORDS):
            # A variable may hold several keys.
            values |= dict.fromkeys(value.replace(",", " ").replace(";", " ").split(), name)
        elif name.upper().endswith(_ADDRESSES) and (password := re.search(r":([^/@\s][^@\s]*)@", value)):
            # A malformed address does not match `_IN_ADDRESS`; a short password is found by the text around it.
            values |= {password[1]: name, password[0]: name}
    _read = dict(variables), values
    return values


_read: tuple[dict[bytes, bytes], dict[str, str]] = {}, {}
"""Environment at the last reading, and its secrets."""
