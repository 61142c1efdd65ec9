"""Commands that read finished runs: `agentlab show`, `report`, `compare`, `cost`, `memory` and `export`."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from agentlab.cli.comparing import show_pairs
from agentlab.cli.echo import echo, echo_block
from agentlab.cli.terminal import show_run
from agentlab.core.errors import ConfigError
from agentlab.core.escaping import printable
from agentlab.core.prices import load_prices
from agentlab.evals.compare.claims import evaluate_claims
from agentlab.evals.compare.pairs import compare as compare_runs
from agentlab.evals.cost import CacheRules, Repricing, breaks
from agentlab.evals.report.comparison import comparison_json
from agentlab.evals.report.export import export as export_run
from agentlab.evals.report.tables import new_console, print_table
from agentlab.lab.run import Run, open_run


def open_finished_run(path: str) -> Run:
    """Open a run; report on standard error if it is too old to have checksums."""
    run = open_run(path)
    if not run.folder.has_checksums and run.folder.summary_file.exists():
        echo(f"agentlab: {path} predates checksums; edits cannot be detected", error=True)
    return run


def show(arguments: argparse.Namespace) -> None:
    conversation = arguments.conversation
    run = open_run(arguments.run) if arguments.trace else open_finished_run(arguments.run)
    if conversation is not None:
        view = run.show(conversation).narrowed(arguments.flow or (), arguments.turn)
        view.print_to(new_console(), run.traces if arguments.trace else None, full=arguments.all)
    elif arguments.flow or arguments.turn is not None:
        raise ConfigError("--flow and --turn need a conversation: agentlab show RUN CONVERSATION")
    elif arguments.trace:
        for flow, conversation, epoch in dict.fromkeys(row.trial for row in run.rows()):
            echo(f"{conversation}  {flow}" + (f"  epoch {epoch}" if epoch else ""))
    else:
        show_run(run, arguments.all)


def report(arguments: argparse.Namespace) -> None:
    if len(arguments.runs) > 2:
        raise ConfigError("report takes one run or two")
    run, *others = map(open_finished_run, arguments.runs)
    saved = run.report(*others).save(arguments.out)
    echo(f"{saved} ({saved.stat().st_size / 1e6:.1f} MB): open it in a browser, it needs no network")


def compare(arguments: argparse.Namespace) -> None:
    if len(arguments.runs) > 2:
        raise ConfigError("compare takes one run or two")
    runs = [open_finished_run(path) for path in arguments.runs]
    comparison = compare_runs(runs[0], runs[1] if len(runs) == 2 else None, arguments.flow or ())
    claims = []
    if arguments.improves or arguments.max_loss:
        claims = evaluate_claims(comparison, improves=arguments.improves, max_loss=dict(arguments.max_loss))
    if arguments.json:
        content = {"answers": [answer.to_json() for answer in claims], **comparison_json(comparison)}
        echo_block(json.dumps(content, indent=2))
    else:
        show_pairs(comparison, runs, claims, show_all=arguments.all)


def cost(arguments: argparse.Namespace) -> None:
    run = open_run(arguments.run)
    options = {name: getattr(arguments, name) for name in ("model", "cached_share", "prefill", "decode", "per_call")}
    options = {name: value for name, value in options.items() if value is not None}
    block = arguments.block if options or arguments.prices or arguments.block is not None else 1
    rules = None if block is None else CacheRules(block=block, minimum=arguments.minimum)
    prices = load_prices(arguments.prices or run.header["spec"].get("prices"))
    table = Repricing(prices=prices, cache=rules, **options).table(run)
    echo(f"{run.run_id}: same replies, calls and tokens; no model calls")
    console = new_console()
    rows = [[str(name), *map(_cell, table[name])] for name in table]
    print_table(console, "recorded and repriced", ["", *table.index], rows)
    if rules and (lost := breaks(run, rules)):
        rows = [[location, f"{times:,}", f"{tokens:,}"] for location, times, tokens in lost]
        heading = "prompts that leave the cached prefix: flow, phase, first part that differs"
        print_table(console, heading, ["", "times", "tokens lost"], rows)


def memory(arguments: argparse.Namespace) -> None:
    view = open_run(arguments.run).memory(arguments.conversation, arguments.flow)
    echo(repr(view).strip("<>").replace("MemoryView", "memory"))
    table = view.table
    rows = [[printable(_cell(cell)) for cell in row] for row in table.itertuples(index=False)]
    if rows:
        print_table(new_console(), "", [*table.columns], rows)


def export(arguments: argparse.Namespace) -> None:
    run = open_run(arguments.run)
    file = Path(arguments.out or f"{run.path.name}.{arguments.to}")
    export_run(run, arguments.to, file)
    echo(f"{file} ({file.stat().st_size / 1e6:.1f} MB): {run.result.turns} turns, one row each")


def _cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return str(value)
