"""The command that writes a run in another form: `agentlab export`."""

from __future__ import annotations

import argparse
from pathlib import Path

from agentlab.cli.say import say


def export(arguments: argparse.Namespace) -> None:
    from agentlab.evals.report.export import export
    from agentlab.lab.run import open_run

    run = open_run(arguments.run)
    file = Path(arguments.out or f"{run.path.name}.{arguments.to}")
    export(run, arguments.to, file)
    say(f"{file} ({file.stat().st_size / 1e6:.1f} MB): {run.result.turns} turns, a row each")
