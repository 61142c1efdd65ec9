"""How a command says something outside tables: the one place of the command line that prints."""

from __future__ import annotations

import sys

from agentlab.core.shown import paragraph, printable


def say(line: str, *, error: bool = False) -> None:
    """A line of ours, with whatever foreign text stands in it."""
    print(paragraph(line), file=sys.stderr if error else sys.stdout, flush=True)


def say_block(text: str) -> None:
    """Several lines that are ours by their making, such as JSON."""
    print(printable(text), flush=True)
