"""`agentlab list`: what can be named in a spec, flows with their settings, and the runs there are."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from agentlab.cli.say import say


def list_names(arguments: argparse.Namespace) -> None:
    from agentlab.core import plugins
    from agentlab.core.errors import RunError
    from agentlab.evals.store.folder import RunFolder
    from agentlab.models import weights

    rooms = {"flows": "flows", "tools": "tools", "scorers": "evals.scorers"}
    models: dict[str, tuple[weights.Kind, str]]
    models = {"models": ("chat", "models"), "embedders": ("embedding", "models.embedders")}
    if arguments.what in rooms:
        for name, text in plugins.names(rooms[arguments.what]).items():
            say(f"{name:22} {text}")
            for setting in _settings(name) if arguments.what == "flows" else ():
                say(f"  {setting}")
    elif arguments.what in models:
        kind, room = models[arguments.what]
        for name in weights.names(kind):
            state = "here" if weights.is_present(name) else f"agentlab pull {name}"
            entry = weights.CATALOGUE[name]
            megabytes = sum(file.bytes for file in entry.files) / 1e6
            say(f"local/{name:32} {megabytes:6.0f} MB  {entry.licence}  ({state})")
        for name, text in plugins.names(room).items():
            say(f"{name + '/...':38} {text}")
    else:
        for file in sorted(Path("results").glob("*/run.json")):
            try:
                header = RunFolder.open(file.parent).header
            except RunError as problem:
                say(f"{file.parent}  cannot be read: {problem}")
                continue
            state = "complete" if (file.parent / "summary.json").exists() else "not finished"
            say(f"{file.parent}  {header.get('started')}  {header['spec']['model']}  {state}")


def _settings(flow: str) -> list[str]:
    """A line for each setting of a flow: its default, and what it does."""
    from agentlab.workbench.settings import settings_of

    rows = (
        (name, json.dumps(schema["default"]) if "default" in schema else "", schema.get("description", ""))
        for name, schema in settings_of(flow).items()
    )
    return [f"{name}: {'  '.join(part for part in (default, text) if part)}" for name, default, text in rows]
