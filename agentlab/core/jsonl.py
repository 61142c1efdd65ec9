"""Strict JSONL, a row of one shape a line: what cannot be read is an error that names file, line and key."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from agentlab.core.errors import DatasetError
from agentlab.core.events import shorten
from agentlab.core.files import iter_lines, open_regular_file
from agentlab.core.plugins import unknown_name
from agentlab.core.strict_json import parse_json

Row = TypeVar("Row", bound=BaseModel)


STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)


def read_rows(file: Path, row: type[Row], unique_key: str | None = None) -> Iterator[tuple[int, Row]]:
    """The lines of a file, each with its number; raises DatasetError naming file, line and key.

    `distinct` is a key under which no two lines may have the same text.
    """
    seen: dict[str, int] = {}
    number = 0
    try:
        # Bytes, because text mode would also end lines at characters that may stand inside a JSON string.
        with open_regular_file(file, follow_links=False) as lines:
            for number, line in enumerate(iter_lines(lines), 1):
                if line.removeprefix(codecs.BOM_UTF8).strip():
                    read = _row(line, row, file, number)
                    if (
                        unique_key is not None
                        and (first := seen.setdefault(getattr(read, unique_key), number)) < number
                    ):
                        problem = f"{unique_key}: {getattr(read, unique_key)!r} stands in line {first} too"
                        raise DatasetError(problem, file, number)
                    yield number, read
    except OSError as error:
        raise DatasetError(f"cannot be read ({error.strerror or error})", file) from error
    except ValueError as problem:
        raise DatasetError(str(problem), file, number + 1) from None


def _row(line: bytes, row: type[Row], file: Path, number: int) -> Row:
    parsed = parse_line(line, file, number)
    try:
        if b"\\ud" in line.lower():
            json.dumps(parsed, ensure_ascii=False).encode()  # half a surrogate pair cannot be written down again
        return row.model_validate(parsed)
    except ValidationError as problem:
        raise DatasetError(first_error(problem, row), file, number) from None
    except UnicodeEncodeError as problem:
        raise DatasetError(f"not usable: {str(problem)[:200]}", file, number) from None


def parse_line(line: bytes, file: Path, number: int) -> Any:
    """The JSON of a line; raises DatasetError."""
    try:
        return parse_json(line)
    except UnicodeDecodeError:
        raise DatasetError("the line is not UTF-8", file, number) from None
    except json.JSONDecodeError as problem:
        raise DatasetError(f"not JSON: {problem.msg} (character {problem.pos})", file, number) from None
    except ValueError as problem:
        raise DatasetError(f"not usable: {str(problem)[:200]}", file, number) from None


def _model_in(annotation: Any) -> Any:
    """The model that stands in a type, such as Turn in list[Turn]; None without one."""
    if hasattr(annotation, "model_fields"):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)


def first_error(problem: ValidationError, model: type[BaseModel]) -> str:
    """The first problem of a pydantic error in one line: where, what, and the nearest known key."""
    first = problem.errors()[0]
    where = ".".join(shorten(str(part), 60) for part in first["loc"])
    message = " ".join(first["msg"].removeprefix("Value error, ").split())[:500]
    if first["type"] == "model_type":
        message = "not a JSON object"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        owner: Any = model
        for part in first["loc"][:-1]:
            if isinstance(part, str):
                field = getattr(owner, "model_fields", {}).get(part)
                owner = _model_in(field.annotation) if field else None
        known = list(getattr(owner, "model_fields", {}))
        message = unknown_name("key", str(first["loc"][-1]), known) if known else "unknown key"
    return f"{where}: {message}" if where else message
