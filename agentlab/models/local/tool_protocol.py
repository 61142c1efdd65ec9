"""Tool calls of the embedded model: the texts that offer tools, the grammar of replies and their parser.

The tool parser of llama.cpp does not understand small coder models. The system prompt lists the tools instead. A
JSON schema restricts the reply to an answer or calls of these tools:

    {"tool": "answer", "text": "Three months."}
    {"tool": "lookup_documents", "arguments": {"query": "notice period"}, "more": [{"tool": ..., "arguments": ...}]}

The wording was measured on the 0.5B model, which decides with the first tool name it writes. It repeats its own calls
if it sees them in this form, so the results, in the user role, describe them. Its own answers are plain text. It
prefers answering from memory to searching; ANSWER_BIAS corrects that.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from agentlab.core.errors import BadRequest
from agentlab.core.messages import Request, ToolCall, ToolSpec
from agentlab.core.schemas import properties_of, simplify_schema, strict_object_schema
from agentlab.core.strict_json import load_own_yaml

Tools = Sequence[ToolSpec]

EDITION = 1
"""Raise it with every change of the texts that the model reads (`tool_protocol.yaml`): earlier recordings miss."""
MAX_CALLS = 8
ANSWER_NAMES = ("answer", "reply", "say_to_user", "final_answer")
"""Names of the choice to answer without a tool; the request uses the first one that no tool has."""

_TEXTS: dict[str, str] = load_own_yaml(Path(__file__).with_suffix(".yaml").read_text(encoding="utf-8"))
MAY_CALL, MUST_CALL, RESULT, USE_RESULTS = (_TEXTS[name] for name in ("may_call", "must_call", "result", "use_results"))
ANSWER_BIAS = {"qwen2.5-coder-0.5b": -4.0}
"""Bias on the logit of the answer's name until results arrive, by model; only for models it was measured on."""

_GRAMMAR = "%llguidance {}\nstart: %json "
_COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
_CALL = re.compile(r'\{"tool": ("(?:[^"\\]|\\.)*"), "arguments": ')
_CONTROL = re.compile(
    r"<(?=[|\uff5c][^<>\n]{1,60}[|\uff5c]> | /?s> | (bos|eos|pad|unk)> | (start|end)_of_turn>) | \[(?=/?INST\])",
    re.VERBOSE | re.IGNORECASE,
)
"""Matches the start of the control tokens of all models: `<|im_end|>`, `<start_of_turn>`, `</s>`, `[INST]`."""
_CUT_NAME = re.compile(r'\{"tool": "((?:[^"\\]|\\.)*)')
_DECODABLE = re.compile(
    r"""([^"\\]+ | \\["\\/bfnrt] | \\u(?![dD][89abAB])[0-9a-fA-F]{4}
    | \\u[dD][89abAB][0-9a-fA-F]{2} (?!(\\(u[0-9a-fA-F]{0,3})?)?\Z)   # half a pair, unless the other half may follow
    )*""",
    re.VERBOSE,
)
"""Matches the part of a JSON string that can be decoded without its continuation."""


def offered_tools(request: Request) -> Tools:
    """Return the tools the reply may call: none, all, or the one that `tool_choice` names. Raises BadRequest."""
    if request.tool_choice == "none" or not request.tools:
        return ()
    if request.tool_choice in ("auto", "required"):
        return request.tools
    named = [tool for tool in request.tools if tool.name == request.tool_choice]
    if not named:
        offered = ", ".join(tool.name for tool in request.tools)
        raise BadRequest(f"tool_choice is '{request.tool_choice}', but the tools are {offered}")
    return named


def constraint(request: Request, offered: Tools, model: str) -> dict[str, Any]:
    """Return the part of the request body that restricts what the model can write."""
    if offered:
        schema = _reply_schema(request, offered)
    elif request.output_schema is not None:
        schema = simplify_schema(request.output_schema)
    else:
        return {}
    # `response_format` uses another converter, which lets the model spend tokens on white space.
    body: dict[str, Any] = {"grammar": f"{_GRAMMAR}{json.dumps({**schema, 'x-guidance': _COMPACT})}"}
    if model in ANSWER_BIAS and offered and request.tool_choice == "auto" and not _has_results(request):
        body["logit_bias"] = [[_answer_name(offered), ANSWER_BIAS[model]]]
    return body


def render(request: Request, offered: Tools, format_result: Callable[[str, str, str], str]) -> list[dict[str, str]]:
    """Return the conversation in the roles system, user and assistant; tool results are in the user role.

    `format_result` takes the id of a call, the call as the model sees it, and its result.
    """
    wired: list[dict[str, str]] = []
    calls: dict[str, ToolCall] = {}
    for message in request.messages:
        calls.update((call.id, call) for call in message.tool_calls)
        role, text = "user", message.text
        if message.role == "tool":
            call = calls.get(message.tool_call_id or "")
            caller = _spoken(call) if call else message.name or "The tool"
            text = format_result(message.tool_call_id or "", caller, message.text)
        elif message.role == "agent":
            role = "assistant"
            if message.tool_calls and not text:
                continue
        elif message.role == "system":
            role = "system"
        elif message.name:
            text = f"{message.name}: {text}"
        if role == "user" and wired and wired[-1]["role"] == "user":
            wired[-1]["content"] += f"\n\n{text}"
        else:
            wired.append({"role": role, "content": text})
    if offered:
        _instruct(wired, request, offered)
    return [{**message, "content": escape_control_tokens(message["content"])} for message in wired]


def without_system_role(wired: Sequence[dict[str, str]]) -> list[dict[str, str]]:
    """Return the conversation for a template without a system role: its text opens the first user message."""
    first, *rest = wired
    if first["role"] != "system":
        return list(wired)
    text = first["content"]
    if rest and rest[0]["role"] == "user":
        text, rest = f"{text}\n\n{rest[0]['content']}", rest[1:]
    return [{"role": "user", "content": text}, *rest]


def escape_control_tokens(text: str) -> str:
    """Insert a space into every control token in `text`, so that no text ends or opens a turn."""
    return _CONTROL.sub(lambda match: f"{match[0]} ", text)


def _instruct(wired: list[dict[str, str]], request: Request, offered: Tools) -> None:
    wording = MAY_CALL if request.tool_choice == "auto" else MUST_CALL
    tools = "\n".join(f"- {tool.name}({_parameters(tool.parameters)}): {tool.description}" for tool in offered)
    note = wording.format(tools=tools, answer=_answer_name(offered))
    if wired and wired[0]["role"] == "system":
        wired[0]["content"] += f"\n\n{note}"
    else:
        wired.insert(0, {"role": "system", "content": note})
    if _has_results(request) and request.tool_choice == "auto":
        wired[-1]["content"] += f"\n\n{USE_RESULTS}"


def _has_results(request: Request) -> bool:
    return bool(request.messages) and request.messages[-1].role == "tool"


def _answer_name(offered: Tools) -> str:
    used = {tool.name for tool in offered}
    return next((name for name in ANSWER_NAMES if name not in used), "answer_the_user")


def _spoken(call: ToolCall) -> str:
    if call.malformed is not None:
        return f"{call.name}({call.malformed})"
    arguments = ", ".join(f"{key}={json.dumps(value, ensure_ascii=False)}" for key, value in call.arguments.items())
    return f"{call.name}({arguments})"


def _parameters(schema: Any) -> str:
    """Render a schema as `query: string (what to look for), limit?: integer`: a third of its tokens."""
    if not (properties := properties_of(schema)):
        return ""
    required = schema.get("required") or ()
    parts = []
    for name, inner in properties.items():
        described = inner.get("description") if isinstance(inner, Mapping) else None
        note = f" ({' '.join(str(described).split())})" if described else ""
        parts.append(f"{name}{'' if name in required else '?'}: {_type(inner)}{note}")
    return ", ".join(parts)


def _type(schema: Any) -> str:
    if not isinstance(schema, Mapping):
        return "any"
    if isinstance(choices := schema.get("enum"), list):
        return "|".join(json.dumps(choice, ensure_ascii=False, default=str) for choice in choices)
    if isinstance(schema.get("properties"), Mapping):
        return f"{{{_parameters(schema)}}}"
    if isinstance(items := schema.get("items"), Mapping):
        return f"[{_type(items)}]"
    declared = schema.get("type", "any")
    return "|".join(map(str, declared)) if isinstance(declared, list) else str(declared)


def _reply_schema(request: Request, offered: Tools) -> dict[str, Any]:
    calls = [
        {"tool": {"const": tool.name}, "arguments": simplify_schema({"type": "object", **tool.parameters})}
        for tool in offered
    ]
    each = {"anyOf": [strict_object_schema(call) for call in calls]}
    more = {"type": "array", "items": each, "minItems": 1, "maxItems": MAX_CALLS - 1}
    replies = [strict_object_schema({**call, "more": more}, "more") for call in calls]
    if request.tool_choice == "auto":
        text = {"type": "string"} if request.output_schema is None else simplify_schema(request.output_schema)
        replies.insert(0, strict_object_schema({"tool": {"const": _answer_name(offered)}, "text": text}))
    return {"anyOf": replies}


class ReplyReader:
    """Reads a reply while it streams, complete or cut off: the text of the answer, or the calls."""

    def __init__(self, request: Request, offered: Tools) -> None:
        self._structured = request.output_schema is not None
        opening = json.dumps({"tool": _answer_name(offered), "text": ""}).removesuffix('"}')
        self._opening = opening.removesuffix('"') if self._structured else opening
        self._calls_before = sum(len(message.tool_calls) for message in request.messages)
        self._raw = ""
        self._visible = ""

    def feed(self, piece: str) -> str:
        """Take the next piece of the reply and return the part of the answer that became visible."""
        self._raw += piece
        if self._structured or not self._raw.startswith(self._opening):
            return ""
        before = len(self._visible)
        self._visible = _string_so_far(self._raw[len(self._opening) :])
        return self._visible[before:]

    def finish(self) -> tuple[str, tuple[ToolCall, ...]]:
        """Return the text of the answer and the calls; a cut-off call has its raw text in `malformed`."""
        if not self._raw.startswith(self._opening):
            return "", self._calls()
        return self._raw[len(self._opening) :].removesuffix("}") if self._structured else self._visible, ()

    def _calls(self) -> tuple[ToolCall, ...]:
        made: list[dict[str, Any]] = []
        position = 0
        while match := _CALL.search(self._raw, position):
            name = json.loads(match[1])
            try:
                arguments, position = json.JSONDecoder().raw_decode(self._raw, match.end())
                made.append({"name": name, "arguments": arguments})
            except ValueError:
                made.append({"name": name, "malformed": self._raw[match.end() :]})
                position = len(self._raw)
        if cut := _CUT_NAME.search(self._raw, position):
            made.append({"name": cut[1], "malformed": self._raw[cut.start() :]})
        elif not made and self._raw:
            made.append({"name": "", "malformed": self._raw})
        return tuple(ToolCall(id=f"call_{number}", **call) for number, call in enumerate(made, self._calls_before + 1))


def _string_so_far(inside: str) -> str:
    """Decode a JSON string that may be incomplete; `inside` starts after its opening quote.

    Half a surrogate pair cannot be stored, so it becomes U+FFFD.
    """
    match = _DECODABLE.match(inside)
    assert match is not None
    text: str = json.loads(f'"{match[0]}"', strict=False)
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
