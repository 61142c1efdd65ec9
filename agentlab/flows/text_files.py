"""Texts of a flow that stand in files: its prompts, and what its settings name, personalities and instructions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator


def existing_file(path: str) -> str:
    """`path`; raises ValueError where there is no file, or where it is not UTF-8."""
    try:
        Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as problem:
        raise ValueError(f"{path} is not a file that can be read: {problem.strerror}") from None
    return path


TextFile = Annotated[str, AfterValidator(existing_file)]


def read_file(path: str | Path) -> str:
    return Path(path).read_text(encoding="utf-8").strip()


def read_texts(path: Path) -> dict[str, Any]:
    """The texts of a YAML file by name, or by module and name: prompts, or lists of words."""
    return dict(yaml.safe_load(path.read_text(encoding="utf-8")))
