"""Fingerprints of scorers: two runs can be compared only if the same code graded them."""

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
"""Packages with the rules of scorers; their other imports are data types or third-party code."""
_PARSING = threading.Lock()
"""CPython 3.11 and 3.12 fail if two threads build syntax trees at once."""


def fingerprints(scorers: Iterable[Any], embedder_name: str) -> dict[str, str]:
    """Return scorer name -> SHA-256, in hexadecimal, over everything that decides its values.

    It covers the statements of its module, and of the modules of `PACKAGES` that it imports, transitively, with the
    YAML file beside each. Docstrings, comments, layout, imports and order do not count. It also covers the plain
    settings of a scorer object, and the embedder's name if the code calls `embed`. The value is UNKNOWN without
    source, as for a class in a notebook.
    """
    hashes = {}
    for scorer in scorers:
        module = scorer if isinstance(scorer, ModuleType) else sys.modules[_class(scorer).__module__]
        name = module.__name__.removeprefix(f"{PACKAGES[0]}.")
        if scorer is not module:
            name += f":{_class(scorer).__qualname__}"
        file = str(getattr(module, "__file__", None))
        if not file.endswith(".py"):
            hashes[name] = UNKNOWN
            continue
        sources: dict[str, tuple[list[str], bool, list[str]]] = {}
        files = [file]
        while files:
            file = files.pop()
            if file not in sources:
                sources[file] = read_source(Path(file).read_text(encoding="utf-8"))
                files += sources[file][2]
        parts: list[Any] = sorted(statement for statements, _, _ in sources.values() for statement in statements)
        tables = (Path(file).with_suffix(".yaml") for file in sources)
        parts += sorted(table.read_text(encoding="utf-8") for table in tables if table.exists())
        if any(embeds for _, embeds, _ in sources.values()):
            parts.append(["embedder", embedder_name])
        if scorer is not module:
            settings = {} if inspect.isclass(scorer) else getattr(scorer, "__dict__", {})
            plain_types = (str, int, float, bool, type(None))
            parts.append({key: value for key, value in sorted(settings.items()) if isinstance(value, plain_types)})
        hashes[name] = hashlib.sha256(json.dumps(parts).encode()).hexdigest()
    return hashes


def _class(scorer: Any) -> type[Any]:
    return scorer if inspect.isclass(scorer) else type(scorer)


@functools.lru_cache(maxsize=256)
def read_source(text: str) -> tuple[list[str], bool, list[str]]:
    """Return the statements of a module as JSON, whether it embeds, and the files of `PACKAGES` it imports.

    Cached, because scorers share modules and a run reads all of them twice.
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
    """Return the source file of a module of `PACKAGES`; None for any other name."""
    with contextlib.suppress(ModuleNotFoundError):
        spec = importlib.util.find_spec(name) if name.startswith(PACKAGES) else None
        return spec.origin if spec else None
    return None


def _canonical(node: Any) -> Any:
    """Return nested lists that are equal in every Python version; `ast.dump` changed in 3.13."""
    if isinstance(node, list):
        return [_canonical(part) for part in node if not (_is_docstring(part) or _only_imports(part))]
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = [
        [name, _canonical(value)] for name, value in ast.iter_fields(node) if value is not None and name != "kind"
    ]
    return [type(node).__name__, *(field for field in fields if field[1] != [])]


def _is_docstring(node: Any) -> bool:
    """Return True for a string statement: a docstring, or a string used as a comment."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _only_imports(node: Any) -> bool:
    """Return True for an import, or for a TYPE_CHECKING block that contains only imports."""
    if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
        return all(_only_imports(part) for part in [*node.body, *node.orelse])
    return isinstance(node, (ast.Import, ast.ImportFrom))
