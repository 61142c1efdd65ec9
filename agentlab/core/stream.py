"""Live events of a conversation, for listeners such as the terminal, a notebook or a log.

    stream.on("reply_text", lambda item: print(item.text, end=""))
    stream.on("assistantResponse", show)        # a notice, by the name that the flow gives it
    stream.on("*", print)

A turn sends `turn_begun`, then any number of `step_begun`, `step_ended`, `tool_progress`, `question`, `notice`,
`reply_text` and `reply_taken_back`, and at the end `done`. Background tasks send items after `done`, with the number of
their turn. The stream stores nothing; the trace does.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Future

from msgspec import Struct

from agentlab.core.events import Event, Notice
from agentlab.core.messages import Reply, UserTurn

log = logging.getLogger(__name__)


class StreamItem(Struct, frozen=True):
    """Base of all items of a stream."""

    turn: int

    @property
    def name(self) -> str:
        return str(self.__struct_config__.tag)


class TurnStarted(StreamItem, frozen=True, tag="turn_begun"):
    message: UserTurn


class StepStarted(StreamItem, frozen=True, tag="step_begun"):
    """Start of a step; `event` has no result yet. Decisions and notices have no start."""

    event: Event


class StepEnded(StreamItem, frozen=True, tag="step_ended"):
    """End of a step; `event` has the same id as at its start and is now in the trace."""

    event: Event


class ToolProgress(StreamItem, frozen=True, tag="tool_progress"):
    """Progress message of a running tool."""

    tool: str
    text: str


class UserQuestion(StreamItem, frozen=True, tag="question"):
    """Question of a running tool, for the listener that subscribes to it by this name and calls `reply`."""

    text: str
    answer: Future[str | None]

    def reply(self, text: str | None) -> None:
        """Answer from any thread; None means that the user gives no answer, and a late answer is ignored."""
        if not self.answer.done():
            self.answer.set_result(text)


class NoticeItem(StreamItem, frozen=True, tag="notice"):
    """Notice of a flow; listeners may also subscribe to the notice's own name."""

    event: Notice


class ReplyText(StreamItem, frozen=True, tag="reply_text"):
    """Next piece of the reply."""

    text: str


class ReplyRetracted(StreamItem, frozen=True, tag="reply_taken_back"):
    """The text so far is not part of the reply: it led to a tool call, or the model starts again."""


class Done(StreamItem, frozen=True, tag="done"):
    """End of a turn: the whole reply, or the error."""

    reply: Reply | None = None
    error: str | None = None


Listener = Callable[[StreamItem], None]


class Stream:
    """Passes each item to the listeners of its name."""

    def __init__(self) -> None:
        self._listeners: list[tuple[str, Listener]] = []

    @property
    def has_listeners(self) -> bool:
        return bool(self._listeners)

    def has_listener(self, name: str) -> bool:
        """Return True if a listener subscribes to items of exactly this name."""
        return any(each == name for each, _ in self._listeners)

    def on(self, name: str, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every item of that name (`*`: all); returns a function that removes it."""
        entry = (name, listener)
        self._listeners.append(entry)
        return lambda: self._listeners.remove(entry)

    def emit(self, item: StreamItem) -> None:
        """Pass an item to its listeners; the failure of a listener is logged and the turn continues."""
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
    """Streamed text of one model call.

    `visible_part` returns the part of the text so far that the user sees, such as one field of a JSON object.
    """

    def __init__(self, stream: Stream, turn: int, visible_part: Callable[[str], str]) -> None:
        self._stream = stream
        self._turn = turn
        self._visible_part = visible_part
        self._text = ""
        self._emitted = ""

    def add(self, piece: str) -> None:
        self._text += piece
        if not self._stream.has_listeners:
            return
        visible = self._visible_part(self._text)
        if not visible.startswith(self._emitted):
            text = self._text
            self.retract()
            self._text = text
        if len(visible) > len(self._emitted):
            self._stream.emit(ReplyText(self._turn, visible[len(self._emitted) :]))
            self._emitted = visible

    def settle(self, text: str) -> None:
        """Replace the text so far by the final text, which may lack parts of it, such as a thought."""
        if not text.startswith(self._text):
            self.retract()
        self.add(text[len(self._text) :])

    def retract(self) -> None:
        """Withdraw the text emitted so far."""
        if self._emitted:
            self._stream.emit(ReplyRetracted(self._turn))
        self._text = self._emitted = ""
