"""Texts of a flow that stand in files which its settings name: personalities and instructions."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator


def existing_file(path: str) -> str:
    """`path`; raises ValueError where there is no file, or where it is not UTF-8."""
    if not Path(path).is_file():
        raise ValueError(f"{path} is not a file")
    try:
        Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise ValueError(f"{path} is not UTF-8 text; save it as UTF-8") from None
    except OSError as problem:
        raise ValueError(f"{path} cannot be read: {problem.strerror}") from None
    return path


TextFile = Annotated[str, AfterValidator(existing_file)]


def read_file(path: str | Path) -> str:
    return Path(path).read_text(encoding="utf-8").strip()
