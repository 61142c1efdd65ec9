"""Readers for the text files of a flow: prompts, and the personalities and instructions that its settings name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator

from agentlab.core.files import read_text
from agentlab.core.strict_json import load_own_yaml


def existing_file(path: str) -> str:
    """Return `path`; raise ValueError if there is no such file or it is not UTF-8."""
    try:
        read_text(Path(path))
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    except ValueError as problem:
        raise ValueError(f"{path} is {problem}") from None
    return path


TextFile = Annotated[str, AfterValidator(existing_file)]


def read_file(path: str | Path) -> str:
    return read_text(Path(path)).strip()


def read_texts(path: Path) -> dict[str, Any]:
    """Return the texts of a YAML file (prompts or lists of words) by name, or by module and name."""
    return dict(load_own_yaml(path.read_text(encoding="utf-8")))
