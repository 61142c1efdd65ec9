"""Commands and flags of the command line, each defined once.

An argument has one meaning in every command; `NARROWED` gives it another default or a longer help in one command.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypeAlias, get_args

from agentlab.core.constants import Mode

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
"""Keyword arguments of `argparse.ArgumentParser.add_argument`."""
REPEATED: Settings = {"action": "append", "default": []}
LIMITS: Settings = {**REPEATED, "type": limit, "metavar": "M=X"}
SWITCH: Settings = {"action": "store_true"}

ARGUMENTS: dict[str, Settings] = {
    "conversation": {"metavar": "CONVERSATION", "help": "id of a conversation"},
    "datasets": {"metavar": "DATASET", "nargs": "+", "help": "data set folders"},
    "flow": {"metavar": "FLOW", "nargs": "?", "help": "flow, name or file (default: chatbox)"},
    "folder": {"metavar": "FOLDER", "nargs": "?", "default": ".", "help": "a folder (default: the current one)"},
    "format": {"choices": ["predictions"], "help": "answers of other systems, one per row"},
    "models": {"metavar": "MODEL", "nargs": "+", "help": "names from `agentlab list models`, or default"},
    "packs": {"metavar": "PACK", "nargs": "+", "help": "folders with predictions and published.json"},
    "path": {"metavar": "PATH", "help": "predictions.jsonl, predictions.csv, or their folder"},
    "run": {"metavar": "RUN", "help": "a run folder"},
    "runs": {"metavar": "RUN", "nargs": "+", "help": "a run folder, or two"},
    "spec": {"metavar": "SPEC", "nargs": "?", "help": f"a spec file (default: {DEFAULT_SPEC})"},
    "what": {
        "choices": ["flows", "models", "tools", "memory", "retrievers", "scorers", "prompts", "schema"],
        "metavar": "WHAT",
        "help": "flows, models, tools, memory, retrievers, scorers, prompts or schema",
    },
    "--all": {**SWITCH, "help": "show everything: every measure, more turns, full texts"},
    "--alpha": {"type": float, "default": 0.05, "metavar": "A", "help": "rate of false alarms (default: 0.05)"},
    "--baseline": {"required": True, "metavar": "FILE", "help": "the baseline, one line per turn"},
    "--block": {"type": int, "metavar": "N", "help": "size of a prefix cache's blocks in tokens (default: 1)"},
    "--cached-share": {"type": float, "metavar": "X", "help": "share of input tokens from a cache, 0 to 1"},
    "--column": {**REPEATED, "metavar": "MEANING=NAME", "help": "column of the questions, such as user=Frage"},
    "--concurrency": {"type": int, "metavar": "N", "help": "conversations to run at the same time"},
    "--data": {"metavar": "DIR", "help": "data folder of the flow ego"},
    "--dataset": {"action": "append", "metavar": "DIR", "help": "a data set folder; repeat for several"},
    "--decode": {"type": float, "metavar": "N", "help": "output tokens per second"},
    "--documents": {"metavar": "PATH", "help": "a corpus.jsonl, or a folder of .md, .txt, .html, .docx, .pdf files"},
    "--events": {**SWITCH, "help": "print events as they happen"},
    "--executor": {"choices": ("processes", "dask"), "help": "run in parallel (default: in this process)"},
    "--epochs": {"type": int, "metavar": "K", "help": "repetitions of every conversation"},
    "--explain": {**SWITCH, "help": "show every case, with the reasons"},
    "--files": {"metavar": "FOLDER", "help": "folder for the file tools (default: a temporary folder)"},
    "--flow": {"action": "append", "metavar": "FLOW", "help": "a flow, by name or file; repeat for several"},
    "--gates": {"type": int, "default": 5, "metavar": "G", "help": "with --update: gates that share alpha (5)"},
    "--improves": {**REPEATED, "metavar": "M", "help": "claim to test: B is better in measure M"},
    "--json": {**SWITCH, "help": "print JSON instead of tables"},
    "--junit": {"metavar": "FILE", "help": "write JUnit XML to FILE"},
    "--keep-failures": {**SWITCH, "help": "with --resume, keep turns that failed at the provider"},
    "--known-answers": {"type": count, "default": 8, "metavar": "N", "help": "control replies to judge (default: 8)"},
    "--labels": {"metavar": "FILE", "help": "human labels (CSV)"},
    "--limit": {"type": int, "metavar": "N", "help": "conversations to take from each data set"},
    "--looks": {"type": int, "metavar": "K", "help": "interim tests for a regression (default: 8)"},
    "--margin": {**LIMITS, "help": "loss in measure M that the gate tolerates"},
    "--markdown": {"metavar": "FILE", "help": "write the tables to FILE as Markdown"},
    "--max-loss": {**LIMITS, "help": "claim to test: B loses at most X in measure M"},
    "--mcp": {"metavar": "CONFIG", "help": "a JSON file of MCP servers"},
    "--memory": {"metavar": "FOLDER", "help": "folder for chat and memory (default: in AGENTLAB_HOME)"},
    "--minimum": {"type": int, "default": 0, "metavar": "N", "help": "shortest cached prefix, in tokens (default: 0)"},
    "--mode": {"choices": get_args(Mode), "help": "live (default), record, replay, or auto (replay, else record)"},
    "--model": {"metavar": "MODEL", "help": "provider/model"},
    "--out": {"metavar": "PATH", "help": "run folder to write (default: results/<run id>)"},
    "--per-call": {"type": float, "metavar": "S", "help": "seconds per call before it reads"},
    "--prefill": {"type": float, "metavar": "N", "help": "input tokens per second"},
    "--prices": {"metavar": "FILE", "help": "a price table that overrides the one of the run"},
    "--primary": {**REPEATED, "metavar": "M", "help": "a primary measure (default: those of the run)"},
    "--questions": {"metavar": "FILE", "help": "a table of questions: CSV, TSV, XLSX, JSON or JSON lines"},
    "--recordings": {"metavar": "DIR", "help": "folder of recorded calls (default: evals/recordings)"},
    "--replace-flow": {"metavar": "FLOW", "help": "flow of the run to replace (needed with several flows)"},
    "--resume": {**SWITCH, "help": "continue the run in --out"},
    "--rubric": {"default": "correct", "metavar": "R", "help": "correct (the default), grounded, or a file"},
    "--scheduler": {"metavar": "ADDRESS", "help": "address of the Dask scheduler (default: start a local one)"},
    "--scorer": {**REPEATED, "metavar": "S", "help": "a scorer, by name or file (default: those of the run)"},
    "--sequential": {**SWITCH, "help": "run SPEC and stop as soon as the verdict is known"},
    "--set": {**REPEATED, "metavar": "KEY=VALUE", "help": "set a key of the spec, such as retrieval.top_k=8"},
    "--spec": {"metavar": "FILE", "help": "a spec file with the flows and settings of the chat"},
    "--sheet": {"metavar": "NAME", "help": "sheet of a workbook (default: the one that looks like questions)"},
    "--speaker": {"default": "", "metavar": "NAME:ID", "help": "your name, for flows that distinguish speakers"},
    "--split": {"metavar": "SIGN", "help": "sign between answers in a cell, or none (default: as the file does)"},
    "--suggest": {"type": count, "default": 0, "metavar": "N", "help": "replies to add to --labels, to be labelled"},
    "--summary": {"metavar": "FILE", "help": "append Markdown to FILE (default: $GITHUB_STEP_SUMMARY)"},
    "--timeout": {"type": float, "default": 30.0, "metavar": "S", "help": "seconds to wait for a server (default: 30)"},
    "--to": {"choices": ("csv", "parquet"), "required": True, "help": "format of the table"},
    "--trace": {**SWITCH, "help": "show every step of the flows"},
    "--turn": {"type": count, "metavar": "T", "help": "a turn, counted from 1"},
    "--undecided": {**SWITCH, "help": "judge only the replies that answer_correctness leaves undecided"},
    "--update": {**SWITCH, "help": "write the baseline from this run"},
    "--workers": {"type": int, "metavar": "N", "help": "number of worker processes (default: CPU cores)"},
}

_PLAYING = "--model --epochs --concurrency --mode --recordings --out --resume --set"
_OWN_DATA = "--questions --documents --column --sheet --split"
_DATA = f"--dataset {_OWN_DATA}"
_GATING = "--baseline --update --gates --margin --alpha --explain --sequential --looks"
_SHARDING = "--executor --workers --scheduler"
_SPEEDS = "--cached-share --block --minimum --prefill --decode --per-call"
_LABELLING = "--known-answers --undecided --labels --suggest"

COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("commands:run", f"spec --flow {_DATA} --limit {_PLAYING} --keep-failures {_SHARDING} --all --events"),
    "chat": ("chat:chat", "flow --spec --model --memory --documents --speaker --data --mcp --files --set"),
    "compare": ("show_commands:compare", "runs --flow --improves --max-loss --all --json"),
    "gate": ("commands:gate", f"run {_GATING} {_PLAYING} --junit --summary"),
    "replay": ("commands:replay", "spec --explain --recordings --set"),
    "fork": ("commands:fork", "run --turn --flow --replace-flow --mode --out --set"),
    "show": ("show_commands:show", "run conversation --flow --turn --trace --all"),
    "report": ("show_commands:report", "runs --out"),
    "cost": ("show_commands:cost", f"run --prices --model {_SPEEDS}"),
    "memory": ("show_commands:memory", "run conversation --flow"),
    "judge": ("judging:judge", f"run --rubric --model --mode --recordings --concurrency --set {_LABELLING}"),
    "export": ("show_commands:export", "run --to --out"),
    "init": ("project:init", f"folder {_OWN_DATA} --model"),
    "lint": ("project:lint", "datasets"),
    "import": ("published:import_answers", "format path --out --dataset --primary"),
    "score": ("published:score", "run --scorer --primary --all"),
    "reproduce": ("published:reproduce", "packs --out --markdown"),
    "list": ("listing:list_names", "what spec --flow --mcp --data --timeout"),
    "pull": ("project:pull", "models"),
    "doctor": ("doctor:examine", ""),
}
"""Handler of each command, as `module:function` of this package, and its arguments."""
NARROWED: dict[str, Settings] = {
    "replay spec": {"nargs": "*", "help": f"spec files (default: all in {RECORDED_SPECS})"},
    "gate run": {"help": "a run folder; with --sequential a spec file"},
    "show conversation": {"nargs": "?"},
    "fork --turn": {"required": True, "help": "first turn to run again, counted from 1"},
    "fork --flow": {"action": "store", "help": "the new flow, a name or '{flow: tools, max_calls: 1}'"},
    "fork --mode": {"choices": ("auto", "replay"), "default": "auto", "help": "auto (default) or replay"},
    "memory --flow": {"action": "store", "help": "a flow of the run (needed if several have a memory)"},
    "import --dataset": {"action": "store", "help": "the data set folder (default: PATH)"},
    "cost --model": {"help": "price every call as this model"},
    "run --model": {"action": "append", "help": "provider/model; repeat to compare several"},
    "init --model": {"help": "model of the spec (default: local/qwen2.5-coder-0.5b)"},
    "gate --model": {"action": "append", "help": "provider/model; repeat to compare several"},
    "judge --model": {"help": "the judge (default: local/qwen2.5-coder-1.5b)"},
    "judge --mode": {"help": "live, record, replay, or auto (default: replay, else record)"},
    "judge --concurrency": {"default": 1, "help": "replies to judge at the same time (default: 1)"},
    "report --out": {"default": "run.html", "help": "the page (default: run.html)"},
    "export --out": {"help": "the table (default: RUN.csv or RUN.parquet)"},
    "import --out": {"help": "run folder to write (default: results/<name of PATH>)"},
    "reproduce --out": {"help": "folder for the imported run (one PACK)"},
}
"""Settings of an argument for one command."""
GROUPS = {
    "compare flows": "run chat compare gate replay fork",
    "look closer": "show report cost memory judge export",
    "bring your own": "init lint import score reproduce",
    "this machine": "list pull doctor",
}
"""Commands in the order of `agentlab --help`."""
REMOVED = {
    "cache": "cost RUN",
    "convert": "run SPEC",
    "prompts": "list prompts",
    "reprice": "cost RUN --prices FILE",
    "schema": "list schema",
    "tools": "list tools --mcp CONFIG",
    "trace": "show RUN CONVERSATION --trace",
    "view": "report RUN",
}
"""Removed command -> its replacement."""
