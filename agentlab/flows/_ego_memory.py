"""What the layered agent remembers: short-term and long-term memory in tagged text files.

    short_term.txt   what was said and done in this session, each entry with module, kind and time
    long_term.txt    what is worth keeping, with a summary and tags that the model wrote

Reading asks the model which entries matter for a message, short-term ones in sight, and for a summary of those.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from agentlab.flows._asking import ask, closed, text_of, texts_of
from agentlab.memory._tagged_log import Entry, TaggedLog
from agentlab.session import Session

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
        "These are the entries of a long-term memory, numbered. Which can go, being out of date, repeated or of no use"
        ' ("drop"), and which should be said in one sentence instead of several ("merged", the new sentences)? Reply'
        " with one JSON object.\n\n{entries}\n\nRecent results:\n{recent}"
    ),
}
_NUMBERS = {"type": "array", "items": {"type": "integer"}, "maxItems": 20}
_TEXTS = {"type": "array", "items": {"type": "string"}, "maxItems": 5}
RETRIEVAL = closed(relevant=_NUMBERS, summary={"type": "string"})
ANALYSIS = closed(summary={"type": "string"}, tags=_TEXTS)
MAINTENANCE = closed(drop=_NUMBERS, merged=_TEXTS)
RECENT = 8
"""Short-term entries that are looked at; older ones stay in the file."""
KNOWN = 20
"""Long-term entries that are looked at, the newest."""
SHOWN = 400
"""Characters of an entry that a prompt shows."""
COMMANDS = ("consolidate", "reflect", "maintain")


@dataclass(frozen=True)
class EgoMemory:
    short: TaggedLog
    long: TaggedLog
    token_limit: int

    @classmethod
    def open(cls, folder: Path, token_limit: int) -> EgoMemory:
        return cls(TaggedLog(folder / "short_term.txt"), TaggedLog(folder / "long_term.txt"), token_limit)

    def note(self, session: Session, module: str, kind: str, text: str) -> None:
        """Put something into short-term memory; what the user says that is a command is stored as one."""
        if kind == "user" and text.strip().lower().startswith(COMMANDS):
            kind = "command"
        self.short.add(Entry(module=module, time=session.now, text=text, facts={"kind": kind}))
        session.notify("subsystemMessage", text[:200], title=f"memory: stored {kind} of {module}")

    async def keep(self, session: Session, module: str, text: str) -> None:
        """Put something into long-term memory, with a summary and tags by the model."""
        found = await ask(session, "memory_analysis", ANALYSIS, "memory_write", self.token_limit, content=text[:4000])
        summary = text_of(found, "summary") or " ".join(text.split())[:200]
        facts = {"summary": summary, "tags": ", ".join(texts_of(found, "tags", 5))}
        self.long.add(Entry(module=module, time=session.now, text=text, facts=facts))
        session.notify("subsystemMessage", summary[:200], title=f"memory: kept from {module}")

    def recent(self) -> str:
        return _listed(self.short.entries()[-RECENT:])

    async def relevant(self, session: Session, query: str, *, filtered: bool) -> str:
        """What matters for `query`: chosen and summed up by the model, or without it the newest of both as they are."""
        short, known = self.short.entries()[-RECENT:], self.long.entries()[-KNOWN:]
        if not short and not known:
            return ""
        if not filtered:
            return _listed([*known[-RECENT:], *short])
        found = await ask(
            session,
            "memory_retrieval",
            RETRIEVAL,
            "relevance",
            self.token_limit,
            query=query,
            short_term=_listed(short) or "(nothing)",
            long_term=_listed(known, len(short)) or "(nothing)",
        )
        numbers = found.get("relevant")
        entries = [*short, *known]
        chosen = [entries[n - 1] for n in _valid(numbers, len(entries))]
        session.notify("subsystemMessage", f"{len(chosen)} of {len(entries)} entries", title="memory: retrieved")
        return "\n".join(part for part in (text_of(found, "summary"), _listed(chosen)) if part)

    async def maintain(self, session: Session) -> str:
        """Consolidate long-term memory; what is dropped stays in its file of pruned entries."""
        entries = self.long.entries()[-KNOWN:]
        if not entries:
            return "Long-term memory is empty; there is nothing to consolidate."
        first = len(self.long.entries()) - len(entries)
        found = await ask(
            session,
            "memory_maintenance",
            MAINTENANCE,
            "consolidate",
            self.token_limit,
            entries=_listed(entries),
            recent=self.recent() or "(nothing)",
        )
        merged = texts_of(found, "merged", 5)
        dropped = self.long.remove({first + n - 1 for n in _valid(found.get("drop"), len(entries))})
        for text in merged:
            facts = {"summary": text, "tags": "consolidated"}
            self.long.add(Entry(module="memoryMaintenance", time=session.now, text=text, facts=facts))
        return f"Long-term memory: {len(dropped)} entries pruned, {len(merged)} written anew."

    def end_session(self) -> None:
        """Empty short-term memory, into its file of pruned entries."""
        self.short.remove(range(len(self.short.entries())))


def _listed(entries: list[Entry], before: int = 0) -> str:
    """A line an entry, numbered from `before` + 1."""
    return "\n".join(f"{n}. {_shown(entry)}" for n, entry in enumerate(entries, before + 1))


def _shown(entry: Entry) -> str:
    text = entry.facts.get("summary") or " ".join(entry.text.split())
    return f"[{entry.module} {entry.facts.get('kind', 'memory')}] {text[:SHOWN]}"


def _valid(numbers: object, count: int) -> list[int]:
    """Those that name one of `count` entries, each once."""
    given = numbers if isinstance(numbers, list) else []
    return list(dict.fromkeys(n for n in given if isinstance(n, int) and not isinstance(n, bool) and 0 < n <= count))
