"""Short-term and long-term memory of the layered agent, in tagged text files.

    short_term.txt   messages and results of this session, each entry with module, kind, session and time
    long_term.txt    lasting entries, each with a summary and tags from the model

For each message, the model selects the relevant entries of both and sums them up.
"""

from __future__ import annotations

import re
import uuid
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from agentlab.core.messages import Fact
from agentlab.core.schemas import strict_object_schema
from agentlab.core.scratch import temp_folder_for
from agentlab.core.state_key import StateKey
from agentlab.flows.ego.commands import parse_command
from agentlab.flows.ego.prompting import ask_for_object, bounded_text_at
from agentlab.flows.ego.short_term import (
    USER_KINDS,
    RenderedEntry,
    fit_to_budget,
    kind_of,
    last_exchange,
    numbered_lines,
    shortened,
    tag,
)
from agentlab.flows.history_cursor import CURSOR
from agentlab.flows.json_replies import text_at, texts_at
from agentlab.memory.tagged_log import Entry, TaggedLog
from agentlab.session.session import BYTES_PER_TOKEN, Session

_NUMBERS = {"type": "array", "items": {"type": "integer"}, "maxItems": 20}
_TEXTS = {"type": "array", "items": {"type": "string"}, "maxItems": 5}
RETRIEVAL = strict_object_schema({"relevant": _NUMBERS, "summary": {"type": "string"}})
ANALYSIS = strict_object_schema({"summary": {"type": "string"}, "tags": _TEXTS})
MAINTENANCE = strict_object_schema({"drop": _NUMBERS, "merged": _TEXTS, "evaluation": {"type": "string"}})
RECENT = 8
"""Number of newest long-term entries in the prompt if the model does not select any."""
MAX_CANDIDATES = 20
"""Number of long-term entries in one selection: the most words in common with the query, then the newest."""
MAX_SHORT_TERM_ENTRIES = 500
"""Entries of short-term memory of all chats in one folder. Older ones are pruned when another chat starts."""


@dataclass
class EgoMemory:
    short: TaggedLog
    long: TaggedLog
    session_id: str
    """Identifies the entries of this chat among those of the folder. No prompt contains it."""
    responses: int = 0
    """Number of responses in this conversation."""
    _latest: datetime | None = None
    """Time of the newest entry."""
    _maintained: int = 0
    """Index of the first entry of the next maintenance, which handles a window of entries, oldest first."""

    def catch_up(self, session: Session) -> None:
        """Note the messages stored without the agent; first delete this chat's entries if the session was reset."""
        was_reset, unseen = session.state(CURSOR).read_new_messages(session)
        if was_reset:
            self.short.remove(self.current_chat_entries())
        for message in unseen:
            self.note(session, "ego", "user" if message.role == "user" else "response", message.text)

    def note(self, session: Session, module: str, kind: str, text: str) -> None:
        """Add an entry to short-term memory; a user message that is a command gets the kind `command`."""
        if kind == "user" and parse_command(text):
            kind = "command"
        facts = {"kind": kind, "session": self.session_id}
        self.short.add(Entry(module=module, time=self._moment(session), text=text, facts=facts))
        session.notify("subsystemMessage", text[:200], title=f"memory: stored {kind} of {module}")

    async def add_long_term(self, session: Session, module: str, text: str) -> None:
        """Add an entry to long-term memory, with a summary and tags from the model."""
        analysis = await ask_for_object(session, "memory_analysis", ANALYSIS, "memory_write", content=text[:4000])
        summary = text_at(analysis, "summary") or " ".join(text.split())[:200]
        self._store_long_term(session, module, text, summary, ", ".join(texts_at(analysis, "tags", 5)))
        session.notify("subsystemMessage", summary[:200], title=f"memory: kept from {module}")

    async def keep_message(self, session: Session, text: str) -> None:
        """Add a user's message to long-term memory if it is new, without a model call."""
        is_new = all(entry.text != text for entry in self.long.entries())
        if session.decide("keep message", is_new, text if is_new else f"it is stored already: {text}"):
            self._store_long_term(session, "ego", text, text, "user")

    def _store_long_term(self, session: Session, module: str, text: str, summary: str, tags: str) -> None:
        facts = {"summary": " ".join(summary.split()), "tags": " ".join(tags.split())}
        self.long.add(Entry(module=module, time=self._moment(session), text=text, facts=facts))

    def _moment(self, session: Session) -> datetime:
        """Return the time of a new entry: unique, and later than that of every earlier entry."""
        moment = session.current_time
        if self._latest is not None and self._latest.tzinfo == moment.tzinfo:
            moment = max(moment, self._latest + timedelta(microseconds=1))
        self._latest = moment
        return moment

    def current_chat_entries(self) -> list[Entry]:
        """Return the short-term entries of this chat."""
        return [entry for entry in self.short.entries() if entry.facts.get("session") == self.session_id]

    def recent(self, session: Session) -> str:
        """Return the newest entries of this chat as lines, within the setting `short_term_tokens`."""
        return numbered_lines(fit_to_budget(self.current_chat_entries(), _max_bytes(session)))

    def search_long_term(self, text: str, count: int = MAX_CANDIDATES, among: list[Entry] | None = None) -> list[Entry]:
        """Return the entries that share the most words with `text`, oldest first; newer ones win a tie."""
        entries = self.long.entries() if among is None else among
        words = _long_words(text)

        def nearness(index: int) -> tuple[int, int]:
            entry = entries[index]
            return len(words & _long_words(f"{entry.text} {entry.facts.get('summary', '')}")), index

        return [entries[index] for index in sorted(sorted(range(len(entries)), key=nearness)[-count:])]

    async def relevant(self, session: Session, query: str) -> str:
        """Return the memories relevant for `query`; the newest short-term entry, which is `query` itself, is left out.

        The model selects them and writes a summary; the last exchange is always included. Without the setting
        `relevance`, the newest entries of both memories are returned. The settings may limit modules and kinds.
        """
        settings = session.settings
        short = fit_to_budget(_of_modules_and_kinds(self.current_chat_entries()[:-1], settings), _max_bytes(session))
        # A message of this chat is in short-term memory as well.
        stored = _of_modules_and_kinds(self.long.entries(), settings)
        own = {entry.text for entry, _ in short}
        stored = [entry for entry in stored if entry.module != "ego" or entry.text not in own]
        candidates = self.search_long_term(query, among=stored) if settings.relevance else stored[-RECENT:]
        entries: list[RenderedEntry] = [*short, *((entry, shortened(entry)) for entry in candidates)]
        if not entries or not settings.relevance:
            session.notify("subsystemMessage", f"{len(entries)} entries", title="memory: retrieved")
            return numbered_lines(entries) if entries else ""
        values = {
            "short_term": numbered_lines(short),
            "long_term": numbered_lines(entries[len(short) :], len(short) + 1),
        }
        selection = await ask_for_object(session, "memory_retrieval", RETRIEVAL, "relevance", query=query, **values)
        chosen = sorted({*_indices(selection.get("relevant"), len(entries)), *last_exchange(short)})
        session.notify("subsystemMessage", f"{len(chosen)} of {len(entries)} entries", title="memory: retrieved")
        lines = numbered_lines(entries[index] for index in chosen) if chosen else ""
        return "\n".join(part for part in (bounded_text_at(selection, "summary"), lines) if part)

    async def maintain(self, session: Session) -> str:
        """Consolidate long-term memory and evaluate recent results; return a report.

        Dropped entries go into the file of pruned entries. Merged texts are stored only if they replace an entry, and
        the memory is never emptied without them.
        """
        entries = self.long.entries()
        start = self._maintained if self._maintained < len(entries) else 0
        window = entries[start : start + MAX_CANDIDATES]
        if not window:
            return "Long-term memory is empty; there is nothing to consolidate."
        lines = numbered_lines((entry, shortened(entry)) for entry in window)
        values = {"entries": lines, "recent": self.recent(session)}
        plan = await ask_for_object(session, "memory_maintenance", MAINTENANCE, "consolidate", **values)
        old = [window[index] for index in _indices(plan.get("drop"), len(window))]
        merged = texts_at(plan, "merged", 5) if old else ()
        if len(old) == len(entries) and not merged:
            session.decide("prune", False, "nothing would be left")
            old = []
        evaluation = text_at(plan, "evaluation")
        for text in merged:
            self._store_long_term(session, "memoryMaintenance", text, text, "consolidated")
        if evaluation:
            self._store_long_term(session, "memoryMaintenance", evaluation, evaluation, "evaluation")
        dropped = self.long.remove(old)
        self._maintained = start + len(window) - len(dropped)
        report = f"Long-term memory: {len(dropped)} entries pruned, {len(merged)} written anew."
        session.notify("subsystemMessage", report, title="memory: maintained")
        return f"{report} {evaluation}".strip()


def _open_memory(session: Session) -> EgoMemory:
    """Return the memory in the session's folder, or a new one; a continued chat gets its own entries again."""
    folder = session.has.files.folder or temp_folder_for(session)
    short, long = TaggedLog(folder / "short_term.txt"), TaggedLog(folder / "long_term.txt")
    memory = EgoMemory(short, long, uuid.uuid4().hex[:12])
    if earlier := short.entries():
        stored = session.load_conversation()
        user_texts = Counter(message.text for message in stored if message.role == "user")
        noted = [entry for entry in earlier if kind_of(entry) in USER_KINDS]
        last = next((entry for entry in reversed(noted) if entry.text in user_texts), None)
        chat = last.facts.get("session", "") if last is not None else ""
        noted_texts = Counter(entry.text for entry in noted if entry.facts.get("session", "") == chat)
        # A fork must not see entries of messages after the fork, so all entries must be in the conversation.
        if last is not None and noted_texts <= user_texts:
            memory.session_id = chat
            session.state(CURSOR).position = len(stored)
        short.remove(earlier[:-MAX_SHORT_TERM_ENTRIES])
    return memory


MEMORY: StateKey[EgoMemory] = StateKey(_open_memory)


def facts(session: Session) -> list[Fact]:
    """Return all long-term entries, then the short-term ones of this chat, as one line each with module and kind."""
    memory = session.state(MEMORY)
    was_reset = session.state(CURSOR).history_version != session.history.history_version
    by_term = {"long": memory.long.entries(), "short": [] if was_reset else memory.current_chat_entries()}
    return [
        Fact(id=f"{term}-{number}", text=f"{tag(entry)} {' '.join(entry.text.split())}", created=entry.time)
        for term, entries in by_term.items()
        for number, entry in enumerate(entries, 1)
    ]


def _long_words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


def _max_bytes(session: Session) -> int:
    return int(session.settings.short_term_tokens) * BYTES_PER_TOKEN


def _of_modules_and_kinds(entries: Sequence[Entry], settings: Any) -> list[Entry]:
    """Return the entries of the modules and kinds in the settings; an empty setting selects all."""
    modules, kinds = settings.memory_modules, settings.memory_kinds
    return [e for e in entries if (not modules or e.module in modules) and (not kinds or kind_of(e) in kinds)]


def _indices(numbers: object, size: int) -> list[int]:
    """Return the unique indices of a completion's numbers, which count from 1, below `size`."""
    values = numbers if isinstance(numbers, list) else []
    valid = [n for n in values if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= size]
    return [n - 1 for n in dict.fromkeys(valid)]
