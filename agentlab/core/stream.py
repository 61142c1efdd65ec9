"""The stream of a conversation: what happens in it, while it happens, for whoever watches.

    stream.on("reply_text", lambda item: print(item.text, end=""))
    stream.on("assistantResponse", show)        # a notice, by the name that the flow gives it
    stream.on("*", print)

A turn sends `turn_begun`, then as they come `step_begun`, `step_ended`, `tool_progress`, `notice`, `reply_text` and
`reply_taken_back`, and at its end `done`. Work in the background goes on after that, under the number of its turn.
Nothing of it is stored: that is what the trace is for.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from msgspec import Struct

from agentlab.core.events import Event, Notice
from agentlab.core.messages import Reply, UserTurn

log = logging.getLogger(__name__)


class StreamItem(Struct, frozen=True):
    """What all items of a stream share."""

    turn: int

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)


class TurnStarted(StreamItem, frozen=True, tag="turn_begun"):
    asked: UserTurn


class StepStarted(StreamItem, frozen=True, tag="step_begun"):
    """`event` is as it stands at the beginning: nothing has come of it yet. Decisions and notices begin nothing."""

    event: Event


class StepEnded(StreamItem, frozen=True, tag="step_ended"):
    """`event` has the id it had when it began, and is now in the trace."""

    event: Event


class ToolProgress(StreamItem, frozen=True, tag="tool_progress"):
    """What a tool says while it works."""

    tool: str
    text: str


class NoticeItem(StreamItem, frozen=True, tag="notice"):
    """What a flow tells; listeners may also ask for it by the notice's own name."""

    event: Notice


class ReplyText(StreamItem, frozen=True, tag="reply_text"):
    """A further piece of the reply."""

    text: str


class ReplyRetracted(StreamItem, frozen=True, tag="reply_taken_back"):
    """What was said so far in this turn is no part of the reply: it led to a tool call, or its author begins anew."""


class Done(StreamItem, frozen=True, tag="done"):
    """The end of a turn: its reply in full, or why there is none."""

    reply: Reply | None = None
    error: str | None = None


Listener = Callable[[StreamItem], None]


class Stream:
    """Hands each item to those who asked for its name."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Listener]] = []

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every item of that name, `*` for all; call what this returns to end it."""
        entry = (name, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)

    def emit(self, item: StreamItem) -> None:
        """Tell the listeners; one that fails is named in the log, and the turn goes on."""
        if not self._listeners:
            return
        names = {"*", item.name, item.event.name} if isinstance(item, NoticeItem) else {"*", item.name}
        for name, listen in list(self._listeners):
            if name in names:
                try:
                    listen(item)
                except Exception:
                    log.warning("a listener to %r failed", name, exc_info=True)


class ReplyStream:
    """The text of one model call, on its way to the reader of the reply.

    `shows` makes of all that was said so far what the reader sees of it, such as one field of a JSON object.
    """

    def __init__(self, stream: Stream, turn: int, visible_part: Callable[[str], str]) -> None:
        self._stream = stream
        self._turn = turn
        self._shows = visible_part
        self._said = ""
        self._shown = ""

    def add(self, piece: str) -> None:
        self._said += piece
        if not self._stream.has_listeners:
            return
        shown = self._shows(self._said)
        if not shown.startswith(self._shown):
            said = self._said
            self.retract()
            self._said = said
        if len(shown) > len(self._shown):
            self._stream.emit(ReplyText(self._turn, shown[len(self._shown) :]))
            self._shown = shown

    def retract(self) -> None:
        """Nothing of it was said."""
        if self._shown:
            self._stream.emit(ReplyRetracted(self._turn))
        self._said = self._shown = ""
