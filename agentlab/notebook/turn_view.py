"""One flow's turn as it grows: who answers, its steps, the reply, its canvas, what it cost, and what can be done next.

What stands in it has a class in the page: `agentlab-who`, `agentlab-steps`, `agentlab-reply`, `agentlab-canvas` and
`agentlab-footer`. All text of models, documents and tools is escaped, or Markdown without HTML, links and pictures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import ipywidgets

from agentlab.core.events import Event
from agentlab.core.messages import Reply
from agentlab.core.stream import Item, ReplyTakenBack, ReplyText, StepBegun, StepEnded, ToolProgress, TurnBegun
from agentlab.core.trace import Trace, numbers
from agentlab.lab.chat import Chat
from agentlab.notebook.render import (
    GREY,
    RED,
    SHOWN,
    html_canvas,
    html_cut,
    html_markdown,
    html_running,
    html_sources,
    html_step,
    html_text,
)

BETWEEN_DRAWINGS = 0.1
SMALL = f"{GREY}; font-size: 90%"
WORKING = "working…"


class Steps:
    """The calls of a turn in the order they began, each a line; what runs pulses, and says for how many seconds."""

    def __init__(self) -> None:
        self.view = ipywidgets.VBox(_dom_classes=("agentlab-steps",))
        self._lines: dict[int, Any] = {}
        self._depth: dict[int, int] = {}
        self._running: dict[int, tuple[Event, float]] = {}

    def take(self, item: StepBegun | StepEnded) -> None:
        event = item.event
        if isinstance(item, StepBegun):
            self._running[event.id] = event, time.monotonic()
        else:
            self._running.pop(event.id, None)
        outer = -1 if event.parent is None else self._depth.get(event.parent, -1)
        self._depth[event.id] = outer + isinstance(event, SHOWN)
        if isinstance(event, SHOWN):
            if event.id not in self._lines:
                deep = {"margin": f"0 0 0 {1.2 * self._depth[event.id]}em"}
                self._lines[event.id] = ipywidgets.HTML(layout=deep)
                self.view.children += (self._lines[event.id],)
            line = html_running(event, 0.0) if isinstance(item, StepBegun) else html_step(event)
            self._lines[event.id].value = line

    def draw(self) -> None:
        """Say anew for how long things have been running."""
        for number, (event, since) in list(self._running.items()):
            if isinstance(event, SHOWN):
                self._lines[number].value = html_running(event, time.monotonic() - since)


class TurnView:
    """What one flow makes of one question, from the first step to what the turn cost."""

    def __init__(self, question: str, who: str, state: str) -> None:
        self.question = question
        self.who = ipywidgets.HTML(html_text(who, SMALL), _dom_classes=("agentlab-who",))
        self._steps = Steps()
        self.steps = self._steps.view
        self.reply = ipywidgets.HTML(_dom_classes=("agentlab-reply",))
        self.canvas = ipywidgets.HTML(_dom_classes=("agentlab-canvas",))
        self.footer = ipywidgets.HTML(html_text(state, SMALL), _dom_classes=("agentlab-footer",))
        self.actions = ipywidgets.HBox(layout={"flex_flow": "row wrap"})
        self.form = ipywidgets.VBox()
        self.fork_button: Any = None
        self.save_button: Any = None
        parts = [self.who, self.steps, self.reply, self.canvas, self.footer, self.actions, self.form]
        self.view = ipywidgets.VBox(parts, layout={"flex": "1 1 280px", "min_width": "0"})
        self.chat: Chat | None = None
        self.place: int | None = None
        """Which turn of its chat's conversation this is, from 1; None where it left nothing to go on from."""
        self.said = ""
        """The reply so far."""
        self.answer = ""
        """The reply in the end, without the sources that are shown with it."""
        self.beside: TurnView | None = None
        """What a second flow makes of the same question."""
        self.on_late: Callable[[], None] = lambda: None
        """Called when something of the turn has changed after its end."""
        self._turn: int | None = None
        self._ending: str | None = None

    @property
    def trace(self) -> Trace | None:
        return None if self.chat is None else self.chat.trace

    def take(self, item: Item) -> None:
        """Show what the stream says of this turn, during it and after."""
        match item:
            case TurnBegun():
                self._turn = item.turn
                self.footer.value = html_text(WORKING, SMALL)
            case ReplyText(text=piece):
                self.said += piece
            case ReplyTakenBack():
                self.said = ""
                self.draw()
            case ToolProgress(tool=tool, text=text):
                self.footer.value = html_text(f"{tool}: {text}", SMALL)
            case StepBegun() | StepEnded():
                self._steps.take(item)
                if self._ending is not None:
                    # Work in the background; or a reply that was stopped is still closing its events.
                    self._show_ending()
                    self.on_late()

    def draw(self) -> None:
        """Show what has been said so far; called on a beat, because every update is a message to the browser."""
        self.reply.value = html_markdown(self.said) if self.said else ""
        self._steps.draw()

    async def keep_drawing(self) -> None:
        while True:
            await asyncio.sleep(BETWEEN_DRAWINGS)
            self.draw()

    def end(self, ending: str = "", reply: Reply | None = None) -> None:
        """Show the reply, or what was said so far; under it, as HTML, how that ended, and what it cost."""
        if reply is not None:
            canvas = str(reply.data.get("canvas") or "")
            self.said = str(reply.data.get("chat", reply.shown))
            self.answer = str(reply.data.get("chat", reply.text))
            self.canvas.value = html_canvas(canvas) if canvas else ""
            ending = html_sources(reply) + ending
        self.draw()
        self._ending = ending
        self._show_ending()

    def fail(self, problem: str) -> None:
        self.end(html_text(problem, RED))

    def offer(self, name: str, tooltip: str, does: Callable[[], None]) -> Any:
        """A small button under the turn."""
        button = ipywidgets.Button(description=name, tooltip=tooltip, layout={"width": "auto"}, button_style="")
        button.style.button_color = "transparent"
        button.on_click(lambda clicked: does())
        self.actions.children += (button,)
        return button

    def static(self) -> str:
        """The turn as HTML that needs no kernel."""
        parts = (self.who, self.reply, self.canvas, self.footer)
        steps = "".join(line.value for line in self.steps.children)
        folded = f"<details><summary>{len(self.steps.children)} steps</summary>{steps}</details>" if steps else ""
        shown = [part.value for part in parts]
        return "".join([shown[0], folded, *shown[1:]])

    def __str__(self) -> str:
        costs = numbers(self.trace, self._turn) if self.trace is not None and self._turn is not None else ""
        return "\n".join(line for line in (self.said, costs) if line)

    def _show_ending(self) -> None:
        costs = cut = ""
        if self.trace is not None and self._turn is not None:
            costs = html_text(numbers(self.trace, self._turn), SMALL)
            cut = html_cut(self.trace.of_turn(self._turn))
        self.footer.value = f"{cut}{self._ending}{costs}"
