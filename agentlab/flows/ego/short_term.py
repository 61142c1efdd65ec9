"""Selection of the newest short-term entries that fit into a prompt.

The user's messages come first, complete or not at all. The responses follow, newest first. Results of steps and other
entries share the remaining bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentlab.flows.ego.prompting import truncate_to_bytes
from agentlab.memory.tagged_log import Entry

USER_KINDS = ("user", "command")
"""Kinds of entry that start a turn."""
MAX_ENTRY_BYTES = 400
"""Maximum bytes of an entry that is neither a user message nor a response."""
_MIN_BYTES = 60
"""Bytes below which a shortened entry is useless."""
_LINE_OVERHEAD = 30
"""Estimated bytes of a line beside its text."""

RenderedEntry = tuple[Entry, str]
"""Entry and its text in a prompt."""


def kind_of(entry: Entry) -> str:
    return entry.facts.get("kind", "memory")


def fit_to_budget(entries: Sequence[Entry], budget: int) -> list[RenderedEntry]:
    """Return the entries that fit into `budget` bytes, in their order, each with its possibly shortened text.

    The user's messages take at most half of the budget; only the newest one may take all of it. A line replaces a
    message that is longer than the budget.
    """
    texts: dict[int, str] = {}

    def used() -> int:
        return sum(_bytes(text) for text in texts.values())

    start = 0
    for index in reversed(range(len(entries))):
        if kind_of(entries[index]) in USER_KINDS:
            text = _indented(entries[index])
            if _bytes(text) > budget:
                text = f"(a message of {_bytes(text):,} bytes, too long to be shown)"
            if texts and used() + _bytes(text) > budget // 2:
                start = index + 1
                break
            texts[index] = text
    later = range(start, len(entries))
    responses = [index for index in later if kind_of(entries[index]) == "response"]
    others = [index for index in later if index not in texts and index not in responses]
    for index in reversed(responses):
        remaining = budget - used() - (budget // 5 if others else 0)
        if remaining < _MIN_BYTES + _LINE_OVERHEAD:
            break
        texts[index] = truncate_to_bytes(_indented(entries[index]), remaining - _LINE_OVERHEAD)
    for number, index in enumerate(reversed(others)):
        part = (budget - used()) // (len(others) - number) - _LINE_OVERHEAD
        part = max(_MIN_BYTES, min(MAX_ENTRY_BYTES, part))
        if budget - used() < part + _LINE_OVERHEAD:
            break
        texts[index] = shortened(entries[index], part)
    return [(entries[index], texts[index]) for index in sorted(texts)]


def last_exchange(entries: Sequence[RenderedEntry]) -> list[int]:
    """Return the indices of the user's last message and the responses to it."""
    kinds = [kind_of(entry) for entry, _ in entries]
    start = max((index for index, kind in enumerate(kinds) if kind in USER_KINDS), default=len(kinds))
    return [index for index in range(start, len(kinds)) if kinds[index] in (*USER_KINDS, "response")]


def shortened(entry: Entry, max_bytes: int = MAX_ENTRY_BYTES) -> str:
    """Return an entry's summary, or its text, as one truncated line."""
    return truncate_to_bytes(entry.facts.get("summary") or " ".join(entry.text.split()), max_bytes)


def numbered_lines(entries: Iterable[RenderedEntry], first: int = 1) -> str:
    """Return the lines of the entries for a prompt, numbered from `first`."""
    lines = [f"{number}. {tag(entry)} {text}" for number, (entry, text) in enumerate(entries, first)]
    return "\n".join(lines) or "(nothing)"


def tag(entry: Entry) -> str:
    return f"[{entry.module} {kind_of(entry)}]"


def _indented(entry: Entry) -> str:
    return entry.text.strip().replace("\n", "\n   ")


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace")) + _LINE_OVERHEAD
