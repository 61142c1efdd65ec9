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
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path

from agentlab.core.errors import MemoryUnavailable
from agentlab.core.events import Event
from agentlab.core.files import folder_of
from agentlab.core.messages import Reply, UserTurn
from agentlab.core.trace import Trace
from agentlab.data.documents import Document, load_documents
from agentlab.memory.unavailable import UnavailableMemory
from agentlab.session.history import ConversationDatabase
from agentlab.workbench.conversation import TurnDriver
from agentlab.workbench.loop import RunningBench
from agentlab.workbench.variants import Variant

log = logging.getLogger(__name__)
CLOSING_SECONDS = 60


class Chat:
    """One live conversation with a flow: `reply = await chat.say("...")`, or `chat.say_sync("...")`.

    With a file as `database`, the conversation goes on where the last chat with that file ended; with a folder as
    `memory`, what was remembered stays there. Without them both end with the lab. `clock` says when a turn takes place.
    """

    def __init__(
        self,
        bench: RunningBench,
        variant: Variant,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        database: str | Path = ":memory:",
        memory: str | Path | None = None,
        clock: Callable[[], datetime] = datetime.now,
        on_text: Callable[[str], None] = lambda text: None,
        on_event: Callable[[Event], None] = lambda event: None,
    ) -> None:
        self.on_close: Callable[[], None] = lambda: None
        self._bench = bench
        self.variant = variant
        self.trace = Trace(variant.label, "chat")
        self.trace.listeners.append(lambda trace, event: on_event(event))
        self._documents = self._read(documents)
        self._database = ConversationDatabase(database)
        self._memory_folder = memory
        self._keeps_memory = memory is not None
        self._clock = clock
        self._on_text = on_text
        self._driver: TurnDriver | None = None
        self._turns = 0
        self._talking: Future[Reply] | None = None
        self._one_at_a_time = asyncio.Lock()

    def _read(self, documents: Iterable[Document] | str | Path | None) -> tuple[Document, ...]:
        if documents is None:
            return tuple(document for dataset in self._bench.datasets() for document in dataset.documents)
        if isinstance(documents, (str, Path)):
            return load_documents(Path(documents))
        return tuple(documents)

    async def say(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Reply:
        return await asyncio.wrap_future(
            self._begin(UserTurn(text=text, speaker_id=speaker_id, speaker_name=speaker_name))
        )

    def say_sync(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Reply:
        turn = UserTurn(text=text, speaker_id=speaker_id, speaker_name=speaker_name)
        return self._bench.wait_for(self._begin(turn))

    def _begin(self, turn: UserTurn) -> Future[Reply]:
        self._talking = self._bench.start(self._say(turn))
        return self._talking

    def stop(self) -> None:
        """Break off the reply that is under way; of what was said, that stays which the flow had stored by then."""
        if self._talking is not None:
            self._talking.cancel()

    def reset_sync(self) -> None:
        """Begin a new conversation: what was said is no longer read, and what was being fetched for it is dropped.

        Long-term memory stays, and what is on its way there arrives.
        """
        self._bench.wait(self._reset())

    async def _say(self, turn: UserTurn) -> Reply:
        # A turn that is being broken off still has its history to put in order.
        async with self._one_at_a_time:
            driver = await self._opened()
            number, self._turns = self._turns, self._turns + 1
            try:
                played = await driver.play(self.variant.respond, number, turn, now=self._clock())
            finally:
                # While the user reads, not when the user has asked again.
                driver.finish_soon()
            if played.failure is not None:
                raise played.failure
            assert played.reply is not None, "a turn that did not fail has a reply"
            return played.reply

    async def _opened(self) -> TurnDriver:
        if self._memory_folder is None:
            self._memory_folder = folder_of(self)
        if self._driver is None:
            session = await self._bench.session(
                self.variant,
                self.trace,
                index=await self._bench.index(self._documents, self.variant.retrieval),
                memory=await self._bench.open_memory(self.variant, self._memory_folder),
                folder=Path(self._memory_folder),
                database=self._database,
                on_text=lambda event_id, piece: self._on_text(piece),
            )
            self._driver = TurnDriver(session)
        elif isinstance(self._driver.session.memory, UnavailableMemory):
            # It may be back.
            self._driver.session.memory = await self._bench.open_memory(self.variant, self._memory_folder)
        return self._driver

    async def _reset(self) -> None:
        self.stop()
        async with self._one_at_a_time:
            if self._driver is not None:
                self._driver.session.forget_history()
                await self._driver.finish()

    async def close(self) -> None:
        """Break off a reply, finish what is on its way to memory, and close that; to be awaited on the lab's loop."""
        self.stop()
        async with self._one_at_a_time:
            on_close, self.on_close = self.on_close, lambda: None
            on_close()
            if self._driver is None:
                return
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await self._driver.finish()
            except Exception:
                log.warning("the last turn's background work came to no end", exc_info=True)
            finally:
                memory = self._driver.session.memory
                if memory is not None:
                    with contextlib.suppress(MemoryUnavailable):
                        await (memory.close() if self._keeps_memory else memory.drop())
