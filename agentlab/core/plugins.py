"""Finds flows, models, embedders, tools and scorers by name; no registry is edited.

A name is looked up as a file or package of the room (`agentlab/flows/rag_only.py` is `rag_only`, `agentlab/flows/ego/`
is `ego`), then as an entry point that another package declares (group `agentlab.flows`), then as `module` or
`module:attribute`, where the current folder counts; `my_flow` and `./my_flow.py` name a file of one's own there. Tools
stand several to a file: there the name is that of a function with the decorator `@tool`.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from agentlab.core.errors import AgentlabError, ConfigError

GROUPS = {
    "flows": ("flow", "respond"),
    "models": ("model provider", "connect"),
    "models.embedders": ("embedder provider", "connect"),
    "memory": ("memory backend", "connect"),
    "tools": ("tool", "spec", "run"),
    "evals.scorers": ("scorer", "score", "metrics"),
}
"""The name of a thing of the room, and what it can do; the file of the room is known by the first of that."""
_TOOL = re.compile(r'^@tool\(.*?^async def (\w+).*?"""(.*?)(?:"""|\n)', re.MULTILINE | re.DOTALL)
LISTED = 40
MAX_NAME_CHARS = 200
"""Names in a message, and characters of one."""


def names(room: str) -> dict[str, str]:
    """Every name in a room with the first line of its docstring; nothing is imported."""
    found = {name: summary for name, (_, summary) in _ours(room).items()}
    for entry in _entry_points().select(group=f"agentlab.{room}"):
        found.setdefault(entry.name, f"from {entry.value}")
    return found


@functools.cache
def _ours(room: str) -> dict[str, tuple[str, str]]:
    """What we have in a room: the module it stands in, and the first line of its docstring."""
    found: dict[str, tuple[str, str]] = {}
    folder = Path(__file__).parents[1].joinpath(*room.split("."))
    verb = GROUPS[room][1]
    defined = re.compile(rf'^(async )?def {verb}\b|^__all__ = .*"{verb}"', re.MULTILINE)
    for file in [*folder.glob("[a-z]*.py"), *folder.glob("[a-z]*/__init__.py")]:
        source = file.read_text(encoding="utf-8")
        name = file.parent.name if file.stem == "__init__" else file.stem
        module = f"agentlab.{room}.{name}"
        if room == "tools":
            found |= {tool[1]: (module, tool[2]) for tool in _TOOL.finditer(source)}
        elif defined.search(source):
            found[name] = module, source.removeprefix('"""').partition("\n")[0].removesuffix('"""')
    return dict(sorted(found.items()))


@functools.cache
def _entry_points() -> Any:
    """What other packages declare; looked for once, because that reads a file of every package that is installed."""
    return metadata.entry_points()


def resolve(room: str, name: str) -> Any:
    """The module or object called `name`; raises ConfigError with the nearest known name."""
    if name in (ours := _ours(room)):
        found = importlib.import_module(ours[name][0])
        return getattr(found, name) if room == "tools" else found
    what = f"{GROUPS[room][0]} {name!r}"
    for entry in _entry_points().select(group=f"agentlab.{room}", name=name):
        return _loaded(room, what, entry.load)
    module, _, attribute = name.partition(":")
    own = Path(module if module.endswith(".py") else f"{module}.py")
    if own.is_file():
        return _loaded(room, what, lambda: _load_user_file(own, attribute))
    if own.name == module or "/" in module:
        raise ConfigError(f"cannot load the {what}: there is no file {own}, seen from the current folder")
    if "." in module or attribute:
        return _loaded(room, what, lambda: _import(module, attribute))
    raise ConfigError(unknown_name(GROUPS[room][0], name, names(room)))


def resolve_provider(room: str, name: str) -> tuple[Any, str]:
    """The module behind the first part of `provider/name`, and the rest; raises ConfigError as `resolve` does."""
    first, slash, rest = name.partition("/")
    if not slash or not rest:
        raise ConfigError(f"{name!r} is not a {GROUPS[room][0].split()[0]} name; it has the form provider/name")
    return resolve(room, first), rest


def default_label(name: str) -> str:
    """What results call a thing named so: a file of one's own goes by its stem, or by the attribute that was named."""
    file, _, attribute = name.partition(":")
    return (attribute or Path(file).stem) if file.endswith(".py") else name


def _load_user_file(file: Path, attribute: str) -> Any:
    """Run a file of the user's anew, so that what was changed since counts; it may import what stands beside it."""
    _make_importable(file.parent)
    name = f"own:{file.stem}"  # in no other module's place
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, None, origin=str(file)))
    module.__file__ = str(file)
    sys.modules[name] = module
    exec(compile(file.read_bytes(), file, "exec"), vars(module))  # noqa: S102 - it is the user's own code
    return getattr(module, attribute) if attribute else module


def _make_importable(folder: Path) -> None:
    if (place := str(folder.resolve())) not in sys.path:
        sys.path.append(place)


def _import(module: str, attribute: str) -> Any:
    _make_importable(Path())
    found: ModuleType = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found


def _loaded(room: str, what: str, load: Callable[[], Any]) -> Any:
    try:
        found = load()
    except AgentlabError:
        raise
    except (ImportError, AttributeError, SyntaxError) as problem:
        raise ConfigError(f"cannot load the {what}: {problem}") from None
    except Exception as problem:
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        raise ConfigError(
            f"cannot load the {what}: {type(problem).__name__}: {problem} ({Path(frame.filename).name}:{frame.lineno})"
        ) from None
    # A flow may be a function, too; who plays it looks closer.
    for verb in () if room == "flows" else GROUPS[room][1:]:
        if not hasattr(found, verb):
            raise ConfigError(f"cannot use the {what}: it has no `{verb}`")
    return found


def unknown_name(what: str, name: str, known: Iterable[str]) -> str:
    """One line for a name that does not exist: what it could have been, and what there is."""
    known = sorted(known)
    near = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = [other if other.isprintable() else repr(other) for other in known[:LISTED]]
    more = [f"and {len(known) - LISTED} more"] if len(known) > LISTED else []
    asked = repr(name) if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]!r}..."
    return f"unknown {what} {asked}.{hint} Known: {', '.join([*listed, *more])}"
