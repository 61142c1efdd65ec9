"""Prompt files of flows: `<data folder>/prompts/<module>/<PROMPT_NAME>.txt` replaces a prompt of the flow.

Names may be lower case and end in `_PROMPT`. Files without the suffix `.txt` are ignored.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import chain
from pathlib import Path

from agentlab.core import plugins
from agentlab.core.errors import ConfigError
from agentlab.flows.text_files import existing_file


def find_prompt_files(folder: Path, modules: Mapping[str, Collection[str]]) -> dict[str, Path]:
    """Return the files by the name of their prompt; raise ConfigError in one line for an unusable file.

    `modules` maps each module to the names of its prompts.
    """
    files: dict[str, Path] = {}
    for file in sorted(chain(folder.glob("*"), folder.glob("*/*"))):
        if file.suffix.lower() != ".txt" or not file.is_file():
            continue
        name = _prompt_name(file, folder, modules)
        if name in files:
            raise ConfigError(f"{file}: {files[name].name} replaces the prompt {name!r}, too; keep one of them")
        try:
            files[name] = Path(existing_file(str(file)))
        except ValueError as problem:
            raise ConfigError(str(problem)) from None
    return files


def _prompt_name(file: Path, folder: Path, modules: Mapping[str, Collection[str]]) -> str:
    if file.parent == folder:
        raise ConfigError(f"{file}: move it into the folder of its module, one of: {', '.join(sorted(modules))}")
    module, name = file.parent.name, file.stem.lower()
    plugins.check_names("module of prompts", [module], modules, f"{file}: ")
    name = name if name in modules[module] else name.removesuffix("_prompt")
    plugins.check_names("prompt of this module", [name], modules[module], f"{file}: ")
    return name
