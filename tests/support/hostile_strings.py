"""Two hundred texts that would act in a program that trusts them, and the parts that no output may contain raw."""

from __future__ import annotations

import re
from html.parser import HTMLParser

RAW = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff]"
)
"""Characters that control a terminal, end a line or are invisible."""
FORGED = "FORGED"
"""Text that the strings try to put at the start of a line."""
_ACTIVE = [
    "<script>window.struck = 1</script>",
    '<img src=x onerror="window.struck = 1">',
    '<a href="javascript:window.struck = 1">press</a>',
    "<style>body { display: none }</style>",
    '<svg onload="window.struck = 1"></svg>',
    "</script><script>window.struck = 1</script>",
    "</pre></div></textarea></title><iframe src=x></iframe>",
    "[press](javascript:window.struck=1)",
    "![picture](http://127.0.0.1:9/x)",
    "<http://127.0.0.1:9/auto>",
    "[press][1]\n\n[1]: javascript:window.struck",
    "`````` \n<img src=x onerror=struck>\n``````",
    "```\n<img src=x onerror=struck>\n```",
    "~~~\n<img src=x onerror=struck>\n~~~",
    "`````````````````````````",
    "$$\\href{javascript:struck}{x}$$",
    "| a | b |\n| - | - |\n| <b>x</b> | y |",
    "]]><!-- --><![CDATA[",
    "&lt;script&gt;&#x3c;b>",
    '"><b>x</b>',
    "'><b>x</b>",
]
_TERMINAL = [
    "\x1b]0;owned\x07",
    "\x1b[2J\x1b[H",
    "\x1b[31mred\x1b[0m",
    "\x1b]8;;http://127.0.0.1:9\x1b\\link\x1b]8;;\x1b\\",
    "\x1b]52;c;b3duZWQ=\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b2J\x9d0;owned\x9c",
    "\x90\x98\x9e\x9f",
    "over\rwritten",
    "b\x08\x08\x08bell\x07",
    "\x0b\x0c\x1c\x1d\x1e\x1f\x7f\x85",
    "a\0b",
    "\u202eevil\u202c \u2066x\u2069 \u200fy",
    "\ufeff\u200b\u2060\u00adhidden",
    "\u2028line\u2029paragraph",
    "[bold red]markup[/] [link=http://127.0.0.1:9]x[/link] :bomb:",
    "%s %n {0} {x} \\x1b[2J",
]
_LINES = [f"ok\n{FORGED} FAILED", f"ok\r\n{FORGED}", f"\n# {FORGED}", f"a\n\n- {FORGED}", f"x\n1. {FORGED}\n---"]
_FORMULAS = ["=1+1", "=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", ' ="x"', "\n=HYPERLINK(1)"]
_BASES = [*_ACTIVE, *_TERMINAL, *_LINES, *_FORMULAS]
STRINGS = [
    *_BASES,
    *(f"{base} {other}" for base, other in zip(_BASES, _BASES[7:] + _BASES[:7], strict=True)),
    *(f"h\n{FORGED}{base}" for base in _BASES),
    *(f"{base}{FORGED}".upper() for base in _BASES[: 200 - 3 * len(_BASES) - 4]),
    *("A" * 20_000, "`" * 5_000, "é\x1b" * 2_000, f"\n{FORGED}" * 1_000),
]
HALVES = ["half \ud800 a pair", "\udc00", "\ud83d\x1b[2J"]
"""Half surrogate pairs: only a model can write them, because agentlab refuses a data set that contains one."""


class Elements(HTMLParser):
    """Parser that collects the elements of a page, those that execute or load, and its visible text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.active: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        acts = [name for name, value in attrs if name.startswith("on") or "javascript:" in (value or "")]
        if acts or (
            (tag, attrs) not in (("style", [("scoped", None)]), ("style", [("scoped", "")]))
            and tag in ("script", "iframe", "svg", "img", "style", "a", "b")
        ):
            self.active.append(f"{tag} {attrs}"[:300])

    def handle_data(self, data: str) -> None:
        self.text += data
