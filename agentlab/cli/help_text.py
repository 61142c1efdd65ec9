"""Help that fits the terminal: prose is filled, and a comment that has no room stands below its command."""

from __future__ import annotations

import argparse
import re
import textwrap
from collections.abc import Iterator
from itertools import groupby

WIDEST = 118
"""Of prose; longer lines are hard to read."""
LISTED = re.compile(r" *\S.*?  +(?P<meaning>[^#\s].*)")
"""A name with what it means."""
COMMENT = " " * 6 + "# "
WHOLE = re.compile(r"(--?[\w-]+ )?('[^']*'|\"[^\"]*\"|(?<= )[^-\s]\S*)")
"""What is not broken: a quote, and an option with its value."""


class FittingHelp(argparse.RawDescriptionHelpFormatter):
    """Descriptions and epilogs as they were written, for a terminal of any width."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(fitted(text, width))


def fitted(text: str, width: int) -> Iterator[str]:
    """The lines of a help text; what is indented is an example or a list, the rest is prose."""
    for indented, lines in groupby(text.splitlines(), key=lambda line: line.startswith(" ") if line else None):
        if indented is None:
            yield from lines
        elif indented:
            yield from _block([*lines], width)
        else:
            yield from _filled(" ".join(lines), min(width, WIDEST))


def _block(lines: list[str], width: int) -> Iterator[str]:
    if all(len(line) <= width for line in lines):
        yield from lines
        return
    for line in lines:
        if found := LISTED.fullmatch(line):
            column = found.start("meaning")
            yield from _filled(found["meaning"], width, line[:column], " " * column)
            continue
        command, _, comment = line.partition(" # ")
        if command.strip():
            yield from _command(command.rstrip(), width)
        yield from _filled(comment, width, COMMENT)


def _command(line: str, width: int) -> Iterator[str]:
    """A command that is too long goes on below, for the shell too."""
    kept = WHOLE.sub(lambda whole: whole[0].replace(" ", "\0"), line.strip())
    indent = " " * (len(line) - len(line.lstrip()))
    *above, last = _filled(kept, width - 2, indent, indent + "    ")
    ending = " \\" if kept[0].isalpha() else ""
    yield from (each.replace("\0", " ") + ending for each in above)
    yield last.replace("\0", " ")


def _filled(text: str, width: int, first: str = "", rest: str | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=first if rest is None else rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
