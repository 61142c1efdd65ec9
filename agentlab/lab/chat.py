"""One live conversation with a flow, for notebooks and scripts.

chat = lab.chat("tools", documents="datasets/laws/corpus.jsonl")
chat.stream.on("reply_text", lambda item: print(item.text, end=""))
reply = await chat.say("How wide is the goal?")
print(chat.trace.steps())
chat.save("offside")        # a data set with recordings
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from datetime import datetime
from pathlib import Path

from agentlab.core.errors import ConfigError, MemoryUnavailable
from agentlab.core.files import data_folder
from agentlab.core.messages import Fact, Reply, UserTurn
from agentlab.core.protocols import Memory
from agentlab.core.scratch import temp_folder_for
from agentlab.core.stream import Stream, StreamItem
from agentlab.core.trace import Trace
from agentlab.data.conversations import Speaker, Turn
from agentlab.data.datasets import add_conversation
from agentlab.data.documents import Document, load_documents
from agentlab.knowledge.intent import read_intent
from agentlab.lab.chat_export import CONVERSATION, ChatLog, save_chat
from agentlab.memory.unavailable import UnavailableMemory
from agentlab.session.history import History
from agentlab.session.session import Session
from agentlab.tools.mcp.browsing import Kind, browse
from agentlab.wire.recorder import Recorder
from agentlab.workbench.loop import Loop
from agentlab.workbench.seat import Seat
from agentlab.workbench.turn_driver import TurnDriver
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
CLOSING_SECONDS = 60
RECEIPT_SECONDS = 1.0
"""Time to wait for the writes of a turn before its receipts are shown; later ones follow with the next turn."""


class Chat:
    """One live conversation with a flow, opened by `lab.chat(...)`: `reply = await chat.say("...")`.

    `documents` is a file, a folder or a list (default: those of the data sets). `database` is the file of the
    conversation: a later chat with it continues the conversation (`chat.jsonl` for `chat` or `chat.sqlite`). Such a
    chat always calls the model; its recordings serve `save` and replays. `memory` is the folder of the long-term
    memory; a flow with a data folder keeps its memory there. Without them, both end with the lab.

    `mcp` is a file of MCP servers, whose tools are added. `begins_with` are earlier turns, from `turns_until` of
    another chat or from a data set; the flow does not answer them again. `clock` returns the time of a turn.
    `on_event` is called with every item of `stream`. An MCP server may ask the user while a tool runs: a listener
    to "question" calls the item's `reply`; without such a listener the answer is no.
    """

    def __init__(
        self,
        bench: Workbench,
        loop: Loop,
        variant: Variant,
        *,
        documents: Iterable[Document] | str | Path | None = None,
        database: str | Path | None = None,
        memory: str | Path | None = None,
        mcp: str | Path | None = None,
        begins_with: Sequence[Turn] = (),
        clock: Callable[[], datetime] = datetime.now,
        on_event: Callable[[StreamItem], None] | None = None,
        on_close: Callable[[Chat], None] = lambda chat: None,
    ) -> None:
        self._bench = bench
        self._loop = loop
        self._on_close = on_close
        self.variant = variant
        bench.check_memory(variant)
        if documents is None:
            documents = [document for dataset in bench.datasets() for document in dataset.documents]
        elif isinstance(documents, (str, Path)):
            documents = load_documents(Path(documents))
        self.documents = tuple(documents)
        if data := getattr(variant.settings, "data", None):
            # All chats with the agent share its memory.
            memory = data_folder(data) / "memory"
        self._keeps_memory = memory is not None
        memory_folder = temp_folder_for(self) if memory is None else Path(memory)
        self.log = ChatLog(None if database is None else Path(database), memory_folder, begins_with)
        self._seat = Seat(
            trace=Trace(variant.label, CONVERSATION),
            history=History(self.log.messages),
            folder=memory_folder,
            mcp=None if mcp is None else Path(mcp),
            live=True,
        )
        if on_event is not None:
            self.stream.on("*", on_event)
        self._clock = clock
        self._driver: TurnDriver | None = None
        self._current_reply: Future[Reply] | None = None
        self._turn_lock = asyncio.Lock()

    @property
    def trace(self) -> Trace:
        """Events of the conversation; `trace.steps()` is their text."""
        return self._seat.trace

    @property
    def stream(self) -> Stream:
        """Live events of a reply; `stream.on("reply_text", listener)` calls `listener` with each item."""
        return self._seat.stream

    @property
    def turn_rows(self) -> list[Turn]:
        """Turns of the conversation, those of earlier chats included, as rows of a data set."""
        return [row.turn for row in self.log.rows]

    async def say(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Reply:
        """Send a message and return the flow's reply; raises the error of a failed turn."""
        return await asyncio.wrap_future(self.submit(text, speaker_id=speaker_id, speaker_name=speaker_name))

    def say_sync(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Reply:
        """Send a message and wait for the reply: for scripts."""
        return self._loop.result_of(self.submit(text, speaker_id=speaker_id, speaker_name=speaker_name))

    def submit(self, text: str, *, speaker_id: str | None = None, speaker_name: str | None = None) -> Future[Reply]:
        """Send a message and return a future of the reply; `stop` cancels it."""
        turn = UserTurn(text=text, speaker_id=speaker_id, speaker_name=speaker_name)
        self._current_reply = self._loop.submit(self._say(turn))
        return self._current_reply

    def stop(self) -> None:
        """Cancel the running reply; messages that the flow has stored stay."""
        if self._current_reply is not None:
            self._current_reply.cancel()

    def facts_sync(self) -> tuple[Fact, ...]:
        """Return the facts in memory, oldest first: the flow's own memory or the long-term one; () without a memory.

        Raises MemoryUnavailable.
        """
        return self._loop.run_coroutine(self._facts())

    def receipts_sync(self, wait_s: float = RECEIPT_SECONDS) -> list[str]:
        """Return what `receipts` returns, from any thread but the lab's own."""
        return self._loop.run_coroutine(self.receipts(wait_s))

    async def receipts(self, wait_s: float = RECEIPT_SECONDS) -> list[str]:
        """Return what memory kept since the last call, and why it kept no more, a line each; for the lab's own loop.

        One more line appears once prompts begin to leave out the oldest messages. Waits at most `wait_s` seconds
        for writes in the background.
        """
        states_fact = False
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._finish_background(), wait_s)
            states_fact = any(read_intent(row.turn.user) == "tells" for row in self.log.rows[-1:])
        never = f"not kept: {self.variant.label} does not write to memory; /remember TEXT stores a fact"
        otherwise = never if states_fact and self.variant.memory is not None else ""
        window = getattr(self.variant.settings, "history", 0)
        return self.log.receipts(self.trace.events, self._bench.spec.files is not None, otherwise, window)

    def remember_sync(self, text: str, *, about: str = "") -> Fact:
        """Store a fact in long-term memory without a model call, and return it; a saved chat replays without it.

        `about` is the name of the speaker, "" for the owner of the memory.
        Raises ConfigError for a flow without a memory that others may write, and MemoryUnavailable.
        """
        return self._loop.run_coroutine(self._remember(text, about))

    def forget_sync(self, fact_id: str) -> bool:
        """Delete a fact from long-term memory; return False if there is none with this id. Raises like `remember`."""
        return self._loop.run_coroutine(self._forget(fact_id))

    async def _remember(self, text: str, about: str) -> Fact:
        async with self._turn_lock:
            memory = await self._writable_memory()
            vector = None if memory.embedder is None else (await memory.embedder.embed([text]))[0]
            now, new_id = self._clock(), f"fact_{uuid.uuid4().hex[:8]}"
            added = await memory.add(
                text, vector, created=now, new_id=lambda: new_id, duplicate_threshold=None, about=about
            )
            return added.fact

    async def _forget(self, fact_id: str) -> bool:
        async with self._turn_lock:
            return await (await self._writable_memory()).delete(fact_id)

    async def _writable_memory(self) -> Memory:
        if self.variant.attribute("facts") is not None:
            raise ConfigError(f"{self.variant.label} writes its memory alone; tell it the fact in a message")
        memory = (await self._open_driver()).session.memory
        if memory is None:
            raise ConfigError(f"{self.variant.label} has no memory")
        return memory

    async def _finish_background(self) -> None:
        async with self._turn_lock:
            if self._driver is not None:
                await self._driver.finish_background()

    async def _facts(self) -> tuple[Fact, ...]:
        async with self._turn_lock:
            driver = await self._open_driver()
            await driver.finish_background()
            if (facts := self.variant.attribute("facts")) is not None:
                return tuple(facts(driver.session))
            return await driver.session.memory.facts() if driver.session.memory is not None else ()

    def browse_sync(self, kind: Kind, *words: str) -> str:
        """Return a table of the resources or prompts of the chat's MCP servers; `words` name one to read instead.

        `chat.browse_sync("prompts", "SERVER", "NAME", "city=Ulm")`. Raises ConfigError for an unknown server, ToolError
        if a server gives no text.
        """
        return self._loop.run_coroutine(self._browse(kind, words))

    async def _browse(self, kind: Kind, words: Sequence[str]) -> str:
        managers = await self._bench.tool_managers(self.variant, self._seat.mcp, interactive=True)
        return await browse([server for manager in managers for server in manager.servers], kind, words)

    def save(self, folder: str | Path) -> str:
        """Write the conversation to `folder` as a data set with recordings; return the command that replays it.

        Raises ConfigError for an empty conversation, and for a folder that has files.
        """
        # A replay also needs the recordings of background work.
        self._loop.run_coroutine(self._finish_background())
        return save_chat(self._bench, self.variant, self.log, self.documents, self._seat.mcp, Path(folder))

    def save_case(self, turn: int, corrected: str, folder: str | Path) -> str:
        """Add a turn of this conversation to the data set `folder` as a test case; return the id of the case.

        `turn` counts from 1; earlier turns become history. `corrected` is the expected answer, "" if the flow should
        have declined. A new folder gets the chat's documents.

        Raises ConfigError for an unknown turn, DatasetError for a folder that is no data set.
        """
        *history, last = self.turns_until(turn)
        references = [corrected.strip()] if corrected.strip() else []
        expected = {"scored": True, "reference_answers": references, "unanswerable": not references}
        turns = [*history, last.model_copy(update=expected)]
        return add_conversation(Path(folder), turns, self.documents, source="a live conversation").id

    def turns_until(self, turn: int) -> list[Turn]:
        """Return the first `turn` turns with their replies, for the `begins_with` of another chat: a fork.

        Raises ConfigError for more turns than there are.
        """
        rows = self.log.rows[:turn]
        if turn < 1 or len(rows) < turn:
            raise ConfigError(f"turn {turn}: this conversation has {len(self.log.rows)} turns so far")
        replies = [[] if row.reply is None else [row.reply] for row in rows]
        return [
            row.turn.model_copy(update={"scored": False, "reference_answers": reply})
            for row, reply in zip(rows, replies, strict=True)
        ]

    def reset_sync(self) -> None:
        """Start a new conversation with an empty history.

        Long-term memory stays, and running writes to it finish. Other background work is cancelled.
        """
        self._loop.run_coroutine(self._reset())

    async def _say(self, turn: UserTurn) -> Reply:
        # Wait for a cancelled turn, which still repairs its history.
        async with self._turn_lock:
            driver = await self._open_driver()
            now = self._clock()
            # Messages that the flow has stored since the last turn belong to this one.
            n_stored = len(self.log.messages)
            reply: Reply | None = None
            try:
                result = await driver.play(self._respond, driver.turns, turn, now=now)
                reply = result.reply
            finally:
                stored = driver.session.history.messages[n_stored:]
                self.log.add(_row(turn, now), stored, None if reply is None else reply.text)
                # Start now, while the user reads, so that the next turn need not wait.
                driver.start_background()
            if result.failure is not None:
                raise result.failure
            assert reply is not None, "a turn that did not fail has a reply"
            return reply

    async def _respond(self, turn: UserTurn, session: Session) -> Reply:
        await self._bench.renew_tools(session, self.variant, self._seat.mcp)
        return await self.variant.respond(turn, session)

    async def _open_driver(self) -> TurnDriver:
        if self._driver is None:
            if self.log.is_new:
                self.log.begin()
            if self._bench.spec.mode == "record" and self.log.calls is not None:
                recorder = Recorder("record", self.log.recordings(), always_asks=True)
                self._seat = replace(self._seat, recorder=recorder)
            index = await self._bench.index(self.documents, self.variant.retrieval)
            seat = replace(self._seat, index=index, memory=await self._memory())
            self._driver = TurnDriver(await self._bench.session(self.variant, seat))
            return self._driver
        session = self._driver.session
        if isinstance(session.memory, UnavailableMemory):
            session.change(memory=await self._memory())
        return self._driver

    async def _memory(self) -> Memory | None:
        # Without a first use, the turn's seconds contain the wait for a server that does not respond.
        return await self._bench.open_memory(self.variant, self.log.memory, preload=False)

    async def _reset(self) -> None:
        self.stop()
        async with self._turn_lock:
            driver = await self._open_driver()
            driver.session.forget_history()
            self.log.forget()
            await driver.finish_background()
            self.log.begin()
            if self._seat.recorder is not None:
                self._seat.recorder.recordings = self.log.recordings()

    async def close(self) -> None:
        """Cancel a reply, finish writes to memory and close it; `lab.close` calls this on the lab's event loop."""
        self.stop()
        async with self._turn_lock:
            self._on_close(self)
            if self._driver is None:
                return
            try:
                async with asyncio.timeout(CLOSING_SECONDS):
                    await self._driver.finish_background()
            except Exception:
                log.warning("the last turn's background work did not finish", exc_info=True)
            finally:
                memory = self._driver.session.memory
                if memory is not None:
                    with contextlib.suppress(MemoryUnavailable):
                        await (memory.close() if self._keeps_memory else memory.drop())


def _row(turn: UserTurn, now: datetime) -> Turn:
    speaker = Speaker(id=turn.speaker_id, name=turn.speaker_name or "") if turn.speaker_id is not None else None
    return Turn(user=turn.text, speaker=speaker, metadata={"now": now.isoformat()})
