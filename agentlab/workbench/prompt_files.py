"""Prompts of flows in files: `<data folder>/prompts/<module>/<PROMPT_NAME>.txt` takes the place of the flow's own.

Names may be written small and with `_PROMPT` behind; files that do not end in `.txt` are the user's notes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from agentlab.core import plugins
from agentlab.core.errors import ConfigError

Modules = Mapping[str, Mapping[str, str]]
"""A flow's prompts by module and name."""


@dataclass(frozen=True)
class PromptFile:
    path: Path
    text: str
    sha256: str
    """Of the file as it stands there, as `sha256sum` prints it."""


def read_prompt_files(folder: Path, modules: Modules) -> dict[str, PromptFile]:
    """The files by the name of their prompt; raises ConfigError, in one line, for one that cannot be used."""
    found: dict[str, PromptFile] = {}
    for file in sorted(chain(folder.glob("*"), folder.glob("*/*"))):
        if file.suffix.lower() != ".txt" or not file.is_file():
            continue
        name = _prompt_of(file, folder, modules)
        if name in found:
            raise ConfigError(f"{file}: {found[name].path.name} stands for the prompt {name!r} too; keep one of them")
        found[name] = _read(file)
    return found


def file_names(modules: Modules) -> dict[str, str]:
    """The file of each prompt, as it is to be called in the folder `prompts`."""
    return {name: f"{module}/{name.upper()}.txt" for module, prompts in modules.items() for name in prompts}


def _prompt_of(file: Path, folder: Path, modules: Modules) -> str:
    if file.parent == folder:
        raise ConfigError(f"{file}: put it into the folder of its module, one of: {', '.join(sorted(modules))}")
    module, name = file.parent.name, file.stem.lower()
    if module not in modules:
        raise ConfigError(f"{file}: {plugins.unknown('module of prompts', module, modules)}")
    if name not in modules[module]:
        name = name.removesuffix("_prompt")
    if name not in modules[module]:
        raise ConfigError(f"{file}: {plugins.unknown('prompt of this module', name, modules[module])}")
    return name


def _read(file: Path) -> PromptFile:
    try:
        text = file.read_text(encoding="utf-8").strip()
        return PromptFile(file, text, hashlib.sha256(file.read_bytes()).hexdigest())
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8 text; save it as UTF-8") from None
    except OSError as problem:
        raise ConfigError(f"{file} cannot be read: {problem.strerror}") from None
