"""Explains a recording miss: finds the nearest recording and lists the fields that differ.

explainer = MissExplainer(recordings)
explainer.explain(request, fields, ("tools", "laws-001", 2))
# NotRecorded("system prompt changed at character 812: 'one or two', was 'one' (nearest recording: flows.jsonl:7)")
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from agentlab.core.errors import NotRecorded
from agentlab.core.events import shorten
from agentlab.core.messages import Message, Request, ToolSpec
from agentlab.wire.keys import Row
from agentlab.wire.recording_schema import Completed
from agentlab.wire.recordings import Recordings

RecordedAt = tuple[str, str, int]
"""Position of a recorded call: flow, conversation, turn."""
_TITLES = {"endpoint": "server", "output_schema": "output schema"}


class Difference(NamedTuple):
    field: str
    """Short name, so that equal causes can be counted: `system prompt`, `tool lookup_documents`, `seed`."""
    text: str


class MissExplainer:
    """Finds the recording that is most similar to a request."""

    def __init__(self, recordings: Recordings) -> None:
        self._recordings = recordings
        self._by_conversation: dict[str, list[Completed]] = defaultdict(list)
        self._all = [*recordings.completions()]
        for entry in self._all:
            if entry.at:
                self._by_conversation[entry.at[1]].append(entry)

    def explain(self, request: Request, fields: Row, position: RecordedAt) -> NotRecorded | None:
        """Return the error that names the differences from the nearest recording; None without any recording.

        `fields` are the stored fields of `request`; `position` is its flow, conversation and turn.
        """
        candidates = self._by_conversation.get(position[1]) or self._all
        if not candidates:
            return None
        if self._by_conversation and position[1] not in self._by_conversation:
            nearest = self._recordings.line_of(self._all[-1].key)
            return _miss([Difference("new conversation", f"nothing of {position[1]} is recorded")], nearest)
        best = max(candidates, key=lambda entry: _similarity(entry, fields, position))
        nearest = self._recordings.line_of(best.key)
        same = Difference("asked more often", "the same request was made fewer times, or in another order")
        return _miss([*self._differences(best.request, request, fields, nearest)] or [same], nearest)

    def _differences(self, old: Row, request: Request, new: Row, location: str) -> Iterator[Difference]:
        """Yield the differences, the probable cause first.

        `new` are the fields of `request`, `old` the fields that are recorded at `location`.
        """
        tools, messages = (
            [self._recordings.part(kind, name, location) for name in old[f"{kind}s"]] for kind in ("tool", "message")
        )
        yield from _settings(old, new, ("model", "endpoint", "epoch"))
        yield from _tools(tools, request.tools)
        yield from _settings(
            old, new, ("temperature", "seed", "max_tokens", "thought_tokens", "tool_choice", "output_schema")
        )
        question = max((i for i, message in enumerate(request.messages) if message.role == "user"), default=-1)
        for position, (was, now) in enumerate(zip(messages, request.messages, strict=False)):
            if old["messages"][position] != new["messages"][position]:
                title = _title(now, position == question)
                yield Difference(title, f"{title} {_change(was, now)}")
        if len(messages) != len(request.messages):
            yield Difference("history", f"{len(request.messages)} messages, were {len(messages)}")


def _miss(differences: Sequence[Difference], nearest: str) -> NotRecorded:
    """Return the error for a miss; `nearest` is `file:line` of the nearest recording."""
    text, rest = "; ".join(difference.text for difference in differences[:4]), len(differences) - 4
    text += f"; and {rest} more" if rest > 0 else ""
    return NotRecorded(f"{text} (nearest recording: {nearest})", differences[0].field)


def _similarity(entry: Completed, fields: Row, position: RecordedAt) -> tuple[float, ...]:
    recorded = entry.request
    at = entry.at or ("", "", -1)
    shared = len(set(fields["messages"]) & set(recorded["messages"]))
    settings = sum(recorded.get(name) == fields.get(name) for name in ("model", "endpoint", "output_schema", "epoch"))
    return (
        (recorded["tools"] == fields["tools"]) + 2 * (at[2] == position[2]) + (at[0] == position[0]),
        -abs(len(recorded["messages"]) - len(fields["messages"])),
        shared,
        settings,
    )


def _settings(old: Row, new: Row, names: Sequence[str]) -> Iterator[Difference]:
    for name in names:
        was, now = (repr(fields.get(name, getattr(Request, name, None))) for fields in (old, new))
        if was != now:
            title = _TITLES.get(name, name)
            yield Difference(title, f"{title} is {shorten(now)}, was {shorten(was)}")


def _tools(old: Sequence[ToolSpec], new: Sequence[ToolSpec]) -> Iterator[Difference]:
    before, now = ({tool.name: tool for tool in tools} for tools in (old, new))
    for name in dict.fromkeys([*now, *before]):
        if name not in before or name not in now:
            yield Difference(f"tool {name}", f"tool {name} is {'new' if name in now else 'gone'}")
            continue
        for part in ("description", "parameters"):
            # Compare texts: a model reads the keys of a schema in their order.
            if repr(getattr(before[name], part)) != repr(getattr(now[name], part)):
                yield Difference(f"tool {name}", f"tool {name}: {part} differs")
    if set(before) == set(now) and list(before) != list(now):
        yield Difference("tool order", f"tools come as {', '.join(now)}; were {', '.join(before)}")


def _change(before: Message, now: Message) -> str:
    if before.role != now.role:
        return f"comes as {now.role}, was {before.role}"
    return f"changed at {_diff(before.text, now.text)}" if before.text != now.text else "has other calls or other data"


def _title(message: Message, is_question: bool) -> str:
    if message.role == "system":
        return "system prompt"
    if message.role == "tool":
        return f"result of {message.name or 'a tool'}"
    return "user message" if is_question else "history"


def _diff(old: str, new: str) -> str:
    at = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
    start = max(0, at - 10)
    return f"character {at}: {shorten(new[start : at + 30], 40)!r}, was {shorten(old[start : at + 30], 40)!r}"
