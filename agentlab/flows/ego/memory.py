"""What the layered agent remembers: short-term and long-term memory in tagged text files.

    short_term.txt   what was said and done in this session, each entry with module, kind, session and time
    long_term.txt    what is worth keeping, with a summary and tags that the model wrote

Reading asks the model which entries matter for a message, short-term ones in sight, and for a summary of those.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agentlab.flows.asking import ask, closed, cut, sentence_of, text_of, texts_of
from agentlab.memory.tagged_log import Entry, TaggedLog
from agentlab.session.session import Session

PROMPTS = {
    "memory_retrieval": (
        "Which of these memories help with the new message? Reply with one JSON object: the numbers of those that do as"
        ' "relevant" ([] for none), and what they say about it in one or two sentences as "summary".\n\nNew message:'
        " {query}\n\nShort-term memory:\n{short_term}\n\nLong-term memory:\n{long_term}"
    ),
    "memory_analysis": (
        'Summarise this for long-term memory in one sentence ("summary") and give up to five tags ("tags"), as one JSON'
        " object.\n\n{content}"
    ),
    "memory_maintenance": (
        "These are the entries of a long-term memory, numbered. Which can go, being out of date, repeated, of no use or"
        ' said better in one sentence ("drop"), and what are those sentences ("merged")? And what can be learned from'
        ' the recent results ("evaluation", "" if nothing)? Reply with one JSON object.\n\n{entries}\n\nRecent'
        " results:\n{recent}"
    ),
}
_NUMBERS = {"type": "array", "items": {"type": "integer"}, "maxItems": 20}
_TEXTS = {"type": "array", "items": {"type": "string"}, "maxItems": 5}
RETRIEVAL = closed(relevant=_NUMBERS, summary={"type": "string"})
ANALYSIS = closed(summary={"type": "string"}, tags=_TEXTS)
MAINTENANCE = closed(drop=_NUMBERS, merged=_TEXTS, evaluation={"type": "string"})
RECENT = 8
"""Short-term entries that are looked at; older ones stay in the file."""
KNOWN = 20
"""Long-term entries that are looked at: those that share the most words with what is asked, newer ones first."""
SHOWN = 400
"""Bytes of an entry that a prompt shows."""
KEPT = 500
"""Entries of short-term memory, of all chats in one folder; older ones are pruned when another chat begins."""
POLITE = frozenset(re.findall(r"\w+", "please kindly now then ok okay just could can would will you"))
VERBS = frozenset(re.findall(r"\w+", "consolidate reflect maintain prune evaluate analyze analyse"))
OBJECTS = frozenset(re.findall(r"\w+", "memory memories feedback consolidation"))
OPERATIONS = frozenset(re.findall(r"\w+", "consolidation feedback analysis maintenance evaluation pruning reflection"))
BESIDE = frozenset(
    re.findall(
        r"\w+",
        "the your my our all of on in from about at what is that this long short term recent last latest stored session"
        " conversation results insights interactions entries day week month today yesterday now again please",
    )
)
LONGEST_COMMAND = 200
"""Characters."""


@dataclass
class EgoMemory:
    short: TaggedLog
    long: TaggedLog
    session_id: str = field(default_factory=lambda: uuid.uuid4().hex[:12])
    """Tells the entries of this chat from those of others in one folder; no prompt shows it."""
    _maintained: int = 0
    """Where the next maintenance begins: it looks at some entries at a time, the oldest first."""

    @classmethod
    def open(cls, folder: Path) -> EgoMemory:
        return cls(TaggedLog(folder / "short_term.txt"), TaggedLog(folder / "long_term.txt"))

    def note(self, session: Session, module: str, kind: str, text: str) -> None:
        """Put something into short-term memory; what the user says that is a command is stored as one."""
        if kind == "user" and is_command(text):
            kind = "command"
        facts = {"kind": kind, "session": self.session_id}
        self.short.add(Entry(module=module, time=session.now, text=text, facts=facts))
        session.notify("subsystemMessage", text[:200], title=f"memory: stored {kind} of {module}")

    async def keep(self, session: Session, module: str, text: str) -> None:
        """Put something into long-term memory, with a summary and tags by the model."""
        found = await ask(session, "memory_analysis", ANALYSIS, "memory_write", content=text[:4000])
        summary = text_of(found, "summary") or " ".join(text.split())[:200]
        facts = {"summary": " ".join(summary.split()), "tags": " ".join(", ".join(texts_of(found, "tags", 5)).split())}
        self.long.add(Entry(module=module, time=session.now, text=text, facts=facts))
        session.notify("subsystemMessage", summary[:200], title=f"memory: kept from {module}")

    def heard(self) -> list[Entry]:
        """The short-term entries of this chat."""
        return [entry for entry in self.short.entries() if entry.facts.get("session") == self.session_id]

    def recent(self) -> str:
        return _listed(self.heard()[-RECENT:])

    def known(self, text: str, most: int = KNOWN) -> list[Entry]:
        """Long-term entries that may matter for `text`."""
        return _nearest(self.long.entries(), text, most)

    def take_up(self, said: Sequence[str]) -> bool:
        """Go on with the entries of the chat in which the user said one of these; False where there are none."""
        for entry in reversed(self.short.entries()):
            if entry.module == "ego" and entry.facts.get("kind") in ("user", "command") and entry.text in said:
                self.session_id = entry.facts.get("session", "")
                return True
        return False

    async def relevant(self, session: Session, query: str, *, filtered: bool) -> str:
        """What matters for `query`, the newest entry of short-term memory, which itself is left out.

        Chosen and summed up by the model, or without it (`filtered`) the newest of both as they are.
        """
        short = self.heard()[:-1][-RECENT:]
        known = self.known(query) if filtered else self.long.entries()[-RECENT:]
        if not short and not known:
            return ""
        if not filtered:
            session.notify("subsystemMessage", f"{len(short) + len(known)} entries", title="memory: retrieved")
            return _listed([*known, *short])
        found = await ask(
            session,
            "memory_retrieval",
            RETRIEVAL,
            "relevance",
            query=query,
            short_term=_listed(short) or "(nothing)",
            long_term=_listed(known, len(short)) or "(nothing)",
        )
        entries = [*short, *known]
        chosen = [entries[n - 1] for n in _valid(found.get("relevant"), len(entries))]
        session.notify("subsystemMessage", f"{len(chosen)} of {len(entries)} entries", title="memory: retrieved")
        return "\n".join(part for part in (sentence_of(found, "summary"), _listed(chosen)) if part)

    async def maintain(self, session: Session) -> str:
        """Consolidate long-term memory and judge recent results; what is dropped stays in the file of pruned entries.

        Sentences that replace nothing are not taken, nor is everything dropped for nothing.
        """
        entries = self.long.entries()
        begin = self._maintained if self._maintained < len(entries) else 0
        window = entries[begin : begin + KNOWN]
        if not window:
            return "Long-term memory is empty; there is nothing to consolidate."
        found = await ask(
            session,
            "memory_maintenance",
            MAINTENANCE,
            "consolidate",
            entries=_listed(window),
            recent=self.recent() or "(nothing)",
        )
        old = [window[n - 1] for n in _valid(found.get("drop"), len(window))]
        merged = texts_of(found, "merged", 5) if old else ()
        if len(old) == len(entries) and not merged:
            session.decide("prune", False, "nothing would be left")
            old = []
        for text in merged:
            self._consolidated(session, text, "consolidated")
        if evaluation := text_of(found, "evaluation"):
            self._consolidated(session, evaluation, "evaluation")
        dropped = self.long.remove(old)
        self._maintained = begin + len(window) - len(dropped)
        told = f"Long-term memory: {len(dropped)} entries pruned, {len(merged)} written anew."
        session.notify("subsystemMessage", told, title="memory: maintained")
        return f"{told} {evaluation}".strip()

    def _consolidated(self, session: Session, text: str, tag: str) -> None:
        facts = {"summary": " ".join(text.split()), "tags": tag}
        self.long.add(Entry(module="memoryMaintenance", time=session.now, text=text, facts=facts))

    def end_session(self) -> None:
        """Move what short-term memory has of this chat to its file of pruned entries."""
        self.short.remove(self.heard())

    def prune_old(self) -> None:
        self.short.remove(self.short.entries()[:-KEPT])


def is_command(text: str) -> bool:
    """Whether the user speaks to the memory itself: a verb alone or with what it is to be done to, or an operation.

    "consolidate", "could you reflect on the memory?", "memory analysis"; not "evaluate the memory needs of quicksort".
    """
    if len(text) > LONGEST_COMMAND:
        return False
    words = re.findall(r"\w+", text.lower())
    polite = next((at for at, word in enumerate(words) if word not in POLITE), len(words))
    first, rest = words[polite : polite + 1], words[polite + 1 :]
    if not first or not {*rest} <= BESIDE | OBJECTS | OPERATIONS or ("?" in text and not polite):
        return False
    if first[0] in VERBS:
        return not rest or not OBJECTS.isdisjoint(rest)
    return first[0] in OBJECTS and bool(rest) and rest[0] in OPERATIONS


def _nearest(entries: Sequence[Entry], text: str, most: int) -> list[Entry]:
    """Those that share the most words with `text`, of equals the newest, in the order they stand in."""
    wanted = _words(text)

    def rank(at: int) -> tuple[int, int]:
        return len(wanted & _words(f"{entries[at].text} {entries[at].facts.get('summary', '')}")), at

    return [entries[at] for at in sorted(sorted(range(len(entries)), key=rank)[-most:])]


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w{3,}", text.lower()))


def _listed(entries: Sequence[Entry], before: int = 0) -> str:
    """A line an entry, numbered from `before` + 1."""
    return "\n".join(f"{n}. {_shown(entry)}" for n, entry in enumerate(entries, before + 1))


def _shown(entry: Entry) -> str:
    text = entry.facts.get("summary") or " ".join(entry.text.split())
    return f"[{entry.module} {entry.facts.get('kind', 'memory')}] {cut(text, SHOWN)}"


def _valid(numbers: object, count: int) -> list[int]:
    """Those that name one of `count` entries, each once."""
    given = numbers if isinstance(numbers, list) else []
    return list(dict.fromkeys(n for n in given if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= count))
