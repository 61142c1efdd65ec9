"""What a chat in the terminal shows: steps dimmed above the reply, which grows, the canvas, sources and costs."""

from __future__ import annotations

from rich.live import Live
from rich.markdown import Markdown
from rich.panel import Panel
from rich.text import Text

from agentlab.cli.progress import line_of
from agentlab.core.messages import Reply
from agentlab.core.shown import one_line, paragraph, printable
from agentlab.core.stream import Done, Item, Noticed, ReplyTakenBack, ReplyText, StepBegun, StepEnded, TurnBegun
from agentlab.evals.report.tables import Terminal
from agentlab.knowledge.citations import source_line

DRAWINGS_PER_SECOND = 8
MOST_DRAWN = 20_000
"""Characters of a reply that is still growing; it is wrapped anew for each drawing."""


class Screen:
    """Shows a turn: steps as they end, the reply as it grows, and at the end reply, sources and cost."""

    def __init__(self) -> None:
        self.console = Terminal()
        self.canvas = ""
        self._said = ""
        self._is_watching = False
        self._under_way: dict[int, str] = {}
        """Titles of steps that have begun, by the ids of their events; of background work, too."""

    def watch(self) -> None:
        """From here on steps are shown: a chat that opens may have something to say before its first turn."""
        self._is_watching = True
        self._under_way.clear()

    def at_work(self) -> Live:
        """Draws while its block lasts: the end of the reply as it grows, or else the step that is under way.

        Then that is gone, for `end` to print the reply whole.
        """
        self._said = ""
        return Live(
            console=self.console,
            transient=True,
            auto_refresh=self.console.is_terminal,
            refresh_per_second=DRAWINGS_PER_SECOND,
            get_renderable=self._newest_lines,
        )

    def take(self, item: Item) -> None:
        if isinstance(item, StepEnded):
            self._under_way.pop(item.event.id, None)
        match item:
            case TurnBegun():
                self._is_watching = True
            case ReplyText(text=piece):
                self._said += piece
            case ReplyTakenBack():
                self._said = ""
            case Done():
                self._is_watching = False
            case StepBegun(event=event):
                if event.costed:
                    self._under_way[event.id] = event.title
                return
            case Noticed(event=event) if event.text in self._said or (self._said and event.text.startswith(self._said)):
                pass  # a flow tells its reply, with sources, to whoever listens for that
            case _ if self._is_watching and (line := line_of(item)):
                self.console.print(Text(line, style="dim"), no_wrap=True, overflow="ellipsis")

    def _newest_lines(self) -> Text:
        if not self._said and self._under_way:
            newest = f"{one_line(list(self._under_way.values())[-1])} ..."
            return Text(newest, style="dim", no_wrap=True, overflow="ellipsis")
        wrapped = Text(printable(self._said[-MOST_DRAWN:])).wrap(self.console, self.console.width)
        return Text("\n").join(wrapped[-max(1, self.console.height - 2) :])

    def end(self, reply: Reply, costs: str) -> None:
        self.canvas = printable(str(reply.data.get("canvas") or self.canvas))
        said = printable(str(reply.data.get("chat", reply.shown)))
        if said.strip():
            self.console.print(Text(said))
        else:
            self.dim("(the reply is empty)")
        if reply.data.get("canvas"):
            self.show_canvas()
        if "shown" not in reply.data:
            for citation in reply.citations:
                self.dim(source_line(citation))
        self.dim(costs)

    def broken_off(self) -> None:
        """Keep what was said so far on display; what still comes of the turn is not shown."""
        self._is_watching = False
        if self._said:
            self.console.print(Text(printable(self._said)))
        self.dim("(interrupted)")

    def show_canvas(self) -> None:
        # Links are shown as text: where one leads is the model's word.
        self.console.print(Panel(Markdown(self.canvas, hyperlinks=False), title="canvas", title_align="left"))

    def tree(self, steps: str) -> None:
        """Print a trace; a line of it that is longer than the terminal is wide goes on below itself."""
        for line in steps.splitlines():
            text = line.lstrip("│├└─ ")
            stem = line[: len(line) - len(text)]
            below = stem.replace("├─", "│ ").replace("└─", "  ")
            parts = Text(printable(text)).wrap(self.console, max(20, self.console.width - len(stem)))
            for number, part in enumerate(parts):
                self.console.print(Text(below if number else stem) + part)

    def dim(self, text: str) -> None:
        self.console.print(Text(paragraph(text), style="dim"))

    def problem(self, text: str) -> None:
        self.console.print(Text(paragraph(text), style="red"))
