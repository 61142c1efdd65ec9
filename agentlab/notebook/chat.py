"""The chat widget: pick a flow and a model, type, and see the reply and every call behind it arrive.

    chat = ChatWidget(lab)              # the last line of a cell shows it
    await chat.say("How wide is a goal?")
    ChatWidget(lab, documents=(), speaker="Alex:1001", memory="my-memory")

From Python it is driven by the same parts a hand uses: `ask.value = "..."`, `send_button.click()`,
`stop_button.click()`, `flow.value = "tools"`; `answering` is the future of the reply under way. What stands in a turn
has a class in the page: `agentlab-steps`, `agentlab-reply`, `agentlab-canvas` and `agentlab-footer`.

All work happens on the lab's own loop: a click may arrive in any thread, and the reply goes on while other cells run.
This file needs ipywidgets; `agentlab.notebook.chat_widget` says so where it is missing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ipywidgets

from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Reply
from agentlab.core.stream import Item, ReplyTakenBack, ReplyText, StepEnded, ToolProgress, TurnBegun
from agentlab.core.trace import Trace, numbers
from agentlab.data.documents import Document
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.models import weights
from agentlab.notebook.render import GREY, RED, SHOWN, html_markdown, html_sources, html_step, html_text

log = logging.getLogger(__name__)

BETWEEN_DRAWINGS = 0.1
SMALL = f"{GREY}; font-size: 90%"
BEFORE_ENTER = 0.2
WORKING = "working…"
OPENING = "starting the model and opening the documents…"


class TurnView:
    """One question, the calls it led to, the reply as it grows, its canvas, and what the turn cost in the end."""

    def __init__(self, question: str, state: str) -> None:
        self.steps = ipywidgets.VBox(_dom_classes=("agentlab-steps",))
        self.reply = ipywidgets.HTML(_dom_classes=("agentlab-reply",))
        self.canvas = ipywidgets.HTML(_dom_classes=("agentlab-canvas",))
        self.footer = ipywidgets.HTML(html_text(state, SMALL), _dom_classes=("agentlab-footer",))
        asked = ipywidgets.HTML(
            html_text(question, "background: var(--jp-layout-color2, #eee); border-radius: 6px; padding: 4px 10px")
        )
        parts = [asked, self.steps, self.reply, self.canvas, self.footer]
        self.view = ipywidgets.VBox(parts, layout={"margin": "0 0 14px 0"})
        self.trace: Trace | None = None
        self._turn: int | None = None
        self._said = ""
        self._ending: str | None = None

    def take(self, item: Item) -> None:
        """Show what the stream says of this turn, during it and after."""
        match item:
            case TurnBegun():
                self._turn = item.turn
                self.footer.value = html_text(WORKING, SMALL)
            case ReplyText(text=piece):
                self._said += piece
            case ReplyTakenBack():
                self._said = ""
                self.draw()
            case ToolProgress(tool=tool, text=text):
                self.footer.value = html_text(f"{tool}: {text}", SMALL)
            case StepEnded(event=event):
                if isinstance(event, SHOWN):
                    self.steps.children += (ipywidgets.HTML(html_step(event)),)
                if self._ending is not None:
                    # Work in the background; or a reply that was stopped is still closing its events.
                    self._show_ending()

    def draw(self) -> None:
        """Show what has been said so far; called on a beat, because every update is a message to the browser."""
        self.reply.value = html_text(self._said) if self._said else ""

    async def keep_drawing(self) -> None:
        while True:
            await asyncio.sleep(BETWEEN_DRAWINGS)
            self.draw()

    def end(self, ending: str, reply: Reply | None = None) -> None:
        """Show the reply, or what was said so far; under it, as HTML, how that ended, and what it cost."""
        if reply is not None:
            canvas = str(reply.data.get("canvas") or "")
            self._said = str(reply.data.get("chat", reply.shown))
            self.canvas.value = html_markdown(canvas) if canvas else ""
        self.draw()
        self._ending = ending
        self._show_ending()

    def _show_ending(self) -> None:
        costs = ""
        if self.trace is not None and self._turn is not None:
            costs = html_text(numbers(self.trace, self._turn), SMALL)
        self.footer.value = f"{self._ending}{costs}"


class ChatWidget(ipywidgets.VBox):  # type: ignore[misc]  # ipywidgets has no type hints
    """A chat with the flows of a lab. Choosing another flow or model begins a new conversation.

    `speaker`, NAME:ID or a name, is who types, for flows that tell people apart. `documents` and `memory` are those of
    `Chat`: without them the documents of the lab's data sets, and a memory that ends with the conversation.
    """

    def __init__(
        self,
        lab: Lab,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        speaker: str = "",
        memory: str | Path | None = None,
    ) -> None:
        self.lab = lab
        self._options: dict[str, Any] = {"documents": documents, "memory": memory}
        name, _, speaker_id = speaker.partition(":")
        self._speaker = {"speaker_name": name or None, "speaker_id": speaker_id or name or None}
        self.chat: Chat | None = None
        self.turns: list[TurnView] = []
        """The turns on display; the last one is the one under way."""
        self._asking: TurnView | None = None
        self.answering: Any = None
        """The `concurrent.futures` future of the last reply; its result is a Reply, or None where there is none."""
        small, wide = {"width": "auto"}, {"width": "auto", "flex": "1 1 auto"}
        flows = [variant.label for variant in lab.variants]
        self.flow = ipywidgets.Dropdown(options=flows, description="flow", layout={"width": "260px"})
        present = (f"local/{name}" for name in weights.names("chat") if weights.is_present(name))
        models = list(dict.fromkeys([*(variant.model for variant in lab.variants), *present]))
        self.model = ipywidgets.Dropdown(options=models, description="model", layout={"width": "360px"})
        self.ask = ipywidgets.Text(placeholder="Type a message", continuous_update=False, layout=wide)
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
            self._asking = turn
            reply = await self.chat.say(text, **self._speaker)
            turn.end(html_sources(reply), reply)
            return reply
        except asyncio.CancelledError:
            turn.end(html_text("stopped", SMALL))
        except AgentlabError as problem:
            turn.end(html_text(str(problem), RED))
        except Exception as failure:
            # A flow somebody is still writing: the line in the widget is enough to know where to look.
            log.debug("the flow failed", exc_info=True)
            turn.end(html_text(f"{type(failure).__name__}: {failure}", RED))
        finally:
            drawing.cancel()
            self._show_busy(False)
        return None

    def _open_chat(self) -> Chat:
        views: dict[int, TurnView] = {}

        def deliver(item: Item) -> None:
            if isinstance(item, TurnBegun) and self._asking is not None:
                views[item.turn] = self._asking
            # What goes on in the background belongs to the turn it began in, whatever was asked since.
            if item.turn in views:
                views[item.turn].take(item)

        return self.lab.chat(self.flow.value, model=self.model.value, on_event=deliver, **self._options)

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
