"""Commands that need no run: `agentlab init`, `lint` and `pull`."""

from __future__ import annotations

import argparse
from pathlib import Path

from agentlab.cli.echo import echo
from agentlab.cli.progress import fetch
from agentlab.core.errors import ConfigError, os_errors_as
from agentlab.data.datasets import load_dataset
from agentlab.data.lint import lint as find_mistakes
from agentlab.data.lint import too_few_conversations
from agentlab.models import hub_files, weights

TEMPLATE = Path(__file__).parent / "template"
"""Files of a new project."""
DEFAULT_WEIGHTS = ("qwen2.5-coder-0.5b", "all-minilm-l6-v2")


def init(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    sources = [file for file in sorted(TEMPLATE.rglob("*")) if file.is_file()]
    contents = {folder / file.relative_to(TEMPLATE): file.read_bytes() for file in sources}
    for path in contents:
        if path.exists():
            raise ConfigError(f"{path} exists; choose another folder: agentlab init FOLDER")
    with os_errors_as(ConfigError, f"cannot write to {folder}: "):
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    for path in contents:
        echo(f"wrote {path}")
    echo("next: agentlab run; then change my_flow.py, and put your own questions into datasets/example")


def lint(arguments: argparse.Namespace) -> int:
    findings = 0
    for folder in arguments.datasets:
        dataset = load_dataset(folder)
        lines = find_mistakes(dataset)
        findings += len(lines)
        notes = [f"note: {too_small}"] if (too_small := too_few_conversations(dataset)) else []
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
