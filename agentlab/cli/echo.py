"""Prints lines outside tables: the only module of the command line that prints."""

from __future__ import annotations

import sys

from agentlab.core.escaping import escape_block, printable


def echo(line: str, *, error: bool = False) -> None:
    """Print a line of ours; untrusted text in it is escaped."""
    print(escape_block(line), file=sys.stderr if error else sys.stdout, flush=True)


def echo_block(text: str) -> None:
    """Print several lines that are ours, such as JSON."""
    print(printable(text), flush=True)
