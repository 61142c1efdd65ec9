"""What the layered agent remembers: short-term and long-term memory in tagged text files.

    short_term.txt   what was said and done in this session, each entry with module, kind, session and time
    long_term.txt    what is worth keeping, with a summary and tags that the model wrote

Reading asks the model which entries matter for a message, short-term ones in sight, and for a summary of those.
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
from agentlab.core.slot import Slot
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
"""Long-term entries that are shown where no filter chooses."""
KNOWN = 20
"""Long-term entries that are looked at: those that share the most words with what is asked, newer ones first."""
MAX_SHORT_TERM_ENTRIES = 500
"""Entries of short-term memory, of all chats in one folder; older ones are pruned when another chat begins."""


@dataclass
class EgoMemory:
    short: TaggedLog
    long: TaggedLog
    session_id: str
    """Tells the entries of this chat from those of others in one folder; no prompt shows it."""
    responses: int = 0
    """How often the agent has answered in this conversation."""
    _latest: datetime | None = None
    """The time of the newest entry."""
    _maintained: int = 0
    """Where the next maintenance begins: it looks at some entries at a time, the oldest first."""

    def catch_up(self, session: Session) -> None:
        """Note what was said without the agent, and begin anew where the session forgot what was said before."""
        begins_anew, unseen = session.state(CURSOR).read_new_messages(session)
        if begins_anew:
            self.short.remove(self.current_chat_entries())
        for message in unseen:
            self.note(session, "ego", "user" if message.role == "user" else "response", message.text)

    def note(self, session: Session, module: str, kind: str, text: str) -> None:
        """Put something into short-term memory; what the user says that is a command is stored as one."""
        if kind == "user" and parse_command(text):
            kind = "command"
        facts = {"kind": kind, "session": self.session_id}
        self.short.add(Entry(module=module, time=self._moment(session), text=text, facts=facts))
        session.notify("subsystemMessage", text[:200], title=f"memory: stored {kind} of {module}")

    async def add_long_term(self, session: Session, module: str, text: str) -> None:
        """Put something into long-term memory, with a summary and tags by the model."""
        found = await ask_for_object(session, "memory_analysis", ANALYSIS, "memory_write", content=text[:4000])
        summary = text_at(found, "summary") or " ".join(text.split())[:200]
        self._add_for_good(session, module, text, summary, ", ".join(texts_at(found, "tags", 5)))
        session.notify("subsystemMessage", summary[:200], title=f"memory: kept from {module}")

    def _add_for_good(self, session: Session, module: str, text: str, summary: str, tags: str) -> None:
        facts = {"summary": " ".join(summary.split()), "tags": " ".join(tags.split())}
        self.long.add(Entry(module=module, time=self._moment(session), text=text, facts=facts))

    def _moment(self, session: Session) -> datetime:
        """The time of an entry: no two have the same, and they have the order in which they were written."""
        moment = session.current_time
        if self._latest is not None and self._latest.tzinfo == moment.tzinfo:
            moment = max(moment, self._latest + timedelta(microseconds=1))
        self._latest = moment
        return moment

    def current_chat_entries(self) -> list[Entry]:
        """Short-term entries."""
        return [entry for entry in self.short.entries() if entry.facts.get("session") == self.session_id]

    def recent(self, session: Session) -> str:
        """What was said and done last, as far as short-term memory may take room in a prompt."""
        return numbered_lines(fit_to_budget(self.current_chat_entries(), _room(session)))

    def search_long_term(self, text: str, most: int = KNOWN, among: Sequence[Entry] | None = None) -> list[Entry]:
        """The long-term entries that share the most words with `text`, of equals the newest, in their order."""
        entries = self.long.entries() if among is None else among
        wanted = _long_words(text)

        def nearness(at: int) -> tuple[int, int]:
            return len(wanted & _long_words(f"{entries[at].text} {entries[at].facts.get('summary', '')}")), at

        return [entries[at] for at in sorted(sorted(range(len(entries)), key=nearness)[-most:])]

    async def relevant(self, session: Session, query: str) -> str:
        """What matters for `query`, the newest entry of short-term memory, which itself is left out.

        Chosen and summed up by the model, and what was said last in any case; or, where the settings have no such
        filter, the newest of both as they are. Of the modules and kinds in the settings only, if there are any.
        """
        settings = session.settings
        short = fit_to_budget(_selected(self.current_chat_entries()[:-1], settings), _room(session))
        stored = _selected(self.long.entries(), settings)
        known = self.search_long_term(query, among=stored) if settings.relevance else stored[-RECENT:]
        entries: list[RenderedEntry] = [*short, *((entry, shortened(entry)) for entry in known)]
        if not entries or not settings.relevance:
            session.notify("subsystemMessage", f"{len(entries)} entries", title="memory: retrieved")
            return numbered_lines(entries) if entries else ""
        values = {
            "short_term": numbered_lines(short),
            "long_term": numbered_lines(entries[len(short) :], len(short) + 1),
        }
        found = await ask_for_object(session, "memory_retrieval", RETRIEVAL, "relevance", query=query, **values)
        chosen = sorted({*_named(found.get("relevant"), len(entries)), *last_exchange(short)})
        session.notify("subsystemMessage", f"{len(chosen)} of {len(entries)} entries", title="memory: retrieved")
        lines = numbered_lines(entries[at] for at in chosen) if chosen else ""
        return "\n".join(part for part in (bounded_text_at(found, "summary"), lines) if part)

    async def maintain(self, session: Session) -> str:
        """Consolidate long-term memory and judge recent results; what is dropped stays in the file of pruned entries.

        Sentences that replace nothing are not taken, nor is everything dropped for nothing.
        """
        entries = self.long.entries()
        begin = self._maintained if self._maintained < len(entries) else 0
        window = entries[begin : begin + KNOWN]
        if not window:
            return "Long-term memory is empty; there is nothing to consolidate."
        lines = numbered_lines((entry, shortened(entry)) for entry in window)
        values = {"entries": lines, "recent": self.recent(session)}
        found = await ask_for_object(session, "memory_maintenance", MAINTENANCE, "consolidate", **values)
        old = [window[at] for at in _named(found.get("drop"), len(window))]
        merged = texts_at(found, "merged", 5) if old else ()
        if len(old) == len(entries) and not merged:
            session.decide("prune", False, "nothing would be left")
            old = []
        evaluation = text_at(found, "evaluation")
        for text in merged:
            self._add_for_good(session, "memoryMaintenance", text, text, "consolidated")
        if evaluation:
            self._add_for_good(session, "memoryMaintenance", evaluation, evaluation, "evaluation")
        dropped = self.long.remove(old)
        self._maintained = begin + len(window) - len(dropped)
        done = f"Long-term memory: {len(dropped)} entries pruned, {len(merged)} written anew."
        session.notify("subsystemMessage", done, title="memory: maintained")
        return f"{done} {evaluation}".strip()


def _open_memory(session: Session) -> EgoMemory:
    """The memory in the session's folder, or a new one; a chat that goes on finds its own entries in it."""
    folder = session.has.files.folder or temp_folder_for(session)
    short, long = TaggedLog(folder / "short_term.txt"), TaggedLog(folder / "long_term.txt")
    memory = EgoMemory(short, long, uuid.uuid4().hex[:12])
    if earlier := short.entries():
        stored = session.load_conversation()
        said = Counter(message.text for message in stored if message.role == "user")
        heard = [entry for entry in earlier if kind_of(entry) in USER_KINDS]
        last = next((entry for entry in reversed(heard) if entry.text in said), None)
        own = last.facts.get("session", "") if last is not None else ""
        # A fork does not know what was said after the turn where it leaves the conversation.
        if last is not None and Counter(entry.text for entry in heard if entry.facts.get("session", "") == own) <= said:
            memory.session_id = own
            session.state(CURSOR).position = len(stored)
        short.remove(earlier[:-MAX_SHORT_TERM_ENTRIES])
    return memory


MEMORY: Slot[EgoMemory] = Slot(_open_memory)


def facts(session: Session) -> list[Fact]:
    """All of long-term memory, then what short-term memory has of this chat; a line each, with module and kind."""
    memory = session.state(MEMORY)
    named = {"long": memory.long.entries(), "short": memory.current_chat_entries()}
    return [
        Fact(id=f"{term}-{number}", text=f"{tag(entry)} {' '.join(entry.text.split())}", created=entry.time)
        for term, entries in named.items()
        for number, entry in enumerate(entries, 1)
    ]


def _long_words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


def _room(session: Session) -> int:
    return int(session.settings.short_term_tokens) * BYTES_PER_TOKEN


def _selected(entries: Sequence[Entry], settings: Any) -> list[Entry]:
    """Those of the modules and kinds that the settings name; all, where they name none."""
    modules, kinds = settings.memory_modules, settings.memory_kinds
    return [e for e in entries if (not modules or e.module in modules) and (not kinds or kind_of(e) in kinds)]


def _named(numbers: object, most: int) -> list[int]:
    """The places that the numbers of a reply name, which count from 1, each once."""
    given = numbers if isinstance(numbers, list) else []
    named = [n for n in given if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= most]
    return [n - 1 for n in dict.fromkeys(named)]
