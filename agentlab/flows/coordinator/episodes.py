"""Memory around the coordinator: what it remembers before a turn, and what it does with a turn once it is over.

    before   build_context    the facts nearest to the prompt, or those that an earlier search has brought
    beside   stream           with `memory_read: stream`, the search for this prompt, while the reply is made
    after    gate             is the turn worth keeping
             store            an episode: when, what was said, what was answered
             consolidate      now and then: lasting facts are drawn from the last episodes, newer replace older
             fetch ahead      what the next turn may want, while the user is still reading

What is done after the turn is background work, charged to its phase and not to the reply's latency.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentlab.core.constants import MEMORY_UNAVAILABLE
from agentlab.core.errors import MemoryUnavailable
from agentlab.core.events import Phase
from agentlab.core.messages import Fact, Message
from agentlab.flows.coordinator.memory_gate import states_a_fact
from agentlab.flows.coordinator.settings import CoordinatorSettings
from agentlab.flows.json_replies import read_object
from agentlab.flows.text_files import read_texts
from agentlab.session.session import Session

PROMPTS = read_texts(Path(__file__).with_name("prompts.yaml"))
EPISODE_MARK = " | user: "
"""By which an episode is told from a fact."""
MAX_CANDIDATES = 6
"""Memories that are looked at for an older version of a fact."""
GATE_SCHEMA = {"type": "object", "properties": {"keep": {"type": "boolean"}}, "required": ["keep"]}
FACTS_SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}, "maxItems": 5}},
    "required": ["facts"],
}


@dataclass
class Episodes:
    """The coordinator's memory in one conversation."""

    settings: CoordinatorSettings
    _prefetched: dict[str, Fact] | None = None
    """What the last search in the background has brought; None before the first."""
    loose: list[str] = field(default_factory=list)
    """Episodes that no fact was drawn from yet."""

    async def build_context(self, prompt: str, session: Session) -> str:
        """The facts nearest to the prompt, on one line."""
        facts: Sequence[Fact]
        most = self.settings.memory_facts
        if self._prefetched is not None or self.settings.memory_read == "stream":
            found = (self._prefetched or {}).values()
            facts = sorted(found, key=lambda fact: (-(fact.score or 0.0), fact.id))[:most]
            session.decide("memories", "found before", f"{len(facts)} facts")
        else:
            try:
                facts = await session.recall(prompt, top_k=most)
            except MemoryUnavailable as gone:
                session.notify(MEMORY_UNAVAILABLE, str(gone))
                facts = ()
        # One line without brackets: a memory cannot end the context and go on as if it were the user.
        return "; ".join(" ".join(fact.text.split()).replace("[", "(").replace("]", ")") for fact in facts)

    async def with_memory_search(self, reply: Coroutine[Any, Any, str], prompt: str, session: Session) -> str:
        """The reply; with `memory_read: stream` memories are searched meanwhile, for the prompt after this one.

        The two are joined at the end of the turn, so that what a prompt holds is not a matter of speed.
        """
        if session.memory is None or self.settings.memory_read != "stream" or not self.settings.memory_facts:
            return await reply

        async def stream() -> str:
            with session.step("stream_memories"):
                try:
                    await self._search_memories((prompt,), session)
                except MemoryUnavailable as gone:
                    session.notify(MEMORY_UNAVAILABLE, str(gone))
            return ""

        text, _ = await session.parallel(reply, stream())
        return text

    def after_turn(self, prompt: str, reply: str, session: Session) -> None:
        if session.memory is None:
            return
        if self.settings.store_turns:
            session.background(self._store_episode(prompt, reply, session), "store turn")
        if self.settings.memory_read == "ahead" and self.settings.memory_facts:
            session.background(
                self._search_memories((prompt, reply), session), "fetch memories ahead", drop_on_reset=True
            )

    def reset(self) -> None:
        """Forget what was fetched for a conversation that is over; what is stored stays."""
        self._prefetched = None

    async def _search_memories(self, texts: Sequence[str], session: Session) -> None:
        found: dict[str, Fact] = {}
        for text in texts:
            for fact in await session.recall(text, top_k=self.settings.memory_facts) if text else ():
                found[fact.id] = max(fact, found.get(fact.id, fact), key=lambda one: one.score or 0.0)
        self._prefetched = found

    async def _store_episode(self, prompt: str, reply: str, session: Session) -> None:
        if not await self._is_worth_keeping(prompt, reply, session):
            return
        episode = f"{session.now:%Y-%m-%d %H:%M}{EPISODE_MARK}{prompt} | {self.settings.agent}: {reply}"
        # What was said twice was said twice: no episode is a duplicate of another.
        await session.remember(episode, duplicate_threshold=None)
        self.loose.append(episode)
        if self.settings.consolidate_every and len(self.loose) >= self.settings.consolidate_every:
            await self._consolidate(session)
            self.loose = []

    async def _is_worth_keeping(self, prompt: str, reply: str, session: Session) -> bool:
        if self.settings.gate == "all":
            return True
        if self.settings.gate == "words":
            kept = states_a_fact(prompt)
            return bool(session.decide("keep turn", kept, "" if kept else "it only asks, or is courtesy"))
        exchange = f"user: {prompt}\n{self.settings.agent}: {reply}"
        asked = session.prompt("gate", exchange=exchange)
        found = await _reply_to(asked, GATE_SCHEMA, "memory_write", session)
        return bool(session.decide("keep turn", found.get("keep") is not False, "as the model said"))

    async def _consolidate(self, session: Session) -> None:
        asked = session.prompt("extract", agent=self.settings.agent, episodes="\n".join(self.loose))
        found = await _reply_to(asked, FACTS_SCHEMA, "consolidate", session)
        facts = found.get("facts")
        for text in facts if isinstance(facts, list) else ():
            if not isinstance(text, str) or not text.strip():
                continue
            near = await session.recall(
                text, top_k=MAX_CANDIDATES, min_score=self.settings.merge_at, phase="consolidate"
            )
            # The episode that a fact was drawn from is nearer than any older fact.
            older = [fact for fact in near if EPISODE_MARK not in fact.text]
            if older:
                await session.revise(older[0].id, text, phase="consolidate")
            else:
                await session.remember(text, phase="consolidate")


async def _reply_to(prompt: str, schema: dict[str, Any], phase: Phase, session: Session) -> dict[str, Any]:
    message = Message(role="user", text=prompt)
    reply = await session.complete((message,), output_schema=schema, phase=phase)
    return read_object(reply.message.text) or {}
