"""Escapes untrusted text for the place that shows it: terminal, log, HTML, Markdown, CSV or JSON.

    printable("\\x1b[2J")              # on a terminal, in a log: control characters as escapes: \\x1b[2J
    escape_block("id\\nFAILED: forged") # in a line of ours: the lines after the first are indented
    one_line("two\\nlines")             # a title, a cell of a table
    as_html("<img onerror=...>")       # and as_markdown, fenced, as_csv_cell (CSV), escape_json (a page's script)

Untrusted text comes from models, documents, tools and data sets. All functions also replace secrets by `<secret>`.
"""

from __future__ import annotations

import html
import json
import logging
import re
import unicodedata

from agentlab.core import secrets

_JOINERS = "\u200c\u200d"
"""Hidden characters that stay, because some scripts need them."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


def _is_hidden_char(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp") and c not in f"\n\t{_JOINERS}"


def printable(text: str) -> str:
    """Return `text` with hidden characters as escapes; line ends and tabs stay.

    Hidden are control characters, format characters (such as those that reverse the direction of writing), half
    surrogate pairs and characters of private use.
    """
    text = secrets.redact(text)
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n")
    hidden = {c for c in set(text) if _is_hidden_char(c)}
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in hidden}) if hidden else text


def escape_surrogates(text: str) -> str:
    """Return `text` with each half surrogate pair as an escape: a model may write one, but UTF-8 has none."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def strip_control_chars(text: str) -> str:
    """Return `text` without hidden characters, for readers of data such as a model that reads a tool description."""
    return "".join(c for c in text if not _is_hidden_char(c))


def escape_block(text: str) -> str:
    """Return a line of ours that contains untrusted text: further lines are indented, so none looks like ours."""
    return printable(text).replace("\n", "\n    ")


def one_line(text: str) -> str:
    return " ".join(printable(text).split())


def as_html(text: str) -> str:
    """Return `text` escaped for HTML and its attributes."""
    return html.escape(printable(text))


def as_markdown(text: str) -> str:
    """Return `text` as one line of Markdown without links, code, HTML, formulas, headings or lists."""
    text = html.escape(one_line(text), quote=False)
    text = re.sub(r"[\\`*\[\]|~$!]|(?<![^\W_])_|_(?![^\W_])", r"\\\g<0>", text)
    text = re.sub(r"(?i)\b(https?|ftp)://", r"\1:\\/\\/", text).replace("www.", r"www\.")
    return re.sub(r"^(#|[-+](?=\s)|\d+(?=[.)]\s))", lambda m: f"\\{m[0]}" if not m[0].isdigit() else f"{m[0]}\\", text)


def fenced(text: str) -> str:
    """Return `text` as a Markdown code block, whose fence is longer than any fence in `text`."""
    text = printable(text)
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", text))])
    return f"{fence}text\n{text}\n{fence}"


def as_csv_cell(value: object) -> object:
    """Return a value for a spreadsheet: a text that begins like a formula gets a quote, a number stays."""
    if not isinstance(value, str):
        return value
    value = printable(value)
    return f"'{value}" if value.lstrip(" \n").startswith(_FORMULA) else value


_ESCAPE = re.compile(r"\\ud[89ab]..\\ud[c-f]..|\\u....|\\.")


def escape_json(text: str) -> str:
    """Return ASCII JSON (from `json.dumps`) in which each text, once parsed, is as `printable` returns it."""

    def visible(escape: re.Match[str]) -> str:
        if escape[0] in (r"\\", r"\"", r"\/", r"\n", r"\t") or not _is_hidden_char(json.loads(f'"{escape[0]}"')):
            return escape[0]
        return escape[0].replace("\\", r"\\")

    return _ESCAPE.sub(visible, secrets.redact(text).replace(r"\r\n", r"\n"))


class LogFormatter(logging.Formatter):
    """Formatter whose log lines cannot be forged: further lines of a message or traceback are indented."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_block(super().format(record))
