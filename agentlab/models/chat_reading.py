"""Reads the bytes of a chat completion as servers really send them; it does no input or output of its own.

    read = ChatReader("served", fail)
    text = read.feed(b'data: {"choices": [{"delta": {"content": "Seven."}}]}')    # "" until the event is whole
    completion = read.completion({"docs_search": "docs.search"})

The form of the protocol is read fast. Other forms that servers send (a table of them is in tests/contract/wire) are
read if they have one meaning. Any other form is an UnreadableAnswer, and the call is made once more.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlab.core.errors import ModelError, Unreachable, UnreadableAnswer
from agentlab.core.messages import Completion, FinishReason, Message, ToolCall
from agentlab.core.strict_json import agreeing, join_surrogates, load_own_yaml, parse_json
from agentlab.core.thoughts import split_thought, split_tool_markup
from agentlab.models.provider import read_usage
from agentlab.models.refusals import parse_server_error, reported_problem
from agentlab.models.sse import SseParser

_REASONS = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
_FINISH: dict[str, FinishReason] = {word: reason for reason, words in _REASONS.items() for word in words}
THOUGHT_FIELDS = ("reasoning_content", "reasoning", "reasoning_details", "thinking_blocks", "thinking")
"""Fields for a thought, in order of preference; servers want them back beside the tool calls after it."""


class Delta(Struct, gc=False):
    """Piece of a completion, or a whole one; other fields are ignored."""

    content: Any = None
    refusal: Any = None
    tool_calls: Any = None
    function_call: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    reasoning_details: Any = None
    thinking_blocks: Any = None
    thinking: Any = None


class Choice(Struct, gc=False):
    index: Any = 0
    delta: Delta | list[Any] | None = None
    """PHP writes an empty object as a list."""
    message: Delta | None = None
    text: Any = None
    finish_reason: Any = None
    usage: Any = None


class Chunk(Struct, gc=False):
    choices: list[Choice] | Choice | None = None
    model: Any = None
    usage: Any = None
    x_groq: Any = None
    error: Any = None
    base_resp: Any = None


class CallInPieces(Struct):
    index: int | None
    id: str = ""
    name: str = ""
    arguments: str = ""
    extra: Any = None

    def starts_another(self, call_id: str, name: str, arguments: str) -> bool:
        """Return True if a piece starts another call: by a new id, or by a name after whole arguments."""
        if call_id and self.id and call_id != self.id:
            return bool(name) or is_json(self.arguments)
        if not name or not self.name or not self.arguments or call_id:
            return False
        return not name.startswith(self.name) or (is_json(self.arguments) and bool(arguments or self.index is None))

    def add(self, call_id: str, name: str, arguments: str) -> None:
        self.id = self.id or call_id
        # Some servers repeat the name in every piece, some send it in pieces.
        self.name = name if name.startswith(self.name) else self.name + name
        if arguments.strip() and self.arguments == "{}":
            self.arguments = ""  # a placeholder for arguments to come
        if arguments != self.arguments or not is_json(arguments):
            self.arguments += arguments


class ChatReader:
    """Collects a completion from its bytes; `fail` returns the error for an error that the server reports."""

    def __init__(self, model: str, fail: Callable[[Any], ModelError]) -> None:
        self.model = model
        self._fail = fail
        self._events = SseParser()
        self._whole: bytes | None = b""
        """Body so far, until it proves to be a stream; then None."""
        self._index = 10**9
        self._texts: list[str] = []
        self._thoughts: dict[str, Any] = {}
        self._calls: list[CallInPieces] = []
        self._usage: Mapping[str, Any] = {}
        self._finish = ""
        self._unsent = ""
        """Text of which a later piece may change the meaning."""

    @property
    def is_done(self) -> bool:
        """True after `[DONE]`."""
        return self._events.is_done

    def feed(self, piece: bytes) -> str:
        """Return the text that `piece` adds; b"" marks the end of the body."""
        old_texts, before = self._texts, len(self._texts)
        for chunk in self._chunks(piece):
            self._add(chunk)
        is_same = self._texts is old_texts
        added = (self._unsent if is_same else "") + "".join(self._texts[before if is_same else 0 :])
        if self._index and piece and not self.is_done:
            self._unsent = added  # the first choice may still come
        else:
            # The next piece may bring the other half of a character.
            self._unsent = added[-1:] if "\ud800" <= added[-1:] <= "\udbff" else ""
        return join_surrogates(added.removesuffix(self._unsent))

    def _chunks(self, piece: bytes) -> Iterable[Chunk | dict[str, Any]]:
        if self._whole is None:
            return read_chunks(self._events.feed(piece))
        self._whole += piece
        beginning = self._whole.removeprefix(b"\xef\xbb\xbf").lstrip()
        if beginning[:1] not in (b"", b"{", b"[", b"<", b'"') or (not piece and not beginning):
            whole, self._whole = self._whole, None
            return read_chunks([*self._events.feed(whole), *(() if piece else self._events.feed(b""))])
        if piece:
            return ()
        if beginning[:1] == b"<":
            raise UnreadableAnswer(f"the server sent {parse_server_error(beginning.decode(errors='replace')).message}")
        self._events.is_done = True
        return read_chunks([beginning])

    def _add(self, chunk: Chunk | dict[str, Any]) -> None:
        if isinstance(chunk, dict):
            wrapped = None if chunk.get("choices") else chunk.get("data") or chunk.get("result")
            document = wrapped if isinstance(wrapped, dict) and "choices" in wrapped else chunk
            if problem := reported_problem(document):
                raise self._fail(problem)
            chunk = msgspec.convert(document, Chunk)
        if isinstance(chunk.model, str):
            self.model = chunk.model or self.model
        if usage := chunk.usage or (isinstance(chunk.x_groq, dict) and chunk.x_groq.get("usage")):
            self._count(usage)
        for choice in [chunk.choices] if isinstance(chunk.choices, Choice) else chunk.choices or ():
            if (index := as_index(choice.index) or 0) < self._index:
                self._index, self._texts, self._calls, self._thoughts = index, [], [], {}
            if index == self._index:
                self._add_choice(choice)

    def _add_choice(self, choice: Choice) -> None:
        if choice.usage is not None:
            self._count(choice.usage)
        if choice.finish_reason and str(choice.finish_reason).lower() not in ("null", "none"):
            self._finish = str(choice.finish_reason)
            if self._finish.lower() in ("error", "network_error"):
                raise self._fail("the server stopped in the middle of an answer")
        delta = choice.delta
        if not isinstance(delta, Delta) or (not delta.content and delta == _EMPTY):
            # Some servers repeat the whole message at the end.
            is_first = not (self._texts or self._calls)
            message = choice.message if is_first else None
            delta = message or (Delta(content=choice.text) if choice.text else _EMPTY)
        self._add_delta(delta)

    def _add_delta(self, delta: Delta) -> None:
        text = delta.content
        if type(text) is not str:
            text, thought = read_parts(text)
            self._add_thought("reasoning_content", thought or None)
        if delta.refusal:
            text += flatten(delta.refusal)
        if text:
            self._texts.append(text)
        for name in THOUGHT_FIELDS:
            if (thought := getattr(delta, name)) is not None:
                self._add_thought(name, thought)
        calls = delta.tool_calls
        for part in [calls] if isinstance(calls, Mapping) else calls or ():
            self._add_call(part, part.get("function") or part.get("custom") or part)
        if delta.function_call:
            self._add_call({"index": 0}, delta.function_call)

    def _add_thought(self, name: str, thought: Any) -> None:
        # An empty one counts, too: some servers want it back beside its calls.
        if type(thought) in (str, list):
            earlier: Any = self._thoughts.get(name) or type(thought)()
            self._thoughts[name] = earlier + thought if type(earlier) is type(thought) else earlier

    def _count(self, usage: Any) -> None:
        """Store the last counts; zeros stand for unknown counts."""
        if isinstance(usage, Mapping) and (not self._usage or any(value for value in usage.values())):
            self._usage = usage

    def _add_call(self, part: Mapping[str, Any], function: Mapping[str, Any]) -> None:
        index, call_id, name = as_index(part.get("index")), flatten(part.get("id")), flatten(function.get("name"))
        given = next((function[name] for name in ("arguments", "parameters", "input") if name in function), None)
        arguments = given if isinstance(given, str) else "" if given is None else json.dumps(given)
        candidates = [call for call in self._calls if call.index == index] if index is not None else []
        if not candidates and (index is None or not name):
            candidates = [call for call in self._calls if call_id and call.id == call_id] or self._calls
        call = candidates[-1] if candidates else None
        if call is None or call.starts_another(call_id, name, arguments):
            call = CallInPieces(index)
            self._calls.append(call)
        call.add(call_id, name, arguments)
        call.extra = part.get("extra_content") or call.extra

    def completion(self, tool_names: Mapping[str, str]) -> Completion:
        """Return the completion, or raise ModelError; `tool_names` maps names on the wire to tools."""
        text = join_surrogates("".join(self._texts))
        if not (self._finish or text or self._calls or any(self._thoughts.values())):
            raise UnreadableAnswer("the server sent an answer with nothing in it")
        if not self._finish and not self.is_done:
            raise Unreachable("the stream ended before the answer did")
        thought = next((flatten(self._thoughts[name]) for name in THOUGHT_FIELDS if self._thoughts.get(name)), "")
        visible, spelled_out = split_thought(text, is_split=bool(thought))
        finish = _FINISH.get(self._finish.lower(), "other" if self._finish else "stop")
        calls, is_truncated = self._whole_calls(tool_names, finish == "length")
        stopped = f"the server stopped the reply: {self._finish[:80]}" if finish == "other" else ""
        if not calls:
            finish = "stop" if finish == "tool_calls" else finish
            visible, markup = split_tool_markup(visible)
            if markup:
                finish, stopped = "other", f"the server does not read this model's calls, such as {markup[:200]}"
        elif not is_truncated:
            finish = "tool_calls"
        usage = read_usage(self._usage)
        usage = replace(usage, input_tokens=usage.input_tokens or None)
        if not usage.output_tokens and (text or calls or thought):
            usage = replace(usage, output_tokens=None)
        extra = {"openai": self._thoughts} if calls and self._thoughts else {}
        return Completion(
            message=Message(role="agent", text=visible, tool_calls=calls, extra=extra),
            usage=usage,
            model=self.model,
            finish_reason=finish,
            thought=join_surrogates(thought or spelled_out),
            stopped=stopped,
        )

    def _whole_calls(self, tool_names: Mapping[str, str], is_truncated: bool) -> tuple[tuple[ToolCall, ...], bool]:
        """Return the calls, each with its own id, and whether a call was cut off and left out."""
        made: dict[str, ToolCall] = {}
        self._calls.sort(key=lambda call: -1 if call.index is None else call.index)
        for index, call in enumerate(self._calls):
            call_id = call.id if call.id and call.id not in made else f"{call.id or 'call'}_{index}"
            name = tool_names.get(call.name) or tool_names.get(plain_name(call.name)) or call.name
            read = read_call(call_id, name, call.arguments)
            if not (is_truncated and read.malformed is not None):
                made[call_id] = replace(read, extra={"openai": call.extra}) if call.extra else read
        return tuple(made.values()), len(made) < len(self._calls)


_EMPTY = Delta()


def plain_name(name: str) -> str:
    """Strip what models put around the name of a tool: `functions.lookup<|channel|>json`, `default_api:lookup`."""
    return re.sub(r"^(?:functions|default_api)[.:]", "", name.partition("<|")[0].strip())


def as_index(index: Any) -> int | None:
    return index if isinstance(index, int) else int(index) if isinstance(index, str) and index.isdecimal() else None


def flatten(part: Any) -> str:
    """Return the text of a part of a completion, or of a list of parts."""
    if isinstance(part, Mapping):
        names = ("text", "thinking", "refusal", "reasoning", "summary", "content", "value")
        return next((flatten(part[name]) for name in names if part.get(name)), "")
    return "".join(map(flatten, part)) if isinstance(part, list) else part if isinstance(part, str) else ""


def read_parts(content: Any) -> tuple[str, str]:
    """Return text and thought of a content in parts."""
    text, thought = "", ""
    for part in content if isinstance(content, list) else [content or ""]:
        if isinstance(part, Mapping) and {"thinking", "reasoning"} & {*part, part.get("type")}:
            thought += flatten(part)
        elif isinstance(part, (str, Mapping)):
            text += flatten(part)
        elif isinstance(part, (int, float)) and not isinstance(part, bool):
            text += str(part)
        else:
            raise UnreadableAnswer("the server sent content that is not text")
    return text, thought


def is_json(text: str) -> bool:
    """Return True for whole arguments."""
    return bool(text.strip()) and read_call("", "", text).malformed is None


_AROUND_ARGUMENTS = re.compile(r"\A\s*```\w*\n|(?:\n?```|<\|\w+\|>|</\w+>)\s*\Z")
"""Code fence, end token or closing tag around arguments."""
MAX_WRAPPINGS = 8
"""Lists and texts around arguments that are opened."""


def read_call(call_id: str, name: str, arguments: str) -> ToolCall:
    """Read a call; its arguments may be encoded again, stand alone in lists or in a code fence, or end with a mark."""
    parsed: Any = arguments if arguments[-1:] == "}" else _AROUND_ARGUMENTS.sub("", arguments)
    try:
        for _ in range(MAX_WRAPPINGS):
            if isinstance(parsed, str):
                parsed = json.loads(parsed if parsed.strip() else "{}", object_pairs_hook=agreeing, strict=False)
            elif not isinstance(parsed, dict) and (parsed is None or (isinstance(parsed, list) and len(parsed) < 2)):
                parsed = (parsed or [{}])[0]
        parsed = parse_json(json.dumps(parsed))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        return ToolCall(id=call_id, name=name, malformed=arguments)
    return ToolCall(id=call_id, name=name, arguments=parsed)


_decode_chunks = msgspec.json.Decoder(list[Chunk]).decode


def read_chunks(events: Sequence[bytes]) -> Iterable[Chunk | dict[str, Any]]:
    """Yield the usual chunks, and any other as the object that it is; raises ValueError at the first that is none."""
    try:
        # The usual events are decoded all at once.
        chunks = _decode_chunks(b"[%b]" % b",".join(events))
    except ValueError:
        chunks = []
    for chunk in chunks:
        if chunk.error or chunk.base_resp or not (chunk.choices or chunk.usage):
            break
    else:
        if len(chunks) == len(events):
            return chunks
    # Servers send some things that msgspec refuses: NaN, half a surrogate pair, bytes that are no UTF-8.
    return (chunk for data in events for chunk in _read_slowly(data))


def _read_slowly(data: bytes) -> Iterable[dict[str, Any]]:
    # Some gateways wrap an event once more, and so name the field twice.
    text = re.sub("^data:", "", data.decode("utf-8-sig", "replace"), flags=re.MULTILINE)
    try:
        read = [json.loads(text)]
    except ValueError:
        # Some servers leave out the empty line between events, or send bare lines of JSON.
        read = [json.loads(line) for line in text.splitlines() if line.strip() and line.strip() != "[DONE]"]
    for chunk in read[0] if isinstance(read[0], list) else read:
        if isinstance(chunk, str):
            yield from _read_slowly(chunk.encode())  # some gateways encode an event twice
        elif isinstance(chunk, dict):  # a number or null is no chunk; the SDK passes it over, too
            yield chunk
