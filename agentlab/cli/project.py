"""Commands that need no run: `agentlab init`, `lint` and `pull`."""

from __future__ import annotations

import argparse
import json
import shlex
from pathlib import Path

from agentlab.cli.echo import echo
from agentlab.cli.options import DEFAULT_SPEC
from agentlab.cli.own_data import convert, write_files
from agentlab.cli.progress import fetch
from agentlab.core.errors import ConfigError
from agentlab.data.datasets import load_dataset
from agentlab.data.lint import lint as find_mistakes
from agentlab.data.lint import not_validated, too_few_conversations
from agentlab.knowledge.refusal import language_of
from agentlab.models import hub_files, weights

TEMPLATE = Path(__file__).parent / "template"
"""Files of a new project."""
DEFAULT_MODEL = b"local/qwen2.5-coder-0.5b"
DEFAULT_WEIGHTS = ("qwen2.5-coder-0.5b", "all-minilm-l6-v2")


def init(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    sources = [file for file in sorted(TEMPLATE.rglob("*")) if file.is_file()]
    contents = {file.relative_to(TEMPLATE): file.read_bytes() for file in sources}
    if made := convert(arguments):
        name, files = made
        contents = {path: content for path, content in contents.items() if path.parts[0] != "datasets"}
        contents |= {Path("datasets", name, file): text.encode() for file, text in files.items()}
        spec = contents[DEFAULT_SPEC].replace(b"datasets/example", f"datasets/{name}".encode())
        # The other flows of the template search documents.
        contents[DEFAULT_SPEC] = spec if len(files) > 1 else spec.replace(b"rag_only, tools", b"chatbox")
    if arguments.model:
        contents[DEFAULT_SPEC] = contents[DEFAULT_SPEC].replace(DEFAULT_MODEL, json.dumps(arguments.model).encode())
    for path in contents:
        if (folder / path).exists():
            raise ConfigError(f"{folder / path} exists; choose another folder: agentlab init FOLDER")
    write_files({folder / path: content for path, content in contents.items()})
    for path in contents:
        echo(f"wrote {folder / path}")
    echo(f"next: {'' if folder == Path() else f'cd {shlex.quote(str(folder))} && '}agentlab run")
    echo("then change my_flow.py; for your own questions see agentlab init --help")


def lint(arguments: argparse.Namespace) -> int:
    findings = 0
    for folder in arguments.datasets:
        dataset = load_dataset(folder)
        lines = find_mistakes(dataset)
        findings += len(lines)
        texts = too_few_conversations(dataset), *not_validated(dataset, language_of)
        notes = [f"note: {text}" for text in texts if text]
        total = f"{dataset.name}: {len(lines)} found in {len(dataset.conversations)} conversations"
        for line in (*lines, *notes, total):
            echo(" ".join(line.splitlines()))
    return 1 if findings else 0


def pull(arguments: argparse.Namespace) -> None:
    groups = [(name,) if name != "default" else DEFAULT_WEIGHTS for name in arguments.models]
    names = list(dict.fromkeys(name.removeprefix("local/") for group in groups for name in group))
    fetch(names)
    for name in names:
        file = hub_files.parse(name)
        if file is None:
            echo(f"{name}: {weights.home() / 'weights' / name}")
        else:
            echo(f"local/{file.name}@{hub_files.digest(file)}: {file.target}")
