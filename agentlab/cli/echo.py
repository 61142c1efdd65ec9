"""Print lines outside tables; no other module of the command line calls `print`."""

from __future__ import annotations

import codecs
import io
import sys

from agentlab.core.escaping import escape_block, printable

_PLAIN = {ord(c): plain for c, plain in zip("│├└─·…•", ("|", "|", "`", "-", "-", "...", "*"), strict=True)}
"""ASCII replacements of the tree lines and signs that the command line prints."""


def accept_any_encoding() -> None:
    """Make stdout and stderr accept every text: characters outside their encoding become ASCII or escapes."""

    def plain(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        text = error.object[error.start : error.end].translate(_PLAIN)
        return "".join(c if c.isascii() else c.encode("ascii", "backslashreplace").decode() for c in text), error.end

    codecs.register_error("agentlab-plain", plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="agentlab-plain")


def echo(line: str, *, error: bool = False) -> None:
    """Print a line, with untrusted text in it escaped."""
    print(escape_block(line), file=sys.stderr if error else sys.stdout, flush=True)


def echo_block(text: str) -> None:
    """Print trusted lines, such as JSON."""
    print(printable(text), flush=True)
