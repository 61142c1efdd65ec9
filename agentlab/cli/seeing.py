"""Commands that show a run: its table, a conversation, a trace, and its page."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from agentlab.cli.say import say
from agentlab.core.errors import ConfigError

if TYPE_CHECKING:
    from agentlab.lab.run import Run


def ended(path: str) -> Run:
    """The run in a folder; on standard error, what cannot be told of an older one."""
    from agentlab.lab.run import open_run

    run = open_run(path)
    if not run.is_sealed and run.folder.summary_file.exists():
        say(f"agentlab: {path} is older than seals: whether it was edited since cannot be told", error=True)
    return run


def trace(arguments: argparse.Namespace) -> None:
    from agentlab.cli.terminal import show_trace
    from agentlab.core.plugins import unknown
    from agentlab.lab.run import open_run

    run = open_run(arguments.run)
    # A flow that failed before it did anything has turns and no trace.
    every = dict.fromkeys([*run.traces, *(row.play for row in run.rows())])
    flows, conversations = {play[0] for play in every}, {play[1] for play in every}
    for what, name, known in (("conversation", arguments.id, conversations), ("flow", arguments.flow, flows)):
        if name is not None and name not in known:
            raise ConfigError(unknown(f"{what} of this run", name, known))
    if arguments.id is None:
        for flow, conversation, epoch in every:
            say(f"{conversation}  {flow}" + (f"  epoch {epoch}" if epoch else ""))
        return
    plays = [play for play in every if play[1] == arguments.id and arguments.flow in (None, play[0])]
    if not plays:
        raise ConfigError(f"{arguments.flow} has not played {arguments.id} in this run; --resume goes on with it")
    for play in sorted(plays, key=lambda play: play[2]):
        show_trace(run, play, arguments.full)


def show(arguments: argparse.Namespace) -> None:
    from agentlab.cli.terminal import show_comparison
    from agentlab.evals.report.tables import new_console

    run = ended(arguments.run)
    if arguments.id is None:
        show_comparison(run, arguments.all)
    else:
        run.show(arguments.id).print_to(new_console())


def report(arguments: argparse.Namespace) -> None:

    if len(arguments.run) > 2:
        raise ConfigError("report takes one run or two")
    run, *others = map(ended, arguments.run)
    saved = run.report(*others).save(arguments.out)
    say(f"{saved} ({saved.stat().st_size / 1e6:.1f} MB): open it in a browser, it needs no network")
