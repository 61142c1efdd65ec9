"""What is accepted of the tools that a server says it has: nothing in a listing is believed.

    specs, problems = accepted("time", [{"name": "now", "description": "...", "inputSchema": {"type": "object"}}])

Names and descriptions are data and are shown to a model; a schema is what the session checks arguments against, so it
must be sound and cheap to check whatever the arguments. What can be mended is mended, the rest is refused, and a line
says which. A listing that was accepted once is accepted again as it is.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeGuard
from urllib.parse import unquote

from agentlab.core.messages import ToolSpec

MOST = 200
"""Tools of one server: a prompt must hold them all."""
_NAME = 128
_DESCRIPTION = 2_000
_SCHEMA = 50_000
"""Characters of a schema as JSON."""
_DEEPEST = 50
_WORK = 5_000
"""Subschemas with every reference followed: a few lines of `$ref` can double it a thousand times."""
_KEPT = "\n\t\u200c\u200d"
"""Line ends, and the joiners without which some scripts cannot be written."""
_ONE = (
    "additionalProperties",
    "contains",
    "contentSchema",
    "else",
    "if",
    "items",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
)
_BY_NAME = ("$defs", "definitions", "dependentSchemas", "patternProperties", "properties")
_LISTED = ("allOf", "anyOf", "oneOf", "prefixItems")
_ELSEWHERE = ("$anchor", "$dynamicAnchor", "$dynamicRef", "$id", "$recursiveAnchor", "$recursiveRef", "$schema")
"""Keywords by which a schema refers to other documents, or is referred to other than by its place."""
_WORDS = ("$comment", "description", "title")
_QUANTIFIED_GROUP = re.compile(r"\)[*+{]|\\[1-9]|\(\?P=")
_UNBOUNDED = re.compile(r"(?<!\\)[*+]|\{\d*,\}|\{\d*,?\d{3,}\}")


class Refused(Exception):
    """Why a tool is left out, to be read after its name."""


def accepted(server: str, raw: Sequence[Any]) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """The tools of a listing that can be used, in its order, and a line for each that cannot, or not as it stands."""
    specs: dict[str, ToolSpec] = {}
    problems = []
    for number, tool in enumerate(raw[:MOST], 1):
        name = tool.get("name") if isinstance(tool, dict) else None
        if not _is_name(name):
            problems.append(f"{server}: tool {number} is left out: it has no name that can be used")
        elif name in specs:
            problems.append(f"{server}: {name}: is listed twice; the first counts")
        else:
            try:
                spec, notes = _spec(name, tool)
            except Refused as refusal:
                problems.append(f"{server}: {name}: is left out: {refusal}")
                continue
            specs[name] = spec
            problems += [f"{server}: {name}: {note}" for note in notes]
    if len(raw) > MOST:
        problems.append(f"{server}: it lists {len(raw):,} tools or more; the first {MOST} are taken")
    return tuple(specs.values()), tuple(problems)


def plain(text: str, longest: int = _DESCRIPTION) -> str:
    """`text` without control characters and characters nobody sees, cut to `longest`."""
    hidden = ("Cc", "Cf", "Cs", "Co")
    kept = "".join(c for c in text[: 4 * longest] if c in _KEPT or unicodedata.category(c) not in hidden).strip()
    return kept if len(kept) <= longest else f"{kept[: longest - 1]}…"


def listing_row(spec: ToolSpec) -> dict[str, Any]:
    """A tool as a server would list it."""
    return {"name": spec.name, "description": spec.description, "inputSchema": spec.parameters}


def sound_schema(raw: Any) -> tuple[dict[str, Any], list[str]]:
    """A copy of a schema that can be used, and what was changed in it; raises Refused."""
    import jsonschema

    if not isinstance(raw, dict):
        raise Refused("its schema is not an object")
    if _is_deeper(raw, _DEEPEST):
        raise Refused(f"its schema is nested more than {_DEEPEST} deep")
    try:
        text = json.dumps(raw)
    except (TypeError, ValueError):
        raise Refused("its schema is not JSON") from None
    if len(text) > _SCHEMA:
        raise Refused(f"its schema has {len(text):,} characters, at most {_SCHEMA:,} are taken")
    schema: dict[str, Any] = json.loads(text)
    if schema.setdefault("type", "object") != "object":
        raise Refused("its schema is not one of an object")
    walk = _Walk(schema)
    try:
        if walk.work(schema) > _WORK:
            raise Refused("its schema multiplies itself by references")
        jsonschema.Draft202012Validator.check_schema(schema)
    except jsonschema.SchemaError as problem:
        raise Refused(f"its schema is not valid: {plain(problem.message, 200)}") from None
    except RecursionError:
        raise Refused("its schema refers to itself in too long a chain") from None
    return schema, list(dict.fromkeys(walk.notes))


def _is_name(name: Any) -> TypeGuard[str]:
    return isinstance(name, str) and 0 < len(name) <= _NAME and plain(name, _NAME) == name and "\n" not in name


def _spec(name: str, tool: dict[str, Any]) -> tuple[ToolSpec, list[str]]:
    schema, notes = sound_schema(tool.get("inputSchema"))
    description = tool.get("description")
    if description is None:
        description = ""
    if not isinstance(description, str):
        notes.append("its description is no text and is left out")
        description = ""
    shown = plain(description)
    if shown != description.replace("\r", "").strip():
        notes.append(f"its description is cut to {_DESCRIPTION:,} visible characters")
    return ToolSpec(name=name, description=shown, parameters=schema), notes


def _is_deeper(value: Any, most: int) -> bool:
    level = [value]
    for _ in range(most):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return False
    return True


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


class _Walk:
    """Goes once through a schema, follows its references, mends it and counts what checking against it may cost.

    It knows keywords from the names of properties: an argument may well be called `pattern` or `$ref`.
    """

    def __init__(self, root: dict[str, Any]) -> None:
        self.notes: list[str] = []
        self._root = root
        self._open: set[int] = set()
        self._done: dict[int, int] = {}

    def work(self, node: Any) -> int:
        """How many subschemas `node` comes to, each reference counted as what it refers to."""
        if not isinstance(node, dict):
            return 1
        if id(node) not in self._done:
            self._open.add(id(node))
            self._mend(node)
            total = 1 + sum(self.work(inner) for inner in _subschemas(node))
            if "$ref" in node:
                total += self._follow(node)
            self._open.discard(id(node))
            self._done[id(node)] = total
        return self._done[id(node)]

    def _follow(self, node: dict[str, Any]) -> int:
        target = _at(self._root, node["$ref"])
        if target is None:
            note = "its schema refers to what is not in it; nothing is checked there"
        elif id(target) in self._open:
            # Checking could go on for as long as the arguments are deep, and twice as often at every level.
            note = "its schema refers to itself; below the first level nothing is checked"
        else:
            return self.work(target)
        self.notes.append(note)
        del node["$ref"]
        return 0

    def _mend(self, node: dict[str, Any]) -> None:
        for keyword in _ELSEWHERE:
            node.pop(keyword, None)
        for keyword in _WORDS:
            if keyword in node:
                words = node.pop(keyword)
                if isinstance(words, str):
                    node[keyword] = plain(words)
        patterns = node.get("patternProperties")
        if isinstance(patterns, dict):
            for pattern in [pattern for pattern in patterns if not _is_tame(pattern)]:
                self._drop_pattern(patterns, pattern)
        if isinstance(node.get("pattern"), str) and not _is_tame(node["pattern"]):
            self._drop_pattern(node, "pattern")

    def _drop_pattern(self, holder: dict[str, Any], key: str) -> None:
        del holder[key]
        self.notes.append("a pattern that could take for ever to match is not checked")


def _subschemas(node: dict[str, Any]) -> Iterator[Any]:
    yield from (node[keyword] for keyword in _ONE if keyword in node)
    for keyword in _BY_NAME:
        if isinstance(node.get(keyword), dict):
            yield from node[keyword].values()
    for keyword in _LISTED:
        if isinstance(node.get(keyword), list):
            yield from node[keyword]


def _at(root: Any, reference: Any) -> Any:
    """What a reference within the document points to; None if it is not a schema there."""
    if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
        return None
    found = root
    for part in reference.split("/")[1:]:
        key = unquote(part).replace("~1", "/").replace("~0", "~")
        if isinstance(found, dict):
            found = found.get(key)
        elif isinstance(found, list) and re.fullmatch("[0-9]{1,5}", key) and int(key) < len(found):
            found = found[int(key)]
        else:
            return None
    return found if isinstance(found, (dict, bool)) else None


def _is_tame(pattern: str) -> bool:
    """Whether a pattern matches in reasonable time: no repeated group, and at most one repetition without an end."""
    if len(pattern) > 200 or _QUANTIFIED_GROUP.search(pattern):
        return False
    return len(_UNBOUNDED.findall(pattern)) <= (2 if pattern.startswith("^") else 1)
