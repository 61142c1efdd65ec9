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
_BEFORE = dict.fromkeys(_BLOCKS.split(), "\n\n") | {"br": "\n", "tr": "\n"}
_AFTER = dict.fromkeys(_BLOCKS.split(), "\n\n")
_CELLS = ("td", "th")
_BLOCKS_OF_LAYOUT = ("table", "h1", "h2", "h3", "ul", "ol", "pre")
"""Parts of a cell that show that the table arranges a page and holds no data."""
_CELL_END = "\x1f"
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
    lines = [_row(line) if _CELL_END in line else line.rstrip() for line in "".join(parts).split("\n")]
    text = re.sub(r"^ (?=\S)", "", "\n".join(lines), flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _row(line: str) -> str:
    return " | ".join(" ".join(cell.split()) for cell in line.split(_CELL_END)).rstrip(" |")


def _visible(page: Any, *, hides_menus: bool) -> list[str]:
    from bs4.element import NavigableString, PreformattedString, Tag

    walk = _Walk()
    # An explicit stack, because pages may be nested deeper than Python's recursion limit.
    open_tags = [(page, iter(page.contents))]
    while open_tags:
        tag, children = open_tags[-1]
        child = next(children, None)
        if child is None:
            open_tags.pop()
            walk.leave(tag)
        elif isinstance(child, Tag):
            is_menu = hides_menus and child.name == "nav" and not child.find(("main", "article", "h1"))
            if not is_menu and child.name not in _HIDDEN_TAGS:
                open_tags.append((child, iter(child.contents)))
                walk.enter(child)
        elif isinstance(child, NavigableString) and not isinstance(child, PreformattedString):
            walk.parts.append(str(child) if walk.in_pre else re.sub(r"\s+", " ", child))
    return walk.parts


class _Walk:
    """Text of the tags that were entered and left so far."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self.in_pre = 0
        self._cells: list[Any] = []
        """The open cell of each open table; None between cells."""

    def enter(self, tag: Any) -> None:
        self.in_pre += tag.name == "pre"
        if tag.name in (*_CELLS, "tr"):
            self._end_cell()  # a page may leave out the end tags of cells
        before = _BEFORE.get(tag.name, "")
        is_power = tag.name == "sup" and len(tag.contents) == 1 and _POWER.fullmatch(str(tag.contents[0]))
        if is_power and "".join(self.parts[-2:])[-1:].isalnum():
            before = "^"
        self.parts.append(" " if any(self._cells[-1:]) and before.isspace() else before)
        if tag.name == "table":
            self._cells.append(None)
        elif tag.name in _CELLS and self._cells and tag.find(_BLOCKS_OF_LAYOUT) is None:
            self._cells[-1] = tag

    def leave(self, tag: Any) -> None:
        self.in_pre -= tag.name == "pre"
        if tag.name == "table" or any(cell is tag for cell in self._cells[-1:]):
            self._end_cell()
        if tag.name == "table":
            self._cells.pop()
        self.parts.append(" " if any(self._cells[-1:]) else _AFTER.get(tag.name, ""))

    def _end_cell(self) -> None:
        if any(self._cells[-1:]):
            self._cells[-1] = None
            self.parts.append(_CELL_END)
