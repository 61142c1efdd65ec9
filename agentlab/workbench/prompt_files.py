"""Prompts of flows in files: `<data folder>/prompts/<module>/<PROMPT_NAME>.txt` takes the place of the flow's own.

Names may be written small and with `_PROMPT` behind; files that do not end in `.txt` are the user's notes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path

from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.flows.text_files import existing_file


def find_prompt_files(folder: Path, modules: Mapping[str, Collection[str]]) -> dict[str, Path]:
    """The files by the name of their prompt; raises ConfigError, in one line, for one that cannot be used.

    `modules` are the names of the flow's prompts by module.
    """
    found: dict[str, Path] = {}
    for file in sorted(chain(folder.glob("*"), folder.glob("*/*"))):
        if file.suffix.lower() != ".txt" or not file.is_file():
            continue
        name = _prompt_of(file, folder, modules)
        if name in found:
            raise ConfigError(f"{file}: {found[name].name} stands for the prompt {name!r} too; keep one of them")
        try:
            found[name] = Path(existing_file(str(file)))
        except ValueError as problem:
            raise ConfigError(str(problem)) from None
    return found


def _prompt_of(file: Path, folder: Path, modules: Mapping[str, Collection[str]]) -> str:
    if file.parent == folder:
        raise ConfigError(f"{file}: put it into the folder of its module, one of: {', '.join(sorted(modules))}")
    module, name = file.parent.name, file.stem.lower()
    if module not in modules:
        raise ConfigError(f"{file}: {plugins.unknown_name('module of prompts', module, modules)}")
    name = name if name in modules[module] else name.removesuffix("_prompt")
    if name not in modules[module]:
        raise ConfigError(f"{file}: {plugins.unknown_name('prompt of this module', name, modules[module])}")
    return name
