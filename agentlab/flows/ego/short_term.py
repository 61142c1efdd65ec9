"""What prompts show of short-term memory: the newest turns that fit into a budget, shortened where it hurts least.

What the user said is whole or not there at all; then come the responses, the newest first; what is left is shared by
the results of steps and by what else was noted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from agentlab.flows.ego.prompting import cut_to_bytes
from agentlab.memory.tagged_log import Entry

USER_KINDS = ("user", "command")
"""The kinds of entry that begin a turn."""
SHOWN_BYTES = 400
"""Of what is neither the user's message nor a response, at the most."""
_MIN_BYTES = 60
"""Bytes below which a shortened entry says nothing any more."""
_LINE_OVERHEAD = 30
"""Bytes that a line has beside its text."""

RenderedEntry = tuple[Entry, str]
"""An entry, and its text as a prompt shows it."""


def kind_of(entry: Entry) -> str:
    return entry.facts.get("kind", "memory")


def fit_to_budget(entries: Sequence[Entry], room: int) -> list[RenderedEntry]:
    """The entries that fit into `room` bytes, in their order, each with its text as it fits.

    The user's messages take half of the room at the most, but for the newest one, which may take all of it; one that
    is longer still is only mentioned.
    """
    texts: dict[int, str] = {}

    def used() -> int:
        return sum(_bytes(text) for text in texts.values())

    since = 0
    for at in reversed(range(len(entries))):
        if kind_of(entries[at]) in USER_KINDS:
            text = _indented(entries[at])
            if _bytes(text) > room:
                text = f"(a message of {_bytes(text):,} bytes, too long to be shown)"
            if texts and used() + _bytes(text) > room // 2:
                since = at + 1
                break
            texts[at] = text
    later = range(since, len(entries))
    responses = [at for at in later if kind_of(entries[at]) == "response"]
    others = [at for at in later if at not in texts and at not in responses]
    for at in reversed(responses):
        left = room - used() - (room // 5 if others else 0)
        if left < _MIN_BYTES + _LINE_OVERHEAD:
            break
        texts[at] = cut_to_bytes(_indented(entries[at]), left - _LINE_OVERHEAD)
    for number, at in enumerate(reversed(others)):
        share = max(_MIN_BYTES, min(SHOWN_BYTES, (room - used()) // (len(others) - number) - _LINE_OVERHEAD))
        if room - used() < share + _LINE_OVERHEAD:
            break
        texts[at] = shortened(entries[at], share)
    return [(entries[at], texts[at]) for at in sorted(texts)]


def last_exchange(shown: Sequence[RenderedEntry]) -> list[int]:
    """Where the user's last message and what was answered stand in `shown`."""
    begins = max((at for at, (entry, _) in enumerate(shown) if kind_of(entry) in USER_KINDS), default=len(shown))
    return [at for at in range(begins, len(shown)) if kind_of(shown[at][0]) in (*USER_KINDS, "response")]


def shortened(entry: Entry, room: int = SHOWN_BYTES) -> str:
    """An entry's summary, or its text, in one line."""
    return cut_to_bytes(entry.facts.get("summary") or " ".join(entry.text.split()), room)


def numbered_lines(shown: Iterable[RenderedEntry], first: int = 1) -> str:
    """A line an entry, as prompts show them."""
    lines = [f"{number}. {tag(entry)} {text}" for number, (entry, text) in enumerate(shown, first)]
    return "\n".join(lines) or "(nothing)"


def tag(entry: Entry) -> str:
    return f"[{entry.module} {kind_of(entry)}]"


def _indented(entry: Entry) -> str:
    return entry.text.strip().replace("\n", "\n   ")


def _bytes(text: str) -> int:
    return len(text.encode("utf-8", "replace")) + _LINE_OVERHEAD
