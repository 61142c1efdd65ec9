"""The one encoder for what is shown: what models, documents, tools and data sets wrote is data in whatever shows it.

    printable("\\x1b[2J")              # on a terminal, in a log: what would act or hide is written out: \\x1b[2J
    paragraph("id\\nFAILED: forged")    # a line of ours: what follows a foreign line end is indented
    one_line("two\\nlines")             # a title, a cell of a table
    as_html("<img onerror=...>")       # and as_markdown, fenced, as_csv_cell (CSV), escape_json (a page's script)

All of them also leave out secrets, which stand as `<secret>`.
"""

from __future__ import annotations

import html
import json
import logging
import re
import unicodedata

from agentlab.core import secrets

_JOINERS = "\u200c\u200d"
"""Some scripts cannot be written without them."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _is_hidden_char(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and c not in f"\n\t{_JOINERS}"


def printable(text: str) -> str:
    """`text` with line ends and tabs as they are, and whatever else acts on a terminal or is not seen as its escape.

    That is control characters, format characters such as those that turn the direction of writing, half surrogate
    pairs and characters of private use.
    """
    text = secrets.redact(text)
    if text.isascii() and text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    hidden = {c for c in set(text) if _is_hidden_char(c)}
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in hidden}) if hidden else text


def escape_surrogates(text: str) -> str:
    """Of half a surrogate pair, which a model may write and which has no place in UTF-8, its escape."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def strip_control_chars(text: str) -> str:
    """`text` without what `printable` writes out, for those who read it as data: a model that is told of a tool."""
    return "".join(c for c in text if not _is_hidden_char(c))


def escape_block(text: str) -> str:
    """A line of ours with foreign text in it: no line end in that begins what could pass for the next line of ours."""
    return printable(text).replace("\n", "\n    ")


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def as_html(text: str) -> str:
    """`text` as HTML shows it, in attributes too."""
    return html.escape(printable(text))


def as_markdown(text: str) -> str:
    """`text` in one line of Markdown in which nothing is a link, code, HTML, a formula, a heading or a list."""
    text = html.escape(one_line(text), quote=False)
    text = re.sub(r"[\\`*\[\]|~$!]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    text = re.sub(r"(?i)\b(https?|ftp)://", r"\1:\\/\\/", text).replace("www.", r"www\.")
    return re.sub(r"^(#|[-+](?=\s)|\d+(?=[.)]\s))", lambda m: f"\\{m[0]}" if not m[0].isdigit() else f"{m[0]}\\", text)


def fenced(text: str) -> str:
    """`text` as a block of code in Markdown, in a fence that is longer than any in it."""
    text = printable(text)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}text\n{text}\n{fence}"


def as_csv_cell(value: object) -> object:
    """A value for a spreadsheet, which would run a text that begins as a formula; numbers are left alone."""
    if not isinstance(value, str):
        return value
    value = printable(value)
    return f"'{value}" if value.lstrip(" \n").startswith(_FORMULA) else value


_ESCAPE = re.compile(r"\\ud[89ab]..\\ud[c-f]..|\\u....|\\.")


def escape_json(text: str) -> str:
    """JSON in ASCII, as `json.dumps` writes it, whose texts read as `printable` would have them once it is parsed."""

    def visible(escape: re.Match[str]) -> str:
        if escape[0] in (r"\\", r"\"", r"\/", r"\n", r"\t") or not _is_hidden_char(json.loads(f'"{escape[0]}"')):
            return escape[0]
        return escape[0].replace("\\", r"\\")

    return _ESCAPE.sub(visible, secrets.redact(text).replace(r"\r\n", r"\n"))


class LogFormatter(logging.Formatter):
    """Lines of a log that nothing in them can forge; what a message or a traceback goes on with is indented."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_block(super().format(record))
