"""Prints lines outside tables: the only module of the command line that prints."""

from __future__ import annotations

import codecs
import io
import sys

from agentlab.core.escaping import escape_block, printable

_PLAIN = {ord(c): plain for c, plain in zip("│├└─·…•", ("|", "|", "`", "-", "-", "...", "*"), strict=True)}
"""Guides and signs of ours in ASCII."""


def accept_any_encoding() -> None:
    """Let the output show every text: plain guides, and escapes of what its encoding, such as cp1252, does not have."""

    def plain(error: UnicodeError) -> tuple[str, int]:
        assert isinstance(error, UnicodeEncodeError)
        text = error.object[error.start : error.end].translate(_PLAIN)
        return "".join(c if c.isascii() else c.encode("ascii", "backslashreplace").decode() for c in text), error.end

    codecs.register_error("agentlab-plain", plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and codecs.lookup(stream.encoding).name != "utf-8":
            stream.reconfigure(errors="agentlab-plain")


def echo(line: str, *, error: bool = False) -> None:
    """Print a line of ours; untrusted text in it is escaped."""
    print(escape_block(line), file=sys.stderr if error else sys.stdout, flush=True)


def echo_block(text: str) -> None:
    """Print several lines that are ours, such as JSON."""
    print(printable(text), flush=True)
