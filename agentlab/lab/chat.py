"""One live conversation with a flow, for notebooks and scripts.

chat = lab.chat("tools", documents="datasets/laws/corpus.jsonl")
chat.stream.on("reply_text", lambda item: print(item.text, end=""))
reply = await chat.say("How wide is the goal?")
print(chat.trace.steps())
chat.save("offside")        # as a data set that replays
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from datetime import datetime
from pathlib import Path
from typing import Any

from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.core.files import data_folder
from agentlab.core.messages import Fact, Reply, UserTurn
from agentlab.core.scratch import folder_of
from agentlab.core.stream import Item, Stream
from agentlab.core.trace import Trace
from agentlab.data.conversations import Speaker, Turn
from agentlab.data.documents import Document, load_documents
from agentlab.lab.saving import BROKEN_OFF, CONVERSATION, keep_memory, keep_row, kept_rows, save_case, save_chat
from agentlab.memory.unavailable import UnavailableMemory
from agentlab.session.history import ConversationDatabase
from agentlab.session.session import Session
from agentlab.workbench.conversation import TurnDriver
from agentlab.workbench.loop import RunningBench
from agentlab.workbench.variants import Variant

log = logging.getLogger(__name__)
CLOSING_SECONDS = 60


class Chat:
    """One live conversation with a flow: `reply = await chat.say("...")`, or `chat.say_sync("...")`.

    With a file as `database`, the conversation goes on where the last chat with that file ended; with a folder as
    `memory`, what was remembered stays there, or in the data folder of a flow that has one. Without them both end with
    the lab. `mcp` is a file of servers whose tools the flow has on top. With `begins_with`, from `turns_until` of
    another chat or from a data set, it goes on after turns that are not asked again. `clock` says when a turn takes
    place. `on_event` is called with every item of `stream`.
    """

    def __init__(
        self,
        bench: RunningBench,
        variant: Variant,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        database: str | Path = ":memory:",
        memory: str | Path | None = None,
        mcp: str | Path | None = None,
        begins_with: Sequence[Turn] = (),
        clock: Callable[[], datetime] = datetime.now,
        on_event: Callable[[Item], None] | None = None,
    ) -> None:
        self.on_close: Callable[[], None] = lambda: None
        self._bench = bench
        self.variant = variant
        self.trace = Trace(variant.label, CONVERSATION)
        self.stream = Stream()
        if on_event is not None:
            self.stream.on("*", on_event)
        self.documents = self._read(documents)
        self._mcp = None if mcp is None else Path(mcp)
        self._database = ConversationDatabase(database)
        self.earlier = len(self._stored())
        """Messages that the database held before."""
        self._rows = None if str(database) == ":memory:" else Path(database).with_suffix(".turns.jsonl")
        self.said: list[Turn] = kept_rows(self._rows) if self._rows is not None else []
        """The turns since the conversation began, in earlier chats too, as rows of a data set."""
        self._began = folder_of(self) / "memory" if self._rows is None else Path(database).with_suffix(".began")
        """What was in memory when the conversation began."""
        self._replies: dict[int, str] = {}
        """What was replied in this chat, by place in `said`."""
        self._begins_with = tuple(begins_with)
        if data := getattr(variant.settings, "data", None):
            # There, whoever talks to the agent finds what it remembers.
            memory = data_folder(data) / "memory"
        self._memory_folder = folder_of(self) if memory is None else Path(memory)
        self._keeps_memory = memory is not None
        self._clock = clock
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
        return await asyncio.wrap_future(self.begin(text, speaker_id=speaker_id, speaker_name=speaker_name))

    def say_sync(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Reply:
        return self._bench.wait_for(self.begin(text, speaker_id=speaker_id, speaker_name=speaker_name))

    def begin(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Future[Reply]:
        """As `say`, for whoever waits in a way of their own; `stop` breaks it off."""
        turn = UserTurn(text=text, speaker_id=speaker_id, speaker_name=speaker_name)
        self._talking = self._bench.start(self._say(turn))
        return self._talking

    def stop(self) -> None:
        """Break off the reply that is under way; of what was said, that stays which the flow had stored by then."""
        if self._talking is not None:
            self._talking.cancel()

    def facts_sync(self) -> tuple[Fact, ...]:
        """What memory holds, the flow's own or else the long-term one, oldest first; () for a flow without one.

        Raises MemoryUnavailable.
        """
        return self._bench.wait(self._facts())

    async def _finished(self) -> None:
        async with self._one_at_a_time:
            if self._driver is not None:
                await self._driver.finish()

    async def _facts(self) -> tuple[Fact, ...]:
        async with self._one_at_a_time:
            driver = await self._opened()
            await driver.finish()
            if self.variant.facts is not None:
                return tuple(self.variant.facts(driver.session))
            return await driver.session.memory.facts() if driver.session.memory is not None else ()

    def save(self, folder: str | Path) -> str:
        """Write the conversation to `folder` as a data set with its recordings; returns the command that replays it.

        Raises ConfigError where nothing was said, and where the folder has files already.
        """
        # What a turn does in the background is asked for in a replay, too.
        self._bench.wait(self._finished())
        return save_chat(self._bench, self.variant, self.said, self.documents, self._began, self._mcp, Path(folder))

    def save_case(self, turn: int, corrected: str, folder: str | Path) -> str:
        """Add a turn of this conversation to the data set `folder` as a test case, and return the case's id.

        `turn` counts from 1; what was said before it becomes history, and `corrected` is what it should have been
        answered, "" where it should have been declined. A folder that is new gets the chat's documents. Raises
        ConfigError where there is no such turn, and DatasetError where the folder is no data set.
        """
        return save_case(self.turns_until(turn), corrected.strip(), self.documents, Path(folder))

    def turns_until(self, turn: int) -> list[Turn]:
        """The first `turn` turns with their replies, for a chat that goes on from there: a fork.

        Raises ConfigError where there are not so many.
        """
        said = self._begins_with if self._driver is None and self._begins_with else self.said
        if not 1 <= turn <= len(said):
            raise ConfigError(f"turn {turn}: this conversation has {len(said)} turns so far")
        if said is self._begins_with:
            return list(said[:turn])
        tip = self._database.last_message(CONVERSATION)
        chain = self._database.chain(tip) if tip is not None else ()
        replies: list[list[str]] = []
        for message in chain:
            if message.role == "user":
                replies.append([])
            elif message.role == "agent" and replies:
                replies[-1] = [message.text]
        # A chain may begin before the rows do: an older chat did not write them. A flow need not write one at all.
        before = len(replies) - len(self.said)
        rows = []
        for place, row in enumerate(self.said[:turn]):
            stored = replies[place + before] if place + before >= 0 else []
            reply = stored or [self._replies[place]] if place in self._replies else stored
            rows.append(row.model_copy(update={"scored": False, "reference_answers": reply}))
        return rows

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
            now = self._clock()
            before = len(self._stored())
            answered = False
            try:
                played = await driver.play(self.variant.respond, number, turn, now=now)
                answered = played.failure is None
            finally:
                self._write_row(turn, now, self._stored()[before:], answered)
                # While the user reads, not when the user has asked again.
                driver.finish_soon()
            if played.failure is not None:
                raise played.failure
            assert played.reply is not None, "a turn that did not fail has a reply"
            self._replies[len(self.said) - 1] = played.reply.text
            return played.reply

    def _stored(self) -> list[dict[str, Any]]:
        return self._database.messages(CONVERSATION)

    def _write_row(self, turn: UserTurn, now: datetime, stored: list[dict[str, Any]], answered: bool) -> None:
        """Note the turn for `save`. One that came to no end is kept as far as later turns could read it."""
        row = _row(turn, now)
        if not answered:
            texts = {message["role"]: message["text"] for message in stored}
            replies = [texts["agent"]] if "agent" in texts else []
            read = {"user": texts.get("user", turn.text), "reference_answers": replies}
            row = row.model_copy(update={"scored": False, **read, "metadata": {**row.metadata, BROKEN_OFF: True}})
        if answered or stored:
            self._note(row)

    def _note(self, row: Turn) -> None:
        self.said.append(row)
        if self._rows is not None:
            keep_row(self._rows, row)

    def _forget(self, session: Session) -> None:
        session.forget_history()
        self.said.clear()
        self._replies.clear()
        if self._rows is not None:
            self._rows.unlink(missing_ok=True)

    async def _opened(self) -> TurnDriver:
        if self._driver is None:
            if self._begins_with or not (self.said or self.earlier):
                self._keep_memory()
            session = await self._bench.session(
                self.variant,
                self.trace,
                index=await self._bench.index(self.documents, self.variant.retrieval),
                memory=await self._bench.open_memory(self.variant, self._memory_folder),
                folder=self._memory_folder,
                database=self._database,
                stream=self.stream,
                mcp=self._mcp,
                live=True,
            )
            self._driver = TurnDriver(session)
            if self._begins_with:
                self._forget(session)
            for row in self._begins_with:
                session.add_unscored(row.user, row.reference_answers[0] if row.reference_answers else None)
                self._note(row)
            return self._driver
        session = self._driver.session
        await self._bench.renew_tools(session, self.variant, self._mcp)
        if isinstance(session.memory, UnavailableMemory) and session.memory.may_be_back:
            session.memory = await self._bench.open_memory(self.variant, self._memory_folder)
        return self._driver

    async def _reset(self) -> None:
        self.stop()
        async with self._one_at_a_time:
            driver = await self._opened()
            self._forget(driver.session)
            await driver.finish()
            self._keep_memory()

    def _keep_memory(self) -> None:
        try:
            keep_memory(self._memory_folder, self._began)
        except OSError as problem:
            log.warning("what is saved will begin with an empty memory: %s", problem.strerror or problem)

    async def close(self) -> None:
        """Break off a reply, finish what is on its way to memory, and close that; to be awaited on the lab's loop."""
        self.stop()
        async with self._one_at_a_time:
            self.on_close()
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


def _row(turn: UserTurn, now: datetime) -> Turn:
    speaker = Speaker(id=turn.speaker_id, name=turn.speaker_name or "") if turn.speaker_id is not None else None
    return Turn(user=turn.text, speaker=speaker, metadata={"now": now.isoformat()})
