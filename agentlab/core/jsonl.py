"""Reads and writes JSONL. Reading is strict, one validated row a line; errors name file, line and key."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from agentlab.core.errors import ConfigError, DatasetError, os_errors_as
from agentlab.core.events import shorten
from agentlab.core.files import iter_lines, open_regular_file
from agentlab.core.plugins import check_names, unknown_name
from agentlab.core.strict_json import parse_json

Row = TypeVar("Row", bound=BaseModel)


STRICT = ConfigDict(extra="forbid", frozen=True, strict=True)


def read_rows(file: Path, row: type[Row], unique_key: str | None = None) -> Iterator[tuple[int, Row]]:
    """Yield the rows of a file, each with its line number; raises DatasetError with file, line and key.

    `unique_key` names a key that must have another value in each line.
    """
    seen: dict[str, int] = {}
    number = 0
    failure = os_errors_as(partial(DatasetError, path=file), "cannot be read (", ")")
    try:
        # Read bytes: text mode also ends lines at characters that a JSON string may contain.
        with failure, open_regular_file(file, follow_links=False) as lines:
            for number, line in enumerate(iter_lines(lines), 1):
                if line.removeprefix(codecs.BOM_UTF8).strip():
                    parsed = _row(line, row, file, number)
                    if unique_key is not None:
                        value = getattr(parsed, unique_key)
                        if (first := seen.setdefault(value, number)) < number:
                            problem = f"{unique_key}: duplicate {value!r}; first used in line {first}"
                            raise DatasetError(problem, file, number)
                    yield number, parsed
    except ValueError as problem:
        raise DatasetError(str(problem), file, number + 1) from None


def _row(line: bytes, row: type[Row], file: Path, number: int) -> Row:
    parsed = parse_line(line, file, number)
    try:
        if b"\\ud" in line.lower():
            json.dumps(parsed, ensure_ascii=False).encode()  # UTF-8 cannot hold half a surrogate pair
        return row.model_validate(parsed)
    except ValidationError as problem:
        raise DatasetError(first_error(problem, row), file, number) from None
    except UnicodeEncodeError as problem:
        raise DatasetError(f"not usable: {str(problem)[:200]}", file, number) from None


def parse_line(line: bytes, file: Path, number: int) -> Any:
    """Return the JSON value of a line; raises DatasetError with file and line."""
    try:
        return parse_json(line)
    except UnicodeDecodeError:
        raise DatasetError("the line is not UTF-8", file, number) from None
    except json.JSONDecodeError as problem:
        raise DatasetError(f"not JSON: {problem.msg} (character {problem.pos})", file, number) from None
    except ValueError as problem:
        raise DatasetError(f"not usable: {str(problem)[:200]}", file, number) from None


def json_lines(rows: Iterable[BaseModel]) -> str:
    """Return rows as JSONL, without the keys that have their default."""
    return "".join(f"{row.model_dump_json(exclude_defaults=True)}\n" for row in rows)


def _model_in(annotation: Any) -> Any:
    """Return the pydantic model inside a type, such as Turn in list[Turn]; None if there is none."""
    if hasattr(annotation, "model_fields"):
        return annotation
    return next((model for part in get_args(annotation) if (model := _model_in(part)) is not None), None)


def first_error(problem: ValidationError, model: type[BaseModel]) -> str:
    """Return the first problem of a pydantic error in one line: location, problem, and the nearest known key."""
    first = problem.errors()[0]
    location = ".".join(shorten(str(part), 60) for part in first["loc"])
    message = " ".join(first["msg"].removeprefix("Value error, ").split())[:500]
    if first["type"] == "model_type":
        message = "not a JSON object"
    if first["type"] in ("extra_forbidden", "unexpected_keyword_argument"):
        owner: Any = model
        for part in first["loc"][:-1]:
            if isinstance(part, str):
                field = getattr(owner, "model_fields", {}).get(part)
                owner = _model_in(field.annotation) if field else None
        keys = list(getattr(owner, "model_fields", {}))
        message = unknown_name("key", str(first["loc"][-1]), keys) if keys else "unknown key"
    return f"{location}: {message}" if location else message


def validate_settings(model: Any, values: Mapping[str, Any], location: str, keys: Iterable[str] = ()) -> Any:
    """Return an instance of the class `model`, of pydantic or a dataclass, with `values`.

    Raises ConfigError that begins with `location` for an invalid value and for a key that neither `model` nor `keys`
    has.
    """
    fields = model.model_fields if hasattr(model, "model_fields") else model.__dataclass_fields__
    if getattr(model, "model_config", {}).get("extra") != "allow":
        check_names("key", values, [*keys, *fields], f"{location}: ")
    return validate(model, dict(values), location)


def validate(model: type[Row], values: Any, location: str) -> Row:
    """Return an instance of the class `model`; raises ConfigError that begins with `location` for an invalid value."""
    try:
        return TypeAdapter(model).validate_python(values)
    except ValidationError as problem:
        raise ConfigError(f"{location}: {first_error(problem, model)}") from None
