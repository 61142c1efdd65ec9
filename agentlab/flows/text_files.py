"""Texts of a flow that stand in files: its prompts, and what its settings name, personalities and instructions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator

from agentlab.core.files import read_text


def existing_file(path: str) -> str:
    """`path`; raises ValueError where there is no file, or where it is not UTF-8."""
    try:
        read_text(Path(path))
    except OSError as problem:
        raise ValueError(f"{path} is not a file that can be read: {problem.strerror}") from None
    except ValueError as problem:
        raise ValueError(f"{path} is {problem}") from None
    return path


TextFile = Annotated[str, AfterValidator(existing_file)]


def read_file(path: str | Path) -> str:
    return read_text(Path(path)).strip()


def read_texts(path: Path) -> dict[str, Any]:
    """The texts of a YAML file by name, or by module and name: prompts, or lists of words."""
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
