"""View of a running turn: flow, steps, reply, canvas, costs, and buttons for the next action.

Its parts have CSS classes: `agentlab-who`, `agentlab-steps`, `agentlab-reply`, `agentlab-canvas`, `agentlab-footer`
and `agentlab-receipts`. All text of models, documents and tools is escaped, or Markdown without HTML, links and
pictures.
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
QUESTION_STYLE = "background: var(--jp-layout-color2, #eee); border-radius: 6px; padding: 4px 10px; margin-bottom: 4px"


class Steps(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """Calls of a turn in order of their start, one line each; a running call pulses and shows its seconds."""

    def __init__(self) -> None:
        super().__init__(_dom_classes=("agentlab-steps",))
        self._lines: dict[int, Any] = {}
        self._depth: dict[int | None, int] = {}
        self._running: dict[int, tuple[Event, float]] = {}

    def on_step(self, item: StepStarted | StepEnded) -> None:
        event = item.event
        self._depth[event.id] = self._depth.get(event.parent, -1) + isinstance(event, render.RENDERED_EVENTS)
        if not isinstance(event, render.RENDERED_EVENTS):
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
        """Update the seconds of running calls."""
        for number, (event, since) in list(self._running.items()):
            self._lines[number].value = render.html_running(event, time.monotonic() - since)


class TurnView(ipywidgets.VBox):  # type: ignore[misc]
    """View of one turn of one flow, from the first step to the costs.

    `by` follows the name of the column; `on_late` is called if the turn changes after its end.
    """

    def __init__(self, seat: ChatColumn, state: str, by: str = "", on_late: Callable[[], None] = lambda: None) -> None:
        self.seat = seat
        self.who = html("who", render.html_text(f"{seat}{by}", render.SMALL))
        self.steps = Steps()
        self.reply = html("reply")
        self.canvas = html("canvas")
        self.footer = html("footer", render.html_text(state, render.SMALL))
        self.receipts = html("receipts")
        self.actions = ipywidgets.HBox(layout=WRAPS)
        self.form = ipywidgets.VBox()
        self.text = ""
        """Text of the reply so far."""
        self._on_late = on_late
        self.answer: FlowAnswer | None = None
        """None before the turn ends."""
        parts = [self.who, self.steps, self.reply, self.canvas, self.footer, self.receipts, self.actions, self.form]
        super().__init__(parts, layout={"flex": "1 1 280px", "min_width": "0"})

    @property
    def fork_button(self) -> Any:
        return self.actions.children[0]

    @property
    def save_button(self) -> Any:
        return self.actions.children[1]

    def on_item(self, item: StreamItem) -> None:
        """Show an item of the stream, during the turn or after it."""
        match item:
            case TurnStarted():
                self.footer.value = render.html_text("working…", render.SMALL)
            case ReplyText(text=piece):
                self.text += piece
            case ReplyRetracted():
                self.text = ""
                self.draw()
            case ToolProgress(tool=tool, text=text):
                self.footer.value = render.html_text(f"{tool}: {text}", render.SMALL)
            case StepStarted() | StepEnded():
                self.steps.on_step(item)
                if self.answer is not None:
                    # Background work, or late events of a stopped reply.
                    self.footer.value = self.answer.html_end()
                    self._on_late()

    def draw(self) -> None:
        """Draw the reply so far; called at intervals, because each update is a message to the browser."""
        self.reply.value = render.html_markdown(self.text) if self.text else ""
        self.steps.draw()

    async def _keep_drawing(self) -> None:
        while True:
            await asyncio.sleep(BETWEEN_DRAWINGS)
            self.draw()

    async def show(self, question: str, **speaker: Any) -> FlowAnswer:
        """Ask the question and show the answer as it grows, then its sources or error and its costs."""
        drawing = asyncio.create_task(self._keep_drawing())
        answer = await self.seat.answer(question, self.on_item, **speaker)
        drawing.cancel()
        if answer.reply is not None:
            canvas = str(answer.reply.data.get("canvas") or "")
            self.text = str(answer.reply.data.get("chat", answer.reply.display_text))
            self.canvas.value = render.html_markdown(canvas, render.FRAME) if canvas else ""
        self.answer = answer
        self.draw()
        self.footer.value = answer.html_end()
        return answer

    async def show_receipts(self) -> None:
        """Show what memory kept of the turn and what it did not keep."""
        lines = [] if self.seat.chat is None else await self.seat.chat.receipts()
        self.receipts.value = "".join(render.html_text(line, render.SMALL) for line in lines)

    def add_button(self, name: str, tooltip: str, on_click: Callable[[], None]) -> None:
        """Add a small button under the turn."""
        self.actions.children += (button(name, on_click, tooltip=tooltip, style={"button_color": "transparent"}),)


class Columns(ipywidgets.VBox):  # type: ignore[misc]
    """Answers of all columns to one question, with a button that stops them."""

    def __init__(self, question: str, seats: Iterable[ChatColumn], stop: Callable[[], None]) -> None:
        self.turns = [TurnView(seat, "waiting for the flow before it") for seat in seats]
        self.stop_button = button("Stop", stop)
        super().__init__([ipywidgets.HTML(render.STYLE), side_by_side(question, self.turns), self.stop_button])


def side_by_side(question: str, turns: Sequence[TurnView]) -> Any:
    """Return a question with one column per flow below it."""
    heading = ipywidgets.HTML(render.html_text(question, QUESTION_STYLE))
    columns = ipywidgets.HBox(turns, layout={**WRAPS, "grid_gap": "14px"})
    return ipywidgets.VBox([heading, columns], layout={"margin": "0 0 14px 0"})
