"""One live conversation with a flow, for notebooks and scripts.

chat = lab.chat("tools", documents="datasets/laws/corpus.jsonl")
reply = await chat.say("How wide is the goal?")
print(chat.trace.steps())
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.events import Event
from agentlab.core.files import folder_of
from agentlab.core.messages import Reply, UserTurn
from agentlab.core.trace import Trace
from agentlab.data.documents import Document, load_documents
from agentlab.memory.unavailable import Away
from agentlab.session.history import ConversationDatabase
from agentlab.session.session import Session
from agentlab.workbench.variants import Variant

if TYPE_CHECKING:
    from agentlab.lab.lab import Lab

log = logging.getLogger(__name__)
CLOSING_SECONDS = 60


class Chat:
    """One live conversation with a flow: `reply = await chat.say("...")`, or `chat.say_sync("...")`.

    With a file as `database`, the conversation goes on where the last chat with that file ended; with a folder as
    `memory`, what was remembered stays there. Without them both end with the lab. `clock` says when a turn takes place.
    """

    def __init__(
        self,
        lab: Lab,
        variant: Variant,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        database: str | Path = ":memory:",
        memory: str | Path | None = None,
        clock: Callable[[], datetime] = datetime.now,
        on_text: Callable[[str], None] = lambda text: None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.lab = lab
        self.variant = variant
        self.trace = Trace(variant.label, "chat")
        self.trace.listeners.append(lambda trace, event: on_event(event))
        self._documents = self._read(documents)
        self._database = ConversationDatabase(database)
        self._memory_folder = memory
        self._keeps_memory = memory is not None
        self._clock = clock
        self._on_text = on_text
        self._session: Session | None = None
        self._turn = -1
        self._talking: Any = None
        self._finishing: asyncio.Task[None] | None = None
        self._one_at_a_time = asyncio.Lock()

    def _read(self, documents: Iterable[Document] | str | Path | None) -> tuple[Document, ...]:
        if documents is None:
            return tuple(document for dataset in self.lab.datasets() for document in dataset.documents)
        if isinstance(documents, (str, Path)):
            return load_documents(Path(documents))
        return tuple(documents)

    async def say(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Reply:
        turn = UserTurn(text=text, speaker_id=speaker_id, speaker_name=speaker_name)
        self._talking = self.lab.start(self._say(turn))
        return await asyncio.wrap_future(self._talking)

    def say_sync(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Reply:
        self._talking = self.lab.start(self._say(UserTurn(text=text, speaker_id=speaker_id, speaker_name=speaker_name)))
        reply: Reply = self.lab.wait_for(self._talking)
        return reply

    def stop(self) -> None:
        """Break off the reply that is under way; of what was said, that stays which the flow had stored by then."""
        if self._talking is not None:
            self._talking.cancel()

    def reset_sync(self) -> None:
        """Begin a new conversation: what was said is no longer read, and what was being fetched for it is dropped.

        Long-term memory stays, and what is on its way there arrives.
        """
        self.lab.wait(self._reset())

    async def _say(self, turn: UserTurn) -> Reply:
        # A turn that is being broken off still has its history to put in order.
        async with self._one_at_a_time:
            session = await self._opened()
            await self._finish()
            self._turn += 1
            session.now = self._clock()
            session.begin_turn(self._turn)
            try:
                return await self.variant.respond(turn, session)
            finally:
                # While the user reads, not when the user has asked again.
                self._finishing = asyncio.create_task(session.join())

    async def _opened(self) -> Session:
        if self._memory_folder is None:
            self._memory_folder = folder_of(self)
        if self._session is not None and isinstance(self._session.memory, Away):
            # It may be back.
            self._session.memory = await self.lab.open_memory(self.variant, self._memory_folder)
        if self._session is None:
            index = await self.lab.index(self._documents, self.variant.retrieval)
            self._session = await self.lab.session(
                self.variant,
                self.trace,
                index=index,
                memory=await self.lab.open_memory(self.variant, self._memory_folder),
                folder=Path(self._memory_folder),
                database=self._database,
                on_text=lambda event_id, piece: self._on_text(piece),
            )
        return self._session

    async def _finish(self) -> None:
        """Wait for what the last turn left to be done."""
        if self._finishing is not None:
            # Whoever stops waiting for it does not stop it: it is the last turn's, and on its way to memory.
            try:
                await asyncio.shield(self._finishing)
            finally:
                if self._finishing.done():
                    self._finishing = None

    async def _reset(self) -> None:
        self.stop()
        async with self._one_at_a_time:
            if self._session is not None:
                self._session.forget_history()
                await self._finish()

    async def close(self) -> None:
        """Break off a reply, finish what is on its way to memory, and close that; to be awaited on the lab's loop."""
        self.stop()
        async with self._one_at_a_time:
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await self._finish()
            except Exception:
                log.warning("the last turn's background work came to no end", exc_info=True)
            finally:
                self.lab.forget(self)
                memory = self._session.memory if self._session is not None else None
                if memory is not None:
                    with contextlib.suppress(MemoryUnavailable):
                        await (memory.close() if self._keeps_memory else memory.drop())
