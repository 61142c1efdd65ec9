"""`agentlab doctor`: list installed and missing parts, one line each, with the remedy."""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from urllib.parse import urlsplit

from agentlab.cli.echo import echo
from agentlab.core.errors import ConfigError
from agentlab.models import hub_files, weights
from agentlab.models.keys import load_keys
from agentlab.models.local.trial import stored_trials

FOR_DEVELOPERS = ("all", "browser", "dev", "docs")
"""Extras that users do not need."""
KEYS = {"openai": ("OPENAI_API_KEY",), "gemini": ("GEMINI_API_KEY", "GOOGLE_API_KEY")}
MIN_FREE_BYTES = 3e9


def examine(arguments: argparse.Namespace) -> int:
    """Print the list; return 1 if the default run cannot work on this machine, else 0."""
    healthy = True
    for good, line in _findings():
        echo(f"{'ok ' if good else 'NO ' if good is False else '-- '} {line}")
        healthy = healthy and good is not False
    return 0 if healthy else 1


def _findings() -> Iterator[tuple[bool | None, str]]:
    version = ".".join(map(str, sys.version_info[:3]))
    yield sys.version_info >= (3, 11), f"Python {version} (3.11 or newer is needed)"
    missing = _missing_packages()
    needed = ", ".join(missing.pop("", ()))
    yield not needed, f"packages: {f'missing {needed}' if needed else 'complete'}"
    for extra, packages in missing.items():
        yield None, f"extra not installed: {', '.join(packages)} (pip install 'agentlab-harness[{extra}]')"
    home = weights.home()
    existing = home if home.exists() else home.parent if home.parent.exists() else home.anchor
    free = shutil.disk_usage(existing).free
    yield free > MIN_FREE_BYTES, f"AGENTLAB_HOME {home}, {free / 1e9:.0f} GB free"
    own_model = os.environ.get("AGENTLAB_LOCAL_MODEL")
    if own_model:
        yield Path(own_model).is_file(), f"AGENTLAB_LOCAL_MODEL {own_model}"
    for name in weights.names():
        present = weights.is_present(name)
        yield present or None, f"weights {name}: {'installed' if present else f'missing (agentlab pull {name})'}"
    for file, sha256 in hub_files.files_here():
        yield True, f"weights {file.name}: installed, SHA-256 {sha256}"
    for trial in stored_trials():
        yield None, f"trial of {trial.name}: {trial}"
    for provider, variables in KEYS.items():
        yield _keys(provider, variables)
    base_url = os.environ.get("OPENAI_BASE_URL")
    if base_url:
        address = urlsplit(base_url)._replace(netloc=urlsplit(base_url).netloc.rpartition("@")[2]).geturl()
        yield _accepts_connections(base_url), f"OPENAI_BASE_URL {address}"


def _missing_packages() -> dict[str, list[str]]:
    """Return the packages that are not installed by the extra that needs them; "" for the default."""
    installed = {str(each.name).lower().replace("_", "-") for each in metadata.distributions()}
    missing: dict[str, list[str]] = {}
    for requirement in metadata.requires("agentlab-harness") or ():
        name, marker = re.split(r"[^\w.-]", requirement, maxsplit=1)[0], requirement.partition("extra == ")[2]
        if name not in installed and (extra := marker.strip("'\"")) not in FOR_DEVELOPERS:
            missing.setdefault(extra, []).append(name)
    return missing


def _keys(provider: str, variables: tuple[str, ...]) -> tuple[bool | None, str]:
    for variable in variables:
        if os.environ.get(variable):
            return None, f"{variable}: set"
    try:
        count = len(load_keys(provider, variables[0]))
    except ConfigError as problem:
        return False, str(problem)
    return None, f"{variables[0]}: {f'{count} in the key file' if count else 'not set'}"


def _accepts_connections(url: str) -> bool:
    import socket

    parts = urlsplit(url)
    try:
        port = parts.port or (443 if parts.scheme == "https" else 80)
        with socket.create_connection((parts.hostname or "", port), timeout=2):
            return True
    except (OSError, ValueError):
        return False
