"""A data set from a spreadsheet of questions and a folder of documents, for `agentlab init` and `agentlab run`."""

from __future__ import annotations

import argparse
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path, PurePath

from agentlab.cli.echo import echo
from agentlab.core.errors import ConfigError, os_errors_as
from agentlab.core.files import write_atomically
from agentlab.core.jsonl import json_lines
from agentlab.data.documents import load_documents
from agentlab.data.questions import read_questions
from agentlab.models.weights import home


def convert(arguments: argparse.Namespace) -> tuple[str, dict[str, str]] | None:
    """Return the name of the data set and its files, None without flags for own data.

    Print which column became what, and what was not taken.

    Raises ConfigError for flags without --questions, and what the readers raise.
    """
    if not any((arguments.questions, arguments.documents, arguments.column, arguments.sheet, arguments.split)):
        return None
    if arguments.questions is None:
        raise ConfigError("--documents, --column, --sheet and --split need --questions FILE, a table of questions")
    columns = dict(assignment.partition("=")[::2] for assignment in arguments.column)
    notes: list[str] = []
    documents = load_documents(arguments.documents, notes.append) if arguments.documents else ()
    questions = read_questions(
        arguments.questions, columns, sheet=arguments.sheet, split=arguments.split, documents=documents
    )
    for line in questions.lines:
        echo(line)
    if documents:
        kinds = Counter(PurePath(document.doc_id).suffix for document in documents)
        counted = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        echo(f"{arguments.documents}: {len(documents)} document{'s' * (len(documents) > 1)} ({counted})")
    for line in notes:
        echo(f"  {line}")
    files = {"conversations.jsonl": questions.conversations, "corpus.jsonl": documents}
    name = re.sub(r"\W+", "-", Path(arguments.questions).stem).strip("-") or "questions"
    return name, {file: json_lines(rows) for file, rows in files.items() if rows}


def store(name: str, files: dict[str, str]) -> Path:
    """Write a data set into AGENTLAB_HOME and return its folder; equal content has an equal folder."""
    content = hashlib.sha256(repr(sorted(files.items())).encode()).hexdigest()[:16]
    folder = home() / "datasets" / content / name
    write_files({folder / file: text.encode() for file, text in files.items()})
    return folder


def write_files(contents: Mapping[Path, bytes]) -> None:
    """Write files and their folders; raises ConfigError if that fails."""
    for path, content in contents.items():
        with os_errors_as(ConfigError, f"cannot write {path}: "):
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)
