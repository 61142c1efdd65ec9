"""agentlab replays the same conversations through several LLM flows and compares their cost and quality.

import agentlab as al

lab = al.Lab("evals/flows.yaml", limit=2)
run = lab.run_sync()            # in a notebook: run = await lab.run()
run.table()

Rooms, in the order of imports; each `__init__` lists its files:

core         messages, events, traces, errors, files, prices
session      the verbs that a flow calls       wire         calls, recordings, rate limits
data         data sets and lint                knowledge    passages, indexes, citations
models       model providers and embedders     memory       memory backends
tools        built-in tools, MCP               flows        the flows
workbench    specs, variants, turns            evals        runs, scorers, comparison, gate, report
lab          `Lab`, `Chat` and `Run`           cli, notebook    command line, widgets
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any

from agentlab.core.version import __version__ as __version__

# The stub lists every public name once: type checkers read it, and Python finds the module of a name in it.
_STUB = Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")
_MODULES = {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", _STUB, re.MULTILINE)}
__all__ = [*_MODULES]


def __getattr__(name: str) -> Any:
    # `agentlab --help` must not wait for pydantic and numpy, so a name is loaded on first use.
    if name not in _MODULES:
        raise AttributeError(f"module 'agentlab' has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return __all__
