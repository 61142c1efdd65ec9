"""The commands that write a run in another form: `agentlab report`, `agentlab convert` and `agentlab export`."""

from __future__ import annotations

import argparse
from pathlib import Path

from agentlab.core.errors import ConfigError


def convert(arguments: argparse.Namespace) -> None:
    from agentlab.evals.run.convert import convert

    run = Path(arguments.run)
    made = convert(run, Path(arguments.out or f"{run.resolve()}-converted"))
    print(f"{made.path} holds the run in today's format; {run} is as it was")


def export(arguments: argparse.Namespace) -> None:
    from agentlab.evals.results.export import export
    from agentlab.evals.results.run import open_run

    run = open_run(arguments.run)
    file = Path(arguments.out or f"{run.path.name}.{arguments.to}")
    export(run, arguments.to, file)
    print(f"{file} ({file.stat().st_size / 1e6:.1f} MB): {run.result.turns} turns, a row each")


def report(arguments: argparse.Namespace) -> None:
    from agentlab.evals.results.run import open_run

    if len(arguments.run) > 2:
        raise ConfigError("report takes one run or two")
    run, *others = map(open_run, arguments.run)
    saved = run.report(*others).save(arguments.out)
    print(f"{saved} ({saved.stat().st_size / 1e6:.1f} MB): open it in a browser, it needs no network")
