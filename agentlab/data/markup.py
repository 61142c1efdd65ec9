"""Extracts title and text of a Markdown or HTML file with Unix line ends.

Markdown is unchanged, because models read it and passages are located in it. HTML becomes the visible text, one
paragraph per block, without scripts, styles and navigation.
"""

from __future__ import annotations

import re
from typing import Any

_HEADING = re.compile(r" {0,3}#{1,6}[ \t]+(.*?)[ \t]*#*\s*")
_CODE_FENCE = re.compile(r" {0,3}(```|~~~)")
_FRONT_MATTER = re.compile(r"\s*(---|\+\+\+)[ \t]*\n(.*?\n)?(\1|\.\.\.)[ \t]*(\n|$)", re.DOTALL)
_FRONT_TITLE = re.compile(r"^title *[:=] *([\"']?)(.+?)\1 *$", re.MULTILINE)
_HIDDEN_TAGS = ("script", "style", "noscript", "template", "title", "svg", "iframe", "select", "datalist")
_BLOCKS = (
    "address article aside blockquote dd details div dl dt fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 "
    "header hr li main ol p pre section summary table ul"
)
_BREAKS = dict.fromkeys(_BLOCKS.split(), "\n\n") | {"br": "\n", "tr": "\n"}
_CELLS = ("td", "th")
_BLOCKS_OF_LAYOUT = ("table", "h1", "h2", "h3", "ul", "ol", "pre")
"""Parts of a cell that show that the table arranges a page and holds no data."""
_CELL = "\x1f"
"""Sign at the start of each cell."""
_POWER = re.compile(r"\s*[-+−–]?\d*[\dn]\s*")  # noqa: RUF001


def read_markdown(text: str) -> tuple[str, str]:
    """Return the title and the text without front matter; the title is that of the front matter or first heading.

    A `#` line inside a code block is not a heading. Without either the title is "".
    """
    title = ""
    if front := _FRONT_MATTER.match(text):
        text = text[front.end() :]
        title = (match[2] if (match := _FRONT_TITLE.search(front[2] or "")) else "").strip()
    in_code = False
    for line in text.split("\n") if not title else ():
        if _CODE_FENCE.match(line):
            in_code = not in_code
        elif not in_code and (heading := _HEADING.fullmatch(line)) and heading[1]:
            return heading[1], text
    return title, text


def read_html(text: str) -> tuple[str, str]:
    """Return the title, first h1 or "", and the text that a browser shows, without menus.

    `pre` keeps its lines. A row of a table becomes a line with bars between its cells, and a superscript follows `^`.
    """
    from bs4 import BeautifulSoup

    # Browsers skip these comments of old Word and Outlook; the parser refuses some of them.
    page = BeautifulSoup(re.sub(r"<!\[[^>]*>", "", text), "html.parser")
    title = next((each for each in page.find_all("title", limit=5) if each.find_parent("svg") is None), page.h1)
    visible = _tidy(_visible(page, hides_menus=True)) or _tidy(_visible(page, hides_menus=False))
    return " ".join(title.get_text().split()) if title else "", visible


def _tidy(parts: list[str]) -> str:
    lines = [_row(line) if _CELL in line else line.rstrip() for line in "".join(parts).split("\n")]
    text = re.sub(r"^ (?=\S)", "", "\n".join(lines), flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _row(line: str) -> str:
    before, *cells = (" ".join(cell.split()) for cell in line.split(_CELL))
    return " | ".join([f"{before} {cells[0]}".strip(), *cells[1:]]).rstrip(" |")


def _visible(page: Any, *, hides_menus: bool) -> list[str]:
    from bs4.element import NavigableString, PreformattedString, Tag

    parts: list[str] = []
    # An explicit stack, because pages may be nested deeper than Python's recursion limit. Each entry has the rest of a
    # tag, its end as text, whether it is in `pre`, and whether it is in a cell of data (None outside of tables).
    stack: list[tuple[Any, str, bool, bool | None]] = [(iter(page.contents), "", False, None)]
    while stack:
        children, end, in_pre, in_cell = stack[-1]
        child = next(children, None)
        if child is None:
            stack.pop()
            parts.append(end)
        elif isinstance(child, Tag):
            name = child.name
            is_menu = hides_menus and name == "nav" and not child.find(("main", "article", "h1"))
            if is_menu or name in _HIDDEN_TAGS:
                continue
            # A page may leave out the end tags of cells, so the next cell or row is inside the one before.
            if name == "table" or (name in (*_CELLS, "tr") and in_cell):
                in_cell = False
            is_data = name in _CELLS and in_cell is False and child.find(_BLOCKS_OF_LAYOUT) is None
            is_power = name == "sup" and len(child.contents) == 1 and _POWER.fullmatch(str(child.contents[0]))
            if is_power and "".join(parts[-2:])[-1:].isalnum():
                parts.append("^")
            else:
                parts.append(_CELL if is_data else " " if in_cell and name in _BREAKS else _BREAKS.get(name, ""))
            end = "" if _BREAKS.get(name) != "\n\n" else " " if in_cell else "\n\n"
            stack.append((iter(child.contents), end, in_pre or name == "pre", is_data or in_cell))
        elif isinstance(child, NavigableString) and not isinstance(child, PreformattedString):
            parts.append(str(child) if in_pre else re.sub(r"\s+", " ", child))
    return parts
