"""Finds flows, models, embedders, retrievers, memories, tools and scorers by name; nothing is registered.

A name is looked up in this order:

* a file or package of the room: `agentlab/flows/rag_only.py` is `rag_only`, `agentlab/flows/ego/` is `ego`;
* an entry point of another package, in a group such as `agentlab.flows`;
* a file or module of the user: `./my_flow.py`, `my_flow`, `package.module` or `module:attribute`.

User files are looked up from the current folder. A tool's name is the name of a function with the decorator `@tool`;
a file may contain several.
"""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Collection, Iterable
from importlib import metadata
from pathlib import Path
from types import ModuleType
from typing import Any

from agentlab.core.errors import AgentlabError, ConfigError

GROUPS = {
    "flows": ("flow", "respond"),
    "models": ("model provider", "connect"),
    "models.embedders": ("embedder provider", "connect"),
    "knowledge.retrievers": ("retriever", "open_index"),
    "memory": ("memory backend", "connect"),
    "tools": ("tool", "spec", "run"),
    "evals.scorers": ("scorer", "score", "metrics"),
}
"""Noun for a plug-in of each room, and its functions; a file that defines the first function is a plug-in."""
_TOOL = re.compile(r'^@tool\(.*?^async def (\w+).*?"""(.*?)(?:"""|\n)', re.MULTILINE | re.DOTALL)
LISTED = 40
MAX_NAME_CHARS = 200
"""Number of names in a message, and characters of a name."""


def names(room: str) -> dict[str, str]:
    """Return every name of a room with the first line of its docstring; imports nothing."""
    summaries = {name: summary for name, (_, summary) in _shipped(room).items()}
    for entry in _entry_points().select(group=f"agentlab.{room}"):
        summaries.setdefault(entry.name, f"from {entry.value}")
    return summaries


def is_shipped(room: str, name: str) -> bool:
    """Return True for a plug-in of this package."""
    return name in _shipped(room)


@functools.cache
def _shipped(room: str) -> dict[str, tuple[str, str]]:
    """Return the plug-ins of this package in a room: module and first line of the docstring, by name."""
    plugins: dict[str, tuple[str, str]] = {}
    folder = Path(__file__).parents[1].joinpath(*room.split("."))
    verb = GROUPS[room][1]
    defined = re.compile(rf'^(async )?def {verb}\b|^__all__ = .*"{verb}"', re.MULTILINE)
    for file in [*folder.glob("[a-z]*.py"), *folder.glob("[a-z]*/__init__.py")]:
        source = file.read_text(encoding="utf-8")
        name = file.parent.name if file.stem == "__init__" else file.stem
        module = f"agentlab.{room}.{name}"
        if room == "tools":
            plugins |= {tool[1]: (module, tool[2]) for tool in _TOOL.finditer(source)}
        elif defined.search(source):
            plugins[name] = module, source.removeprefix('"""').partition("\n")[0].removesuffix('"""')
    return dict(sorted(plugins.items()))


@functools.cache
def _entry_points() -> Any:
    """Return the entry points of all packages; cached, because it reads a file of every installed package."""
    return metadata.entry_points()


def resolve(room: str, name: str) -> Any:
    """Return the module or object called `name`; raises ConfigError with the nearest known name."""
    if name in (shipped := _shipped(room)):
        plugin = importlib.import_module(shipped[name][0])
        return getattr(plugin, name) if room == "tools" else plugin
    what = f"{GROUPS[room][0]} {name!r}"
    for entry in _entry_points().select(group=f"agentlab.{room}", name=name):
        return _loaded(room, what, entry.load)
    module, _, attribute = name.partition(":")
    own = Path(module if module.endswith(".py") else f"{module}.py")
    if own.is_file():
        return _loaded(room, what, lambda: load_user_file(own, attribute))
    if own.name == module or "/" in module:
        raise ConfigError(f"cannot load the {what}: there is no file {own}, seen from the current folder")
    if "." in module or attribute:
        return _loaded(room, what, lambda: _import(module, attribute))
    raise ConfigError(unknown_name(GROUPS[room][0], name, names(room)))


def resolve_provider(room: str, name: str) -> tuple[Any, str]:
    """Return the provider's module and the rest of `provider/name`; raises ConfigError as `resolve` does."""
    first, slash, rest = name.partition("/")
    if not slash or not rest:
        raise ConfigError(f"{name!r} is not a {GROUPS[room][0].split()[0]} name; it has the form provider/name")
    return resolve(room, first), rest


def default_label(name: str) -> str:
    """Return the default label: the attribute or stem of a user file, otherwise the name."""
    file, _, attribute = name.partition(":")
    return (attribute or Path(file).stem) if file.endswith(".py") else name


def load_user_file(file: Path, attribute: str = "") -> Any:
    """Execute a file of the user again, so that edits take effect; it may import files beside it."""
    _make_importable(file.parent)
    name = f"own:{file.stem}"  # replaces no other module
    module = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, None, origin=str(file)))
    module.__file__ = str(file)
    sys.modules[name] = module
    exec(compile(file.read_bytes(), file, "exec"), vars(module))  # noqa: S102 - it is the user's own code
    return getattr(module, attribute) if attribute else module


def _make_importable(folder: Path) -> None:
    if (path := str(folder.resolve())) not in sys.path:
        sys.path.append(path)


def _import(module: str, attribute: str) -> Any:
    _make_importable(Path())
    imported: ModuleType = importlib.import_module(module)
    return getattr(imported, attribute) if attribute else imported


def _loaded(room: str, what: str, load: Callable[[], Any]) -> Any:
    try:
        plugin = load()
    except AgentlabError:
        raise
    except (ImportError, AttributeError, SyntaxError) as problem:
        raise ConfigError(f"cannot load the {what}: {problem}") from None
    except Exception as problem:
        frame = traceback.extract_tb(problem.__traceback__)[-1]
        raise ConfigError(
            f"cannot load the {what}: {type(problem).__name__}: {problem} ({Path(frame.filename).name}:{frame.lineno})"
        ) from None
    # A flow or a retriever may also be a function; its room validates it.
    for verb in () if room in ("flows", "knowledge.retrievers") else GROUPS[room][1:]:
        if not hasattr(plugin, verb):
            raise ConfigError(f"cannot use the {what}: it has no `{verb}`")
    return plugin


def check_names(
    what: str, given: Iterable[str], names: Collection[str], location: str = "", kind: type[AgentlabError] = ConfigError
) -> None:
    """Raise `kind`, in a line that begins with `location`, for the first of the `given` names that is none of `names`.

    The line has the nearest name.
    """
    for name in given:
        if name not in names:
            raise kind(f"{location}{unknown_name(what, name, names)}")


def unknown_name(what: str, name: str, names: Iterable[str]) -> str:
    """Return one line for a name that does not exist: the nearest name and all known ones."""
    ordered = sorted(names)
    near = difflib.get_close_matches(name, ordered, n=1)
    hint = f" Did you mean {near[0]!r}?" if near else ""
    listed = [other if other.isprintable() else repr(other) for other in ordered[:LISTED]]
    rest = [f"and {len(ordered) - LISTED} more"] if len(ordered) > LISTED else []
    quoted = repr(name) if len(name) <= MAX_NAME_CHARS else f"{name[:MAX_NAME_CHARS]!r}..."
    return f"unknown {what} {quoted}.{hint} Known: {', '.join([*listed, *rest])}"
