"""Why a request is not among the recordings: the nearest one, and what differs field by field.

nearest = Nearest(recordings)
nearest.explain(request, fields, ("tools", "laws-001", 2))
# Difference(field="system prompt", text="system prompt changed at character 812: 'one or two' was 'one'")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentlab.core.events import shorten
from agentlab.core.messages import Message, Request, ToolSpec
from agentlab.wire.entries import Completed
from agentlab.wire.keys import Row
from agentlab.wire.recordings import Recordings

RecordedAt = tuple[str, str, int]
"""Flow, conversation, turn."""


@dataclass(frozen=True)
class Difference:
    field: str
    """What differs, in words that can be counted: `system prompt`, `tool lookup_documents`, `seed`."""
    text: str


@dataclass(frozen=True)
class Explanation:
    nearest: str
    """`file:line` of the nearest recording."""
    differences: tuple[Difference, ...]

    @property
    def cause(self) -> str:
        return self.differences[0].field

    def __str__(self) -> str:
        told = "; ".join(difference.text for difference in self.differences[:4])
        more = len(self.differences) - 4
        return told + (f"; and {more} more" if more > 0 else "") + f" (nearest recording: {self.nearest})"


class Nearest:
    """Finds the recording that a request was most probably meant to be."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._by_conversation: dict[str, list[Completed]] = defaultdict(list)
        self._all = [*recordings.completions()]
        for entry in self._all:
            if entry.at:
                self._by_conversation[entry.at[1]].append(entry)

    def explain(self, request: Request, fields: Row, place: RecordedAt) -> Explanation | None:
        """None where nothing is recorded at all."""
        candidates = self._by_conversation.get(place[1]) or self._all
        if not candidates:
            return None
        if self._by_conversation and place[1] not in self._by_conversation:
            known = self._recordings.line_of(self._all[-1].key)
            return Explanation(known, (Difference("new conversation", f"nothing of {place[1]} is recorded"),))
        wanted = set(fields["messages"])
        best = max(candidates, key=lambda entry: _likeness(entry, fields, wanted, place))
        told = tuple(differences(self._recordings.request_of(best), request, best.request, fields))
        if not told:
            same = best.request == fields
            again = Difference("asked more often", "the same request was asked fewer times, or in another order")
            told = (again if same else Difference("details", "it differs in details such as the order of keys"),)
        return Explanation(self._recordings.line_of(best.key), told)


def _likeness(entry: Completed, fields: Row, wanted: set[str], place: RecordedAt) -> tuple[float, ...]:
    recorded = entry.request
    at = entry.at or ("", "", -1)
    shared = len(wanted & set(recorded["messages"]))
    settings = sum(recorded.get(name) == fields.get(name) for name in ("model", "endpoint", "output_schema", "epoch"))
    return (
        (recorded["tools"] == fields["tools"]) + 2 * (at[2] == place[2]) + (at[0] == place[0]),
        -abs(len(recorded["messages"]) - len(fields["messages"])),
        shared,
        settings,
    )


def differences(old: Request, new: Request, old_fields: Row, new_fields: Row) -> Iterator[Difference]:
    """What differs between a recorded request and a new one, the probable cause first."""
    for name, title in (("model", "model"), ("endpoint", "server"), ("epoch", "epoch")):
        if old_fields[name] != new_fields[name]:
            yield Difference(title, f"{title} is {new_fields[name]!r}, was {old_fields[name]!r}")
    yield from _tools(old.tools, new.tools)
    for name in ("temperature", "seed", "max_tokens", "tool_choice"):
        before, now = getattr(old, name), getattr(new, name)
        if before != now:
            yield Difference(name, f"{name} is {now!r}, was {before!r}")
    if repr(old.output_schema) != repr(new.output_schema):
        yield Difference("output schema", "output schema differs")
    yield from _messages(old.messages, new.messages)


def _tools(old: Sequence[ToolSpec], new: Sequence[ToolSpec]) -> Iterator[Difference]:
    before, now = {tool.name: tool for tool in old}, {tool.name: tool for tool in new}
    for name in [*now, *(name for name in before if name not in now)]:
        if name not in before:
            yield Difference(f"tool {name}", f"tool {name} is new")
        elif name not in now:
            yield Difference(f"tool {name}", f"tool {name} is gone")
        else:
            for part in ("description", "parameters"):
                # As text: a model reads the keys of a schema in their order.
                if repr(getattr(before[name], part)) != repr(getattr(now[name], part)):
                    yield Difference(f"tool {name}", f"tool {name}: {part} differs")
    if set(before) == set(now) and list(before) != list(now):
        yield Difference("tool order", f"tools come as {', '.join(now)}; were {', '.join(before)}")


def _messages(old: Sequence[Message], new: Sequence[Message]) -> Iterator[Difference]:
    asked = max((position for position, message in enumerate(new) if message.role == "user"), default=-1)
    for position, (before, now) in enumerate(zip(old, new, strict=False)):
        title = _title(now, position == asked)
        if before.role != now.role:
            yield Difference(title, f"message {position + 1} is a {now.role} message, was a {before.role} message")
        elif before.text != now.text:
            yield Difference(title, f"{title} changed at {_where(before.text, now.text)}")
        elif _calls(before) != _calls(now):
            yield Difference(title, f"{title} calls other tools: {shorten(', '.join(_calls(now)), 80)}")
        elif (before.name, before.extra) != (now.name, now.extra):
            yield Difference(title, f"{title}: name or provider data differ")
    if len(old) != len(new):
        yield Difference("history", f"{len(new)} messages, were {len(old)}")


def _calls(message: Message) -> list[str]:
    # As text, with the arguments in their order.
    return [f"{call.name} {call.malformed or call.arguments!r}" for call in message.tool_calls]


def _title(message: Message, is_question: bool) -> str:
    if message.role == "system":
        return "system prompt"
    if message.role == "tool":
        return f"result of {message.name or 'a tool'}"
    return "user message" if is_question else "history"


def _where(old: str, new: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, at - 10)
    return f"character {at}: {shorten(new[start : at + 30], 40)!r}, was {shorten(old[start : at + 30], 40)!r}"
