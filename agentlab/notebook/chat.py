"""The chat widget: pick a flow and a model, type, and see the reply and every call behind it arrive.

    chat = ChatWidget(lab)              # the last line of a cell shows it
    await chat.say("How wide is a goal?")

From Python it is driven by the same parts a hand uses: `ask.value = "..."`, `send_button.click()`,
`stop_button.click()`, `flow.value = "tools"`; `answering` is the future of the reply under way.

All work happens on the lab's own loop: a click may arrive in any thread, and the reply goes on while other cells run.
This file needs ipywidgets; `agentlab.notebook.chat_widget` says so where it is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets

from agentlab.core.errors import AgentlabError
from agentlab.core.events import Event, ModelCall
from agentlab.core.messages import Reply
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.models import weights
from agentlab.notebook.render import GREY, RED, SHOWN, html_citations, html_step, html_text, numbers

if TYPE_CHECKING:
    from agentlab.core.trace import Trace

log = logging.getLogger(__name__)

BETWEEN_DRAWINGS = 0.1
SMALL = f"{GREY}; font-size: 90%"
BEFORE_ENTER = 0.2
WORKING = "working…"
OPENING = "starting the model and opening the documents…"


class TurnView:
    """One question, the calls it led to, the reply as it grows, and what the turn cost in the end."""

    def __init__(self, question: str, state: str) -> None:
        self.steps = ipywidgets.VBox()
        self.reply = ipywidgets.HTML()
        self.footer = ipywidgets.HTML(html_text(state, SMALL))
        asked = ipywidgets.HTML(
            html_text(question, "background: var(--jp-layout-color2, #eee); border-radius: 6px; padding: 4px 10px")
        )
        self.view = ipywidgets.VBox([asked, self.steps, self.reply, self.footer], layout={"margin": "0 0 14px 0"})
        self.trace: Trace | None = None
        self._turn: int | None = None
        self._said: list[str] = []
        self._call_ended = False
        self._drawn = ""
        self._ending: str | None = None

    def add_text(self, piece: str) -> None:
        # What an earlier model call of the turn said is in its line by now; the next call starts afresh.
        if self._call_ended:
            self._said.clear()
            self._call_ended = False
        self._said.append(piece)

    def add_event(self, event: Event) -> None:
        if self._turn is None:
            self._turn = event.turn
            self.footer.value = html_text(WORKING, SMALL)
        if isinstance(event, ModelCall):
            self._call_ended = True
            self.draw()
        if isinstance(event, SHOWN):
            self.steps.children += (ipywidgets.HTML(html_step(event)),)
        if self._ending is not None:
            # A reply that was stopped is still closing its events.
            self._draw_footer(self._ending)

    def draw(self) -> None:
        """Show what has been said so far; called on a beat, because every update is a message to the browser."""
        text = "".join(self._said)
        if text != self._drawn:
            self._drawn = text
            self.reply.value = html_text(text)

    async def keep_drawing(self) -> None:
        while True:
            await asyncio.sleep(BETWEEN_DRAWINGS)
            self.draw()

    def finish(self, reply: Reply) -> None:
        self._said = [reply.text]
        self._end(html_citations(reply.citations))

    def break_off(self, mark: str, style: str = SMALL) -> None:
        """Keep what was said so far and say why there is no more."""
        self._end(html_text(mark, style))

    def _end(self, ending: str) -> None:
        self.draw()
        self._ending = ending
        self._draw_footer(ending)

    def _draw_footer(self, ending: str) -> None:
        counted = ""
        if self.trace is not None and self._turn is not None:
            counted = html_text(numbers(self.trace, self._turn), SMALL)
        self.footer.value = ending + counted


class ChatWidget(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """A chat with the flows of a lab. Choosing another flow or model begins a new conversation."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.chat: Chat | None = None
        self.turns: list[TurnView] = []
        """The turns on display; the last one is the one under way."""
        self.answering: Any = None
        """The `concurrent.futures` future of the last reply; its result is a Reply, or None where there is none."""
        small = {"width": "auto"}
        self.flow = ipywidgets.Dropdown(
            options=[variant.label for variant in lab.variants], description="flow", layout={"width": "260px"}
        )
        self.model = ipywidgets.Dropdown(options=models_of(lab), description="model", layout={"width": "360px"})
        self.ask = ipywidgets.Text(
            placeholder="Ask about the documents",
            continuous_update=False,
            layout={"flex": "1 1 auto", "width": "auto"},
        )
        self.send_button = ipywidgets.Button(description="Send", button_style="primary", layout=small)
        self.stop_button = ipywidgets.Button(description="Stop", disabled=True, layout=small)
        self.clear_button = ipywidgets.Button(
            description="Clear", tooltip="Forget this conversation and begin a new one", layout=small
        )
        self.transcript = ipywidgets.VBox(layout={"flex": "0 0 auto"})
        self.model.value = lab.variants[0].model
        self.flow.observe(self._flow_chosen, "value")
        self.model.observe(lambda change: self._begin_anew(), "value")
        self.send_button.on_click(lambda button: self._send())
        self.stop_button.on_click(lambda button: self.stop())
        self.clear_button.on_click(lambda button: self.clear())
        # `Text.on_submit` is deprecated, and what replaces it also fires when the cursor merely leaves the field.
        self.ask.on_msg(lambda widget, content, buffers: self._enter(content))
        # In reverse order the browser keeps the end of the conversation in view as it grows.
        window = ipywidgets.VBox(
            [self.transcript],
            layout={"flex_flow": "column-reverse", "max_height": "480px", "overflow": "auto", "padding": "4px"},
        )
        super().__init__(
            [
                ipywidgets.HBox([self.flow, self.model, self.clear_button]),
                window,
                ipywidgets.HBox([self.ask, self.send_button, self.stop_button]),
            ],
            layout={"border": "1px solid var(--jp-border-color2, #ccc)", "padding": "8px"},
        )

    def __repr__(self) -> str:
        return f"<ChatWidget: {self.flow.value} on {self.model.value}, {len(self.turns)} turns>"

    @property
    def is_busy(self) -> bool:
        return self.answering is not None and not self.answering.done()

    async def say(self, text: str) -> Reply | None:
        """Send `text` and wait for the reply; None where it was stopped or failed, which the widget then shows."""
        if self.is_busy:
            raise AgentlabError("the chat is still answering; wait for the reply or stop it")
        reply: Reply | None = await asyncio.wrap_future(self._start(text))
        return reply

    def stop(self) -> None:
        """Break off the reply under way; what was said so far stays."""
        if self.chat is not None and self.is_busy:
            self.chat.stop()

    def clear(self) -> None:
        """Empty the display and begin a new conversation."""
        self._leave()
        self.turns = []
        self.transcript.children = ()

    def close(self) -> None:
        """End the conversation; the lab stays open."""
        self._leave()
        super().close()

    def _send(self) -> None:
        text = self.ask.value.strip()
        if text and not self.is_busy:
            self.ask.value = ""
            self._start(text)

    def _enter(self, content: dict[str, Any]) -> None:
        # The browser says that Enter was pressed before it sends the text.
        if content.get("event") == "submit":
            self.lab.start(self._send_soon())

    async def _send_soon(self) -> None:
        await asyncio.sleep(BEFORE_ENTER)
        self._send()

    def _start(self, text: str) -> Any:
        turn = TurnView(text, OPENING if self.chat is None else WORKING)
        self.turns.append(turn)
        self.transcript.children += (turn.view,)
        self._show_busy(True)
        self.answering = self.lab.start(self._answer(turn, text))
        return self.answering

    async def _answer(self, turn: TurnView, text: str) -> Reply | None:
        drawing = asyncio.create_task(turn.keep_drawing())
        try:
            if self.chat is None:
                # In a thread: reading a large corpus must not hold up a run that shares the lab's loop.
                self.chat = await asyncio.to_thread(self._open_chat)
            turn.trace = self.chat.trace
            reply = await self.chat.say(text)
            turn.finish(reply)
            return reply
        except asyncio.CancelledError:
            turn.break_off("stopped")
        except AgentlabError as problem:
            turn.break_off(str(problem), RED)
        except Exception as failure:
            # A flow somebody is still writing: the line in the widget is enough to know where to look.
            log.debug("the flow failed", exc_info=True)
            turn.break_off(f"{type(failure).__name__}: {failure}", RED)
        finally:
            drawing.cancel()
            self._show_busy(False)
        return None

    def _open_chat(self) -> Chat:
        def deliver(method: Callable[[TurnView, Any], None], what: Any) -> None:
            # A conversation that was cleared away may still be ending its last reply.
            if self.chat is chat:
                method(self.turns[-1], what)

        chat = self.lab.chat(
            self.flow.value,
            model=self.model.value,
            on_text=lambda piece: deliver(TurnView.add_text, piece),
            on_event=lambda event: deliver(TurnView.add_event, event),
        )
        return chat

    def _show_busy(self, busy: bool) -> None:
        self.send_button.disabled = self.flow.disabled = self.model.disabled = busy
        self.stop_button.disabled = not busy

    def _flow_chosen(self, change: Any) -> None:
        self._begin_anew()
        self.model.value = self.lab.variant(change["new"]).model

    def _begin_anew(self) -> None:
        if self.chat is not None:
            self._leave()
            self.transcript.children += (ipywidgets.HTML(html_text("— a new conversation —", SMALL)),)

    def _leave(self) -> None:
        if self.chat is not None:
            chat, self.chat = self.chat, None
            # A lab that is closed has closed its chats.
            if self.lab.is_running:
                self.lab.start(chat.close())


def models_of(lab: Lab) -> list[str]:
    """The models the lab's flows use, and the embedded models whose weights are here."""
    present = (f"local/{name}" for name in weights.names("chat") if weights.is_present(name))
    return list(dict.fromkeys([*(variant.model for variant in lab.variants), *present]))
