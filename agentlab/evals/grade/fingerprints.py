"""What graded a run, as hashes: two runs can be compared only where the same code gave the scores."""

from __future__ import annotations

import ast
import contextlib
import functools
import hashlib
import importlib.util
import inspect
import json
import sys
import threading
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import Any

from agentlab.evals.store.rows import UNKNOWN

PACKAGES = ("agentlab.evals.scorers", "agentlab.evals.published.bleu", "agentlab.knowledge")
"""Where a scorer's rules live. What else it imports is data types, or not ours."""
_PARSING = threading.Lock()
"""CPython 3.11 and 3.12 fail where two threads build syntax trees at once."""


def fingerprints(scorers: Iterable[Any], embedder_name: str) -> dict[str, str]:
    """The scorer's name -> SHA-256 over what decides its values, in hexadecimal.

    That is what its module and the modules of `PACKAGES` it imports, transitively, do: their statements, without
    docstrings, comments, layout and import lines, and wherever they stand; its plain settings, where it is an object;
    the embedder's name, where the code calls `embed`.
    `UNKNOWN` stands where the source is not at hand, as of a class typed into a notebook.
    """
    found = {}
    for scorer in scorers:
        module = scorer if isinstance(scorer, ModuleType) else sys.modules[_class(scorer).__module__]
        name = module.__name__.removeprefix(f"{PACKAGES[0]}.")
        if scorer is not module:
            name += f":{_class(scorer).__qualname__}"
        file = str(getattr(module, "__file__", None))
        if not file.endswith(".py"):
            found[name] = UNKNOWN
            continue
        sources: dict[str, tuple[list[str], bool, list[str]]] = {}
        waiting = [file]
        while waiting:
            file = waiting.pop()
            if file not in sources:
                sources[file] = read_source(Path(file).read_text(encoding="utf-8"))
                waiting += sources[file][2]
        parts: list[Any] = sorted(statement for statements, _, _ in sources.values() for statement in statements)
        if any(embeds for _, embeds, _ in sources.values()):
            parts.append(["embedder", embedder_name])
        if scorer is not module:
            settings = {} if inspect.isclass(scorer) else getattr(scorer, "__dict__", {})
            plain = (str, int, float, bool, type(None))
            parts.append({key: value for key, value in sorted(settings.items()) if isinstance(value, plain)})
        found[name] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return found


def _class(scorer: Any) -> type[Any]:
    return scorer if inspect.isclass(scorer) else type(scorer)


@functools.lru_cache(maxsize=256)
def read_source(text: str) -> tuple[list[str], bool, list[str]]:
    """What a module defines and does, each piece as JSON; whether it embeds; the files of `PACKAGES` it imports.

    Kept, because scorers share modules, and a run asks for all of them twice.
    """
    with _PARSING:
        tree = ast.parse(text)
    nodes = list(ast.walk(tree))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            names += [str(node.module), *(f"{node.module}.{alias.name}" for alias in node.names)]
    statements = [json.dumps(statement) for statement in _canonical(tree.body)]
    embeds = any(getattr(node, "attr", None) == "embed" for node in nodes)
    return statements, embeds, [file for file in map(_file, names) if file]


def _file(name: str) -> str | None:
    """The source file of a module of `PACKAGES`; None where the name is none."""
    with contextlib.suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec(name) if name.startswith(PACKAGES) else None
        return spec.origin if spec else None
    return None


def _canonical(node: Any) -> Any:
    """Nested lists that any Python version makes alike; `ast.dump` writes the same code differently from 3.13 on."""
    if isinstance(node, list):
        return [_canonical(part) for part in node if not (_is_docstring(part) or _only_imports(part))]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [
        [name, _canonical(value)] for name, value in ast.iter_fields(node) if value is not None and name != "kind"
    ]
    return [type(node).__name__, *(field for field in fields if field[1] != [])]


def _is_docstring(node: Any) -> bool:
    """A string that stands alone: a docstring, or as good as a comment."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _only_imports(node: Any) -> bool:
    """An import, or a block of them for the type checker: where names come from, not what is done with them."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return all(_only_imports(part) for part in [*node.body, *node.orelse])
    return isinstance(node, (ast.Import, ast.ImportFrom))
