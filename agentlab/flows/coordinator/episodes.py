"""Memory of the coordinator: searches before or beside a turn, and writes after it.

    before   build_context    facts nearest to the prompt, or those of an earlier search
    beside   stream           with `memory_read: stream`, a search for this prompt while the model replies
    after    gate             decide if the turn is worth storing
             store            store an episode: time, prompt and reply
             consolidate      every few episodes, extract lasting facts; newer facts replace older ones
             fetch ahead      search for the next turn while the user reads the reply

Work after the turn runs in the background. It counts for its phase, not for the reply's latency.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentlab.core.events import Phase
from agentlab.core.messages import Fact, Message
from agentlab.flows.coordinator.memory_gate import states_a_fact
from agentlab.flows.coordinator.settings import CoordinatorSettings
from agentlab.flows.json_replies import read_object
from agentlab.flows.text_files import read_texts
from agentlab.knowledge.intent import ends_in_question, read_intent
from agentlab.session.session import Session

PROMPTS = read_texts(Path(__file__).with_name("prompts.yaml"))
EPISODE_MARK = " | user: "
"""Text that distinguishes an episode from a fact."""
MAX_CANDIDATES = 6
"""Number of memories that are searched for an older version of a fact."""
GATE_SCHEMA = {"type": "object", "properties": {"keep": {"type": "boolean"}}, "required": ["keep"]}
FACTS_SCHEMA = {
    "type": "object",
    "properties": {"facts": {"type": "array", "items": {"type": "string"}, "maxItems": 5}},
    "required": ["facts"],
}


@dataclass
class Episodes:
    """Coordinator's memory in one conversation."""

    settings: CoordinatorSettings
    _prefetched: dict[str, Fact] | None = None
    """Facts of the last background search; None before the first search."""
    pending: list[str] = field(default_factory=list)
    """Episodes from which no facts have been extracted yet."""

    async def build_context(self, prompt: str, session: Session) -> str:
        """Return the facts nearest to the prompt on one line."""
        facts: Sequence[Fact] = ()
        max_facts = self.settings.memory_facts
        if self._prefetched is not None or self.settings.memory_read == "stream":
            prefetched = (self._prefetched or {}).values()
            facts = self._distinct(sorted(prefetched, key=lambda fact: (-(fact.score or 0.0), fact.id)))[:max_facts]
            session.decide("memories", "found before", f"{len(facts)} facts")
        else:
            with session.continue_without_memory():
                facts = self._distinct(await session.recall(prompt, top_k=max_facts))
        # On one line without brackets, a memory cannot end the context and continue as the user.
        return "; ".join(" ".join(fact.text.split()).replace("[", "(").replace("]", ")") for fact in facts)

    def _distinct(self, facts: Sequence[Fact]) -> Sequence[Fact]:
        """Return `facts` with only the newest episode of each prompt."""

        def prompt_of(fact: Fact) -> str:
            return fact.text.partition(EPISODE_MARK)[2].partition(f" | {self.settings.agent}: ")[0] or fact.text

        newest = {prompt_of(fact): fact for fact in sorted(facts, key=lambda fact: fact.created)}
        return [f for f in facts if newest[prompt_of(f)] is f] if self.settings.distinct_memories else facts

    async def with_memory_search(self, reply: Coroutine[Any, Any, str], prompt: str, session: Session) -> str:
        """Await `reply` and return it; with `memory_read: stream`, search memories meanwhile for the next prompt.

        The turn waits for the search, so that the next prompt does not depend on the search's speed.
        """
        if session.memory is None or self.settings.memory_read != "stream" or not self.settings.memory_facts:
            return await reply

        async def stream() -> str:
            with session.step("stream_memories"), session.continue_without_memory():
                await self._search_memories((prompt,), session)
            return ""

        text, _ = await session.parallel(reply, stream())
        return text

    def after_turn(self, before: str, prompt: str, reply: str, session: Session) -> None:
        if session.memory is None:
            return
        if self.settings.store_turns:
            session.background(self._store_episode(before, prompt, reply, session), "store turn")
        if self.settings.memory_read == "ahead" and self.settings.memory_facts:
            session.background(
                self._search_memories((prompt, reply), session), "fetch memories ahead", drop_on_reset=True
            )

    def reset(self) -> None:
        """Drop the prefetched facts; stored memories remain."""
        self._prefetched = None

    async def _search_memories(self, texts: Sequence[str], session: Session) -> None:
        facts: dict[str, Fact] = {}
        for text in texts:
            for fact in await session.recall(text, top_k=self.settings.memory_facts) if text else ():
                facts[fact.id] = max(fact, facts.get(fact.id, fact), key=lambda one: one.score or 0.0)
        self._prefetched = facts

    async def _store_episode(self, before: str, prompt: str, reply: str, session: Session) -> None:
        if not await self._is_worth_keeping(before, prompt, reply, session):
            return
        episode = f"{session.now:%Y-%m-%d %H:%M}{EPISODE_MARK}{prompt} | {self.settings.agent}: {reply}"
        # Two equal episodes are two events, so neither is a duplicate.
        await session.remember(episode, duplicate_threshold=None)
        self.pending.append(episode)
        if self.settings.consolidate_every and len(self.pending) >= self.settings.consolidate_every:
            await self._consolidate(session)
            self.pending = []

    async def _is_worth_keeping(self, before: str, prompt: str, reply: str, session: Session) -> bool:
        if self.settings.gate == "all":
            return True
        if self.settings.gate in ("words", "rules"):
            is_kept = (
                states_a_fact(prompt)
                if self.settings.gate == "words"
                else ends_in_question(before) or read_intent(prompt) == "tells"
            )
            return bool(session.decide("keep turn", is_kept, "" if is_kept else "it only asks, or is courtesy"))
        exchange = f"user: {prompt}\n{self.settings.agent}: {reply}"
        decision = await _complete_json(session.prompt("gate", exchange=exchange), GATE_SCHEMA, "memory_write", session)
        return bool(session.decide("keep turn", decision.get("keep") is not False, "as the model said"))

    async def _consolidate(self, session: Session) -> None:
        request = session.prompt("extract", agent=self.settings.agent, episodes="\n".join(self.pending))
        facts = (await _complete_json(request, FACTS_SCHEMA, "consolidate", session)).get("facts")
        for text in facts if isinstance(facts, list) else ():
            if not isinstance(text, str) or not text.strip():
                continue
            candidates = await session.recall(
                text, top_k=MAX_CANDIDATES, min_score=self.settings.merge_at, phase="consolidate"
            )
            # Skip episodes: the one from which a fact comes is nearer than any older fact.
            older = [fact for fact in candidates if EPISODE_MARK not in fact.text]
            if older:
                await session.revise(older[0].id, text, phase="consolidate")
            else:
                await session.remember(text, phase="consolidate")


async def _complete_json(prompt: str, schema: dict[str, Any], phase: Phase, session: Session) -> dict[str, Any]:
    message = Message(role="user", text=prompt)
    reply = await session.complete((message,), output_schema=schema, phase=phase)
    return read_object(reply.message.text) or {}
