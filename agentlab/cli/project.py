"""`agentlab init`: a project of the user's own: a spec, a data set small enough to replace, a workflow for CI."""

from __future__ import annotations

from pathlib import Path

from agentlab.core.errors import ConfigError

TEMPLATE = Path(__file__).parent / "template"
"""The files of a new project, each where it will stand."""


def create(folder: Path) -> list[Path]:
    """Write the files and return them; raises ConfigError, and writes nothing, where one of them is there already."""
    sources = [file for file in sorted(TEMPLATE.rglob("*")) if file.is_file()]
    contents = {folder / file.relative_to(TEMPLATE): file.read_bytes() for file in sources}
    for path in contents:
        if path.exists():
            raise ConfigError(f"{path} is there already; choose another folder: agentlab init FOLDER")
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as problem:
        raise ConfigError(f"cannot write to {folder}: {problem.strerror}") from None
    return list(contents)
