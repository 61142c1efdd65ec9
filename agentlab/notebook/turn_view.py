"""One flow's turn as it grows: who answers, its steps, the reply, its canvas, what it cost, and what can be done next.

What stands in it has a class in the page: `agentlab-who`, `agentlab-steps`, `agentlab-reply`, `agentlab-canvas` and
`agentlab-footer`. All text of models, documents and tools is escaped, or Markdown without HTML, links and pictures.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import ipywidgets

from agentlab.core.events import Event
from agentlab.core.stream import (
    ReplyRetracted,
    ReplyText,
    StepEnded,
    StepStarted,
    StreamItem,
    ToolProgress,
    TurnStarted,
)
from agentlab.notebook import render
from agentlab.notebook.answers import FlowAnswer
from agentlab.notebook.chat_column import ChatColumn
from agentlab.notebook.controls import WRAPS, button, html

BETWEEN_DRAWINGS = 0.1
ASKED = "background: var(--jp-layout-color2, #eee); border-radius: 6px; padding: 4px 10px; margin-bottom: 4px"


class Steps(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """The calls of a turn in the order they began, each a line; what runs pulses, and says for how many seconds."""

    def __init__(self) -> None:
        super().__init__(_dom_classes=("agentlab-steps",))
        self._lines: dict[int, Any] = {}
        self._depth: dict[int | None, int] = {}
        self._running: dict[int, tuple[Event, float]] = {}

    def take(self, item: StepStarted | StepEnded) -> None:
        event = item.event
        self._depth[event.id] = self._depth.get(event.parent, -1) + isinstance(event, render.SHOWN)
        if not isinstance(event, render.SHOWN):
            return
        if event.id not in self._lines:
            self._lines[event.id] = ipywidgets.HTML(layout={"margin": f"0 0 0 {1.2 * self._depth[event.id]}em"})
            self.children += (self._lines[event.id],)
        if isinstance(item, StepStarted):
            self._running[event.id] = event, time.monotonic()
            self._lines[event.id].value = render.html_running(event, 0.0)
        else:
            self._running.pop(event.id, None)
            self._lines[event.id].value = render.html_step(event)

    def draw(self) -> None:
        """Say anew for how long things have been running."""
        for number, (event, since) in list(self._running.items()):
            self._lines[number].value = render.html_running(event, time.monotonic() - since)


class TurnView(ipywidgets.VBox):  # type: ignore[misc]
    """What one flow makes of one question, from the first step to what the turn cost.

    `by` is added to the name of the seat; `on_late` is called when something of the turn has changed after its end.
    """

    def __init__(self, seat: ChatColumn, state: str, by: str = "", on_late: Callable[[], None] = lambda: None) -> None:
        self.seat = seat
        self.who = html("who", render.html_text(f"{seat}{by}", render.SMALL))
        self.steps = Steps()
        self.reply = html("reply")
        self.canvas = html("canvas")
        self.footer = html("footer", render.html_text(state, render.SMALL))
        self.actions = ipywidgets.HBox(layout=WRAPS)
        self.form = ipywidgets.VBox()
        self.said = ""
        """The reply so far."""
        self._on_late = on_late
        self.answer: FlowAnswer | None = None
        """None before its end."""
        parts = [self.who, self.steps, self.reply, self.canvas, self.footer, self.actions, self.form]
        super().__init__(parts, layout={"flex": "1 1 280px", "min_width": "0"})

    @property
    def fork_button(self) -> Any:
        return self.actions.children[0]

    @property
    def save_button(self) -> Any:
        return self.actions.children[1]

    def take(self, item: StreamItem) -> None:
        """Show what the stream says of this turn, during it and after."""
        match item:
            case TurnStarted():
                self.footer.value = render.html_text("working…", render.SMALL)
            case ReplyText(text=piece):
                self.said += piece
            case ReplyRetracted():
                self.said = ""
                self.draw()
            case ToolProgress(tool=tool, text=text):
                self.footer.value = render.html_text(f"{tool}: {text}", render.SMALL)
            case StepStarted() | StepEnded():
                self.steps.take(item)
                if self.answer is not None:
                    # Work in the background; or a reply that was stopped is still closing its events.
                    self.footer.value = self.answer.html_end()
                    self._on_late()

    def draw(self) -> None:
        """Show what has been said so far; called on a beat, because every update is a message to the browser."""
        self.reply.value = render.html_markdown(self.said) if self.said else ""
        self.steps.draw()

    async def _keep_drawing(self) -> None:
        while True:
            await asyncio.sleep(BETWEEN_DRAWINGS)
            self.draw()

    async def show(self, question: str, **speaker: Any) -> FlowAnswer:
        """Ask, and show the answer as it comes, or what was said so far; below it how that ended, and what it cost."""
        drawing = asyncio.create_task(self._keep_drawing())
        answer = await self.seat.answer(question, self.take, **speaker)
        drawing.cancel()
        if answer.reply is not None:
            canvas = str(answer.reply.data.get("canvas") or "")
            self.said = str(answer.reply.data.get("chat", answer.reply.display_text))
            self.canvas.value = render.html_markdown(canvas, render.FRAME) if canvas else ""
        self.answer = answer
        self.draw()
        self.footer.value = answer.html_end()
        return answer

    def add_button(self, name: str, tooltip: str, does: Callable[[], None]) -> None:
        """Add a small button under the turn."""
        self.actions.children += (button(name, does, tooltip=tooltip, style={"button_color": "transparent"}),)


class Columns(ipywidgets.VBox):  # type: ignore[misc]
    """The answers of all seats to one question, one after the other, and a button that stops them."""

    def __init__(self, question: str, seats: Iterable[ChatColumn], stop: Callable[[], None]) -> None:
        self.turns = [TurnView(seat, "waits for its turn") for seat in seats]
        self.stop_button = button("Stop", stop)
        super().__init__([ipywidgets.HTML(render.STYLE), side_by_side(question, self.turns), self.stop_button])


def side_by_side(question: str, turns: Sequence[TurnView]) -> Any:
    """A question and below it what each flow makes of it, a column each."""
    asked = ipywidgets.HTML(render.html_text(question, ASKED))
    columns = ipywidgets.HBox(turns, layout={**WRAPS, "grid_gap": "14px"})
    return ipywidgets.VBox([asked, columns], layout={"margin": "0 0 14px 0"})
