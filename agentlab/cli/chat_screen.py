"""Show a chat in the terminal: steps dimmed above the growing reply, canvas, sources and costs."""

from __future__ import annotations

import re

from rich.live import Live
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from agentlab.cli.progress import line_of
from agentlab.core.escaping import escape_block, one_line, printable
from agentlab.core.events import Notice
from agentlab.core.messages import Reply
from agentlab.core.stream import (
    Done,
    NoticeItem,
    ReplyRetracted,
    ReplyText,
    StepEnded,
    StepStarted,
    StreamItem,
    TurnStarted,
)
from agentlab.evals.report.tables import Terminal
from agentlab.knowledge.citations import source_line

DRAWINGS_PER_SECOND = 8
REPEATING = re.compile(
    r"(reply|assistantResponse|bubble|debugResponse|info|mcp|memory_unavailable)  "
    r"|subsystemMessage  (LLM response: |memory: stored |next step: |tool .*: (ran|progress)  )"
    r"|systemError  tools, as before  |systemError  tool .*: failed  (?!Error: (not run|there is no tool))"
)
"""Matches lines that repeat the message, a step, a tool's result or the reply."""
MAX_DRAWN_CHARS = 20_000
"""A growing reply is wrapped again for each drawing, so only its end is drawn."""


class Screen:
    """Shows a turn: steps as they end, the reply as it grows, and at the end reply, sources and cost."""

    def __init__(self) -> None:
        self.console = Terminal()
        self.canvas = ""
        self._reply = ""
        self._is_watching = False
        self._running: dict[int, str] = {}
        """Titles of running steps by event id, background work included."""

    def watch(self) -> None:
        """Show steps from now on; a chat may have steps before its first turn."""
        self._is_watching = True
        self._running.clear()

    def live_display(self) -> Live:
        """Draw the end of the growing reply, or the running step, inside this block; `end` prints the whole reply."""
        self._reply = ""
        return Live(
            console=self.console,
            transient=True,
            auto_refresh=self.console.is_terminal,
            refresh_per_second=DRAWINGS_PER_SECOND,
            get_renderable=self._newest_lines,
        )

    def on_item(self, item: StreamItem) -> None:
        if isinstance(item, StepEnded):
            self._running.pop(item.event.id, None)
        match item:
            case TurnStarted() | Done():
                self._is_watching = isinstance(item, TurnStarted)
            case ReplyText(text=piece):
                self._reply += piece
            case ReplyRetracted():
                self._reply = ""
            case StepStarted(event=event) if event.is_billable:
                self._running[event.id] = event.title
            case NoticeItem(event=Notice(name="systemError", data={"title": "tools"}, text=problem)):
                self.dim(problem)
            case _ if self._is_watching and (line := line_of(item, hides_reply=True)) and not REPEATING.match(line):
                # The titles of these events are enough for a reader.
                line = re.sub("^(subsystem|systemStatus)Message  ", "", line)
                self.console.print(Text(line, style="dim"), no_wrap=True, overflow="ellipsis")

    def _newest_lines(self) -> Text:
        if not self._reply and self._running:
            newest = f"{one_line(list(self._running.values())[-1])} ..."
            return Text(newest, style="dim", no_wrap=True, overflow="ellipsis")
        wrapped = Text(printable(self._reply[-MAX_DRAWN_CHARS:])).wrap(self.console, self.console.width)
        return Text("\n").join(wrapped[-max(1, self.console.height - 2) :])

    def end(self, reply: Reply, costs: str) -> None:
        self.canvas = printable(str(reply.data.get("canvas") or self.canvas))
        text = printable(str(reply.data.get("chat", reply.display_text)))
        self.console.print(Text(text) if text.strip() else Text("(the reply is empty)", style="dim"))
        if reply.data.get("canvas"):
            self.show_canvas()
        if "shown" not in reply.data:
            self.dim(*map(source_line, reply.citations))
        counts, *spent = costs.rsplit(" · ", 3)
        self.dim(*([costs] if len(costs) <= self.console.width else [counts, " · ".join(spent)]))

    def interrupted(self) -> None:
        """Keep the text so far on the screen, and hide the rest of the turn."""
        self._is_watching = False
        if self._reply:
            self.console.print(Text(printable(self._reply)))
        self.dim("(interrupted)")

    def show_canvas(self) -> None:
        # Links are shown as text, since their targets are untrusted.
        self.console.print(Panel(Markdown(self.canvas, hyperlinks=False), title="canvas", title_align="left"))

    def tree(self, steps: str) -> None:
        """Print a trace; a long line is wrapped below its own branch."""
        for line in steps.splitlines():
            text = line.lstrip("│├└─ ")
            stem = line[: len(line) - len(text)]
            indent = stem.replace("├─", "│ ").replace("└─", "  ")
            parts = Text(printable(text)).wrap(self.console, max(20, self.console.width - len(stem)))
            for number, part in enumerate(parts):
                self.console.print(Text(indent if number else stem) + part)

    def dim(self, *texts: str) -> None:
        for text in texts:
            self.console.print(Text(escape_block(text), style="dim"))

    def problem(self, text: str) -> None:
        self.console.print(Text(escape_block(text), style="red"))
