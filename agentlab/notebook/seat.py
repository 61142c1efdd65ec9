"""A column of the chat widget: a flow on a model, and the conversation with it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any

import ipywidgets

from agentlab.core.errors import AgentlabError
from agentlab.core.messages import Reply
from agentlab.core.stream import Item, TurnBegun
from agentlab.data.conversations import Turn
from agentlab.lab.chat import Chat
from agentlab.lab.lab import Lab
from agentlab.models import weights
from agentlab.notebook.render import html_text
from agentlab.notebook.turn_view import SMALL, WORKING, TurnView

log = logging.getLogger(__name__)
OPENING = "starting the model and opening the documents…"


class Seat:
    """The two pickers and the chat that they lead to, which is opened when it is first asked."""

    def __init__(self, lab: Lab, flow: str) -> None:
        self._lab = lab
        self.flow = ipywidgets.Dropdown(
            options=[variant.label for variant in lab.bench.variants],
            value=flow,
            description="flow",
            layout={"flex": "1 1 220px", "max_width": "320px"},
        )
        present = (f"local/{name}" for name in weights.names("chat") if weights.is_present(name))
        self.model = ipywidgets.Combobox(
            options=tuple(dict.fromkeys([*(variant.model for variant in lab.bench.variants), *present])),
            value=lab.bench.variant(flow).model,
            description="model",
            placeholder="provider/model",
            tooltip="any model: provider/model; empty the field to see those at hand",
            continuous_update=False,
            layout={"flex": "1 1 260px", "max_width": "420px"},
        )
        self.chat: Chat | None = None
        self._asking: TurnView | None = None

    def __str__(self) -> str:
        return f"{self.flow.value} on {self.model.value}"

    def new_turn(self, text: str, speaker: str) -> TurnView:
        who = f"{self}, asked by {speaker}" if speaker else str(self)
        return TurnView(text, who, OPENING if self.chat is None else WORKING)

    async def answer(self, turn: TurnView, text: str, speaker: dict[str, Any], options: dict[str, Any]) -> Reply | None:
        """The reply, shown in `turn` as it comes; None where there is none, and then `turn` says why.

        `options` are those of a chat, in case there is none yet.
        """
        drawing = asyncio.create_task(turn.keep_drawing())
        try:
            if self.chat is None:
                # In a thread: reading a large corpus must not hold up a run that shares the lab's loop.
                self.chat = await asyncio.to_thread(self._open, options)
            self._asking, turn.chat = turn, self.chat
            before = len(self.chat.said)
            reply = await self.chat.say(text, **speaker)
            turn.place = len(self.chat.said) if len(self.chat.said) > before else None
            turn.end(reply=reply)
            return reply
        except asyncio.CancelledError:
            turn.end(html_text("stopped", SMALL))
        except AgentlabError as problem:
            turn.fail(str(problem))
        except Exception as failure:
            # A flow somebody is still writing: the line in the widget is enough to know where to look.
            log.debug("the flow failed", exc_info=True)
            turn.fail(f"{type(failure).__name__}: {failure}")
        finally:
            drawing.cancel()
        return None

    def _open(self, options: dict[str, Any]) -> Chat:
        views: dict[int, TurnView] = {}

        def deliver(item: Item) -> None:
            if isinstance(item, TurnBegun) and self._asking is not None:
                views[item.turn] = self._asking
            # What goes on in the background belongs to the turn it began in, whatever was asked since.
            if item.turn in views:
                views[item.turn].take(item)

        return self._lab.chat(self.flow.value, model=self.model.value.strip() or None, on_event=deliver, **options)

    def leave(self) -> bool:
        """End the conversation; False where there is none."""
        chat, self.chat = self.chat, None
        # A lab that is closed has closed its chats.
        if chat is not None and self._lab.loop.is_running:
            self._lab.loop.start(chat.close())
        return chat is not None

    def fork(self, turn: TurnView) -> Sequence[Turn]:
        """What was said up to and with that turn."""
        assert turn.chat is not None and turn.place is not None, "only such a turn has the button"
        return turn.chat.turns_until(turn.place)
