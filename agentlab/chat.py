"""One live conversation with a flow, for notebooks and scripts.

chat = lab.chat("tools", documents="datasets/laws/corpus.jsonl")
reply = await chat.say("How wide is the goal?")
print(chat.trace.steps())
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.events import Event
from agentlab.history import ConversationDatabase
from agentlab.knowledge.documents import Document, load_documents
from agentlab.messages import Reply, UserTurn
from agentlab.session import Session
from agentlab.trace import Trace
from agentlab.variants import Variant

if TYPE_CHECKING:
    from agentlab.lab import Lab


class Chat:
    """One live conversation with a flow: `reply = await chat.say("...")`, or `chat.say_sync("...")`.

    With a file as `database`, the conversation goes on where the last chat with that file ended.
    """

    def __init__(
        self,
        lab: Lab,
        variant: Variant,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        database: str | Path = ":memory:",
        on_text: Callable[[str], None] = lambda text: None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.lab = lab
        self.variant = variant
        self.trace = Trace(variant.label, "chat")
        self.trace.listeners.append(lambda trace, event: on_event(event))
        self._documents = self._read(documents)
        self._database = ConversationDatabase(database)
        self._on_text = on_text
        self._session: Session | None = None
        self._turn = -1
        self._talking: Any = None

    def _read(self, documents: Iterable[Document] | str | Path | None) -> tuple[Document, ...]:
        if documents is None:
            return tuple(document for dataset in self.lab.datasets() for document in dataset.documents)
        if isinstance(documents, (str, Path)):
            return load_documents(Path(documents))
        return tuple(documents)

    async def say(self, text: str) -> Reply:
        self._talking = self.lab.start(self._say(text))
        return await asyncio.wrap_future(self._talking)

    def say_sync(self, text: str) -> Reply:
        return self.lab.wait(self._say(text))

    def stop(self) -> None:
        """Break off the reply that is under way; what was not finished is not remembered."""
        if self._talking is not None:
            self._talking.cancel()

    async def _say(self, text: str) -> Reply:
        if self._session is None:
            index = await self.lab.index(self._documents, self.variant.retrieval)
            self._session = await self.lab.session(
                self.variant,
                self.trace,
                index=index,
                database=self._database,
                now=datetime.now(),
                on_text=lambda event_id, piece: self._on_text(piece),
            )
        await self._session.join()
        self._turn += 1
        self._session.begin_turn(self._turn)
        return await self.variant.respond(UserTurn(text=text), self._session)
