"""Every command and every flag of the command line, each defined once.

An argument means the same in every command. A command may narrow it: another default, or a help that says more.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias, get_args

from agentlab.core.names import Mode

DEFAULT_SPEC = Path("evals/flows.yaml")
RECORDED_SPECS = Path("evals/recorded")


def count(typed: str) -> int:
    if not typed.isdecimal():
        raise argparse.ArgumentTypeError(f"expected an integer >= 0, not {typed!r}")
    return int(typed)


def limit(typed: str) -> tuple[str, float]:
    measure, _, number = typed.partition("=")
    try:
        return measure, float(number)
    except ValueError:
        raise argparse.ArgumentTypeError(f"expected measure=number, as in answer_f1=0.1, not {typed!r}") from None


Settings: TypeAlias = dict[str, Any]
"""Keywords of `argparse.ArgumentParser.add_argument`."""
REPEATED: Settings = {"action": "append", "default": []}
SWITCH: Settings = {"action": "store_true"}

ARGUMENTS: dict[str, Settings] = {
    "conversation": {"metavar": "CONVERSATION", "help": "id of a conversation"},
    "datasets": {"metavar": "DATASET", "nargs": "+", "help": "data set folders"},
    "flow": {"metavar": "FLOW", "nargs": "?", "help": "a flow, by name or file (default: chatbox)"},
    "folder": {"metavar": "FOLDER", "nargs": "?", "default": ".", "help": "the folder (default: this one)"},
    "format": {"choices": ["predictions"], "help": "answers of other systems, one per row"},
    "models": {"metavar": "MODEL", "nargs": "+", "help": "names from `agentlab list models`, or default"},
    "packs": {"metavar": "PACK", "nargs": "+", "help": "folders with predictions and published.json"},
    "path": {"metavar": "PATH", "help": "predictions.jsonl, predictions.csv, or their folder"},
    "run": {"metavar": "RUN", "help": "a run folder"},
    "runs": {"metavar": "RUN", "nargs": "+", "help": "a run folder, or two"},
    "spec": {"metavar": "SPEC", "nargs": "?", "help": f"a spec file (default: {DEFAULT_SPEC})"},
    "what": {"choices": ["flows", "models", "tools", "memory", "scorers", "prompts", "schema"], "help": "what to list"},
    "--all": {**SWITCH, "help": "show everything: every measure, more turns, whole texts"},
    "--alpha": {"type": float, "default": 0.05, "metavar": "A", "help": "rate of false alarms (default: 0.05)"},
    "--baseline": {"required": True, "metavar": "FILE", "help": "the baseline, one line per turn"},
    "--block": {"type": int, "metavar": "N", "help": "size of a prefix cache's blocks in tokens (default: 1)"},
    "--cached-share": {"type": float, "metavar": "X", "help": "share of input tokens from a cache, 0 to 1"},
    "--concurrency": {"type": int, "metavar": "N", "help": "conversations in flight"},
    "--data": {"metavar": "DIR", "help": "data folder of the flow ego"},
    "--dataset": {"action": "append", "metavar": "DIR", "help": "a data set folder; repeat for several"},
    "--decode": {"type": float, "metavar": "N", "help": "output tokens per second"},
    "--documents": {"metavar": "PATH", "help": "a corpus.jsonl, or a folder of .md, .txt and .html files"},
    "--events": {**SWITCH, "help": "print events as they happen"},
    "--executor": {
        "choices": ("processes", "dask"),
        "help": "run conversations in parallel processes or on Dask (default: in this process)",
    },
    "--epochs": {"type": int, "metavar": "K", "help": "repetitions of every conversation"},
    "--explain": {**SWITCH, "help": "show every case, with the reasons"},
    "--files": {"metavar": "FOLDER", "help": "folder for the file tools (default: a temporary folder)"},
    "--flow": {"action": "append", "metavar": "FLOW", "help": "a flow, by name or file; repeat for several"},
    "--improves": {**REPEATED, "metavar": "M", "help": "claim to test: B is better in measure M"},
    "--json": {**SWITCH, "help": "print JSON instead of tables"},
    "--junit": {"metavar": "FILE", "help": "write JUnit XML to FILE"},
    "--known-answers": {
        "type": count,
        "default": 8,
        "metavar": "N",
        "help": "control items with known verdicts (default: 8)",
    },
    "--labels": {"metavar": "FILE", "help": "human labels (CSV)"},
    "--limit": {"type": int, "metavar": "N", "help": "conversations of each data set"},
    "--looks": {"type": int, "metavar": "K", "help": "interim tests for a regression (default: 8)"},
    "--margin": {**REPEATED, "type": limit, "metavar": "M=X", "help": "loss in measure M that the gate tolerates"},
    "--markdown": {"metavar": "FILE", "help": "write the tables to FILE as Markdown"},
    "--max-loss": {
        **REPEATED,
        "type": limit,
        "metavar": "M=X",
        "help": "claim to test: B loses at most X in measure M",
    },
    "--mcp": {"metavar": "CONFIG", "help": "a JSON file of MCP servers"},
    "--memory": {"metavar": "FOLDER", "help": "folder for chat and memory (default: in AGENTLAB_HOME)"},
    "--minimum": {
        "type": int,
        "default": 0,
        "metavar": "N",
        "help": "shortest prompt in tokens that is cached (default: 0)",
    },
    "--mode": {
        "choices": get_args(Mode),
        "help": "call the model, record calls, replay them, or replay and record the missing ones (default: live)",
    },
    "--model": {"metavar": "MODEL", "help": "provider/model"},
    "--out": {"metavar": "PATH", "help": "run folder to write (default: results/<run id>)"},
    "--per-call": {"type": float, "metavar": "S", "help": "seconds per call before it reads"},
    "--prefill": {"type": float, "metavar": "N", "help": "input tokens per second"},
    "--prices": {"metavar": "FILE", "help": "a price table that overrides the one of the run"},
    "--primary": {**REPEATED, "metavar": "M", "help": "a primary measure (default: those of the run)"},
    "--recordings": {"metavar": "DIR", "help": "folder of recorded calls (default: evals/recordings)"},
    "--replace-flow": {"metavar": "FLOW", "help": "flow of the run to replace (needed with several flows)"},
    "--resume": {**SWITCH, "help": "continue the run in --out"},
    "--rubric": {"default": "correct", "metavar": "R", "help": "correct (the default), grounded, or a file"},
    "--scheduler": {"metavar": "ADDRESS", "help": "address of the Dask scheduler (default: start a local one)"},
    "--scorer": {**REPEATED, "metavar": "S", "help": "a scorer, by name or file (default: those of the run)"},
    "--sequential": {**SWITCH, "help": "run SPEC and stop as soon as the verdict is known"},
    "--set": {**REPEATED, "metavar": "KEY=VALUE", "help": "set a key of the spec, such as retrieval.top_k=8"},
    "--speaker": {"default": "", "metavar": "NAME:ID", "help": "your name, for flows that distinguish speakers"},
    "--suggest": {"type": count, "default": 0, "metavar": "N", "help": "replies to add to --labels, to be labelled"},
    "--summary": {"metavar": "FILE", "help": "append Markdown to FILE (default: $GITHUB_STEP_SUMMARY)"},
    "--timeout": {"type": float, "default": 30.0, "metavar": "S", "help": "seconds to wait for a server (default: 30)"},
    "--to": {"choices": ("csv", "parquet"), "required": True, "help": "format of the table"},
    "--trace": {**SWITCH, "help": "show every step of the flows"},
    "--turn": {"type": count, "metavar": "T", "help": "a turn, counted from 0"},
    "--update": {**SWITCH, "help": "write the baseline from this run"},
    "--workers": {"type": int, "metavar": "N", "help": "number of worker processes (default: CPU cores)"},
}


class Command(NamedTuple):
    """What runs it, as `module:function` of this package; its arguments; and the settings of those that it narrows."""

    handler: str
    arguments: str = ""
    narrowed: Mapping[str, Settings] = MappingProxyType({})


_PLAYING = "--model --epochs --concurrency --mode --recordings --out --resume --set"
"""Flags of commands that run a spec."""
_SHARDING = "--executor --workers --scheduler"

COMMANDS: dict[str, Command] = {
    "run": Command("commands:run", f"spec --flow --dataset --limit {_PLAYING} {_SHARDING} --all --events"),
    "chat": Command("chat:chat", "flow --model --memory --documents --speaker --data --mcp --files --set"),
    "compare": Command("show_commands:compare", "runs --flow --improves --max-loss --all --json"),
    "gate": Command(
        "commands:gate",
        "run --baseline --update --margin --alpha --explain --sequential --looks --junit --summary " + _PLAYING,
        {"run": {"help": "a run folder; with --sequential a spec file"}},
    ),
    "replay": Command(
        "commands:replay",
        "spec --explain --recordings --set",
        {"spec": {"nargs": "*", "help": f"spec files (default: all in {RECORDED_SPECS})"}},
    ),
    "fork": Command(
        "commands:fork",
        "run --turn --flow --replace-flow --mode --out --set",
        {
            "--turn": {"required": True, "help": "first turn to run again, counted from 0"},
            "--flow": {"action": "store", "help": "the new flow, a name or '{flow: tools, max_calls: 1}'"},
            "--mode": {
                "choices": ("auto", "replay"),
                "default": "auto",
                "help": "auto calls the model (default: auto)",
            },
        },
    ),
    "show": Command(
        "show_commands:show", "run conversation --flow --turn --trace --all", {"conversation": {"nargs": "?"}}
    ),
    "report": Command(
        "show_commands:report", "runs --out", {"--out": {"default": "run.html", "help": "the page (default: run.html)"}}
    ),
    "cost": Command(
        "show_commands:cost",
        "run --prices --model --cached-share --block --minimum --prefill --decode --per-call",
        {"--model": {"help": "price every call as this model"}},
    ),
    "memory": Command(
        "show_commands:memory",
        "run conversation --flow",
        {"--flow": {"action": "store", "help": "a flow of the run (needed if several have a memory)"}},
    ),
    "judge": Command(
        "judging:judge",
        "run --rubric --model --mode --recordings --concurrency --known-answers --labels --suggest",
        {
            "--model": {"help": "the judge (default: local/qwen2.5-coder-1.5b)"},
            "--mode": {"help": "call the judge, record, replay, or replay and record (default: auto)"},
            "--concurrency": {"default": 1, "help": "replies in flight (default: 1)"},
        },
    ),
    "export": Command(
        "show_commands:export", "run --to --out", {"--out": {"help": "the table (default: RUN.csv or RUN.parquet)"}}
    ),
    "init": Command("project:init", "folder"),
    "lint": Command("project:lint", "datasets"),
    "import": Command(
        "published:import_answers",
        "format path --out --dataset --primary",
        {
            "--out": {"help": "run folder to write (default: results/<name of PATH>)"},
            "--dataset": {"action": "store", "help": "the data set folder (default: PATH)"},
        },
    ),
    "score": Command("published:score", "run --scorer --primary --all"),
    "reproduce": Command(
        "published:reproduce", "packs --out --markdown", {"--out": {"help": "folder for the imported run (one PACK)"}}
    ),
    "list": Command("listing:list_names", "what spec --flow --mcp --data --timeout"),
    "pull": Command("project:pull", "models"),
    "doctor": Command("doctor:examine"),
}
GROUPS = {
    "compare flows": "run chat compare gate replay fork",
    "look closer": "show report cost memory judge export",
    "bring your own": "init lint import score reproduce",
    "this machine": "list pull doctor",
}
"""Commands in the order of `agentlab --help`."""
REMOVED = {
    "cache": "cost RUN",
    "convert": "run SPEC, to make the run again",
    "prompts": "list prompts",
    "reprice": "cost RUN --prices FILE",
    "schema": "list schema",
    "tools": "list tools --mcp CONFIG",
    "trace": "show RUN CONVERSATION --trace",
    "view": "report RUN",
}
"""Commands of earlier versions, each with the one that does it now."""
