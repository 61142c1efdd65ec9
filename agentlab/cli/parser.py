"""The command line: what can be typed. Every error a user can cause is one line, and the exit code 1."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn, TypeAlias, get_args

from agentlab.cli import commands as handlers
from agentlab.cli import published, seeing, storing, what_if
from agentlab.cli.commands import DEFAULT_SPEC, RECORDED_SPECS
from agentlab.cli.judging import judge
from agentlab.cli.listing import list_names
from agentlab.cli.say import say
from agentlab.core.errors import AgentlabError, Terminated
from agentlab.core.garbage import collect_seldom
from agentlab.core.names import Mode
from agentlab.core.shown import LogFormatter
from agentlab.core.version import __version__

HELP = Path(__file__).parent / "help"
"""A file a command: what it does, in one line, and examples."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 an error, 2 and 3 as `gate` says, 130 interrupted,
    128 and the number of a signal that ended it."""
    if argv is None:
        collect_seldom()
        atexit.register(gc.freeze)  # an interpreter that is about to end walks over everything once more
    arguments = make_parser().parse_args(argv)
    level = {0: logging.ERROR, 1: logging.INFO}.get(arguments.verbose, logging.DEBUG)
    logging.basicConfig(level=level)
    handler = logging.getLogger().handlers[0]
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    # The handler has a level of its own: a run's log file opens the loggers to everything.
    handler.setLevel(level)
    try:
        with _ended_by_signals():
            return arguments.command(arguments) or 0
    except AgentlabError as problem:
        say(f"agentlab: {problem}", error=True)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        where = f"{problem.filename}: " if problem.filename else ""
        say(f"agentlab: {where}{problem.strerror or problem}", error=True)
        return 1
    except KeyboardInterrupt:
        if argv is None:
            signal.signal(signal.SIGINT, _end_workers)
        say(f"agentlab: interrupted{_kept(arguments)}", error=True)
        return 130
    except Terminated as told:
        say(f"agentlab: ended by a signal{_kept(arguments)}", error=True)
        return 128 + told.number


def _kept(arguments: argparse.Namespace) -> str:
    return "; what was done is kept, and --resume continues a run" if hasattr(arguments, "resume") else ""


def _end_workers(number: int, frame: object) -> None:
    """Python waits for them before it ends, and who interrupts that does not want to read where it was."""
    import multiprocessing  # not at every start

    for child in multiprocessing.active_children():
        child.terminate()


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Servers that were started end and temporary folders go, as after Ctrl-C, where the system ends the process."""

    def end(number: int, frame: object) -> NoReturn:
        raise Terminated(number)

    before = {}
    if threading.current_thread() is threading.main_thread():
        before = {number: signal.signal(number, end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


SHARED: dict[str, dict[str, Any]] = {
    "run": {"metavar": "RUN", "help": "a run folder"},
    "spec": {"nargs": "?", "help": f"a spec file (default: {DEFAULT_SPEC}, if it is there)"},
    "--model": {"metavar": "M", "help": "provider/model"},
    "--epochs": {"type": int, "metavar": "K", "help": "how often everything is played"},
    "--concurrency": {"type": int, "metavar": "N", "help": "conversations in flight"},
    "--mode": {"choices": get_args(Mode), "help": "ask, or look up what was recorded (default: live)"},
    "--recordings": {"metavar": "DIR", "help": "recorded calls (default: evals/recordings)"},
    "--out": {"metavar": "DIR", "help": "the run folder (default: results/<run id>)"},
    "--resume": {"action": "store_true", "help": "go on with the run in --out"},
    "--all": {"action": "store_true", "help": "every measure in the table, not only the headline"},
    "--set": {"action": "append", "default": [], "metavar": "KEY=VALUE", "help": "any key of the spec, dotted"},
}
"""What means the same in several commands."""


class _Parser(argparse.ArgumentParser):
    def share(self, *names: str) -> None:
        for name in names:
            self.add_argument(name, **SHARED[name])

    def error(self, message: str) -> NoReturn:
        # One line and exit code 1, as for every other mistake; 2 is kept for a regression.
        say(f"agentlab: {message} (see {self.prog} --help)", error=True)
        raise SystemExit(1)


def _count(typed: str) -> int:
    if not typed.isdecimal():
        raise argparse.ArgumentTypeError(f"{typed!r} is no number of turns: 0, 1, 2 ...")
    return int(typed)


Command: TypeAlias = Callable[..., _Parser]
"""Adds a command: its name, what does it, and the names of `SHARED` that it begins with."""


def _add_what_plays(command: Command) -> None:
    run = command("run", handlers.run, "spec")
    run.add_argument("--flow", action="append", metavar="F", help="a flow by name or file; several for a comparison")
    run.add_argument("--dataset", action="append", metavar="DIR", help="a data set folder; may be given several times")
    run.share("--model")
    run.add_argument("--limit", type=int, metavar="N", help="conversations of each data set")
    run.share("--epochs", "--concurrency", "--mode", "--recordings", "--out", "--resume")
    run.add_argument("--executor", choices=("processes", "dask"), help="share the conversations out (default: do not)")
    run.add_argument("--workers", type=int, metavar="N", help="among so many processes (default: as there are cores)")
    run.add_argument("--scheduler", metavar="ADDRESS", help="of a Dask cluster (default: a local one)")
    run.share("--all")
    run.add_argument("--events", action="store_true", help="print what flows tell while they work")
    run.share("--set")

    chat = command("chat", handlers.chat)
    chat.add_argument(
        "flow", nargs="?", metavar="FLOW", help="from `agentlab list flows`, or a file (default: chatbox)"
    )
    chat.share("--model")
    chat.add_argument("--memory", metavar="FOLDER", help="where chat and memory are kept (default: one of ours)")
    chat.add_argument("--documents", metavar="PATH", help="a corpus.jsonl, or a folder of .md, .txt and .html files")
    chat.add_argument("--speaker", default="", metavar="NAME:ID", help="who you are, for flows that tell people apart")
    chat.add_argument("--data", metavar="DIR", help="the data folder of the flow `ego`")
    chat.add_argument("--mcp", metavar="CONFIG", help="a JSON file of MCP servers whose tools the flow may use")
    chat.add_argument(
        "--files", metavar="FOLDER", help="where the file tools may read and write (default: nowhere kept)"
    )
    chat.share("--set")

    replay = command("replay", handlers.replay)
    replay.add_argument("spec", nargs="*", help=f"spec files (default: all in {RECORDED_SPECS})")
    replay.add_argument("--explain", action="store_true", help="every miss, not only the first of each conversation")
    replay.share("--recordings", "--set")


def _add_what_shows(command: Command) -> None:
    trace = command("trace", seeing.trace)
    trace.add_argument("run")
    trace.add_argument("id", nargs="?", help="a conversation")
    trace.add_argument("--flow", metavar="F", help="only this flow")
    trace.add_argument("--full", action="store_true", help="also whole prompts and replies, arguments and passages")

    show = command("show", seeing.show, "run")
    show.add_argument("id", nargs="?", metavar="CONVERSATION", help="one of its conversations (default: the table)")
    show.share("--all")

    report = command("report", seeing.report)
    report.add_argument("run", nargs="+", metavar="RUN", help="a run folder, or two to be seen side by side")
    report.add_argument("-o", "--out", default="run.html", metavar="FILE", help="the page (default: run.html)")

    export = command("export", storing.export, "run")
    export.add_argument("--to", choices=("csv", "parquet"), required=True, help="parquet needs the extra `parquet`")
    export.add_argument("-o", "--out", metavar="FILE", help="the table (default: RUN.csv or RUN.parquet, here)")


def _add_what_compares(command: Command) -> None:
    compare = command("compare", handlers.compare)
    compare.add_argument("run", nargs="+", metavar="RUN", help="a run folder, or two")
    compare.add_argument("--flow", action="append", default=[], metavar="F", help="a flow; of two runs, one each")
    compare.add_argument("--cheaper", action="append", default=[], metavar="M", help="is B better in this measure, and")
    compare.add_argument("--not-worse", action="append", default=[], metavar="M=X", help="not worse in that by over X?")
    compare.add_argument("--all", action="store_true", help="every measure, and more turns")
    compare.add_argument("--json", action="store_true", help="print plain data instead of tables")

    fork = command("fork", what_if.fork)
    fork.add_argument("run", metavar="RUN", help="a recorded run")
    fork.add_argument("--turn", type=int, required=True, metavar="T", help="keep the first T turns as they were")
    fork.add_argument("--flow", metavar="F", help="a flow that goes on; with settings: '{flow: tools, label: mine}'")
    fork.add_argument("--of", metavar="F", help="the flow of the run in whose place it answers, if there are several")
    fork.add_argument("--mode", choices=("auto", "replay"), default="auto", help="ask what is new (default), or not")
    fork.add_argument("--out", metavar="DIR", help="the new run folder (default: results/<run id>)")
    fork.share("--set")

    cost = command("cost", what_if.cost, "run")
    cost.add_argument("--prices", metavar="FILE", help="a price table, laid over the one of the run")
    cost.add_argument("--model", metavar="M", help="whose price all calls have")
    cost.add_argument("--cached", type=float, metavar="SHARE", help="share of input tokens from a cache, 0 to 1")
    cost.add_argument("--block", type=int, metavar="N", help="or what repeats an earlier prompt, in blocks of N tokens")
    cost.add_argument("--minimum", type=int, default=0, metavar="N", help="tokens below which nothing is cached")
    cost.add_argument("--prefill", type=float, metavar="N", help="input tokens read a second")
    cost.add_argument("--decode", type=float, metavar="N", help="output tokens written a second")
    cost.add_argument("--per-call", type=float, metavar="S", help="seconds before a call reads")

    memory = command("memory", what_if.memory, "run")
    memory.add_argument("conversation", metavar="CONVERSATION", help="one of its conversations")
    memory.add_argument("--flow", metavar="F", help="the flow, where several remember something")

    judging = command("judge", judge, "run")
    judging.add_argument("--rubric", default="correct", metavar="R", help="correct (the default), grounded, or a file")
    judging.add_argument("--model", metavar="M", help="provider/model (default: local/qwen2.5-coder-1.5b)")
    judging.add_argument("--mode", choices=get_args(Mode), help="of its calls (default: auto)")
    judging.add_argument("--recordings", metavar="DIR", help="where they are recorded (default: evals/recordings)")
    judging.add_argument("--concurrency", type=int, default=1, metavar="N", help="replies in flight (default: 1)")
    judging.add_argument("--stress", type=_count, default=8, metavar="N", help="turns with known answers (default: 8)")
    judging.add_argument("--labels", metavar="FILE", help="a CSV file of what people say of replies")
    judging.add_argument("--next", type=_count, default=0, metavar="N", help="turns to add to that file for people")

    gate = command("gate", handlers.gate)
    gate.add_argument("run", metavar="RUN", help="a run folder; with --sequential a spec, which is run")
    gate.add_argument("--baseline", required=True, metavar="FILE", help="the baseline, one line a turn")
    gate.add_argument("--update", action="store_true", help="write the baseline from this run instead")
    gate.add_argument("--margin", action="append", default=[], metavar="M=X", help="the loss of a measure to allow")
    gate.add_argument("--alpha", type=float, default=0.05, metavar="A", help="the rate of false alarms (default: 0.05)")
    gate.add_argument("--explain", action="store_true", help="show the turns that lost most, and what was replied")
    gate.add_argument("--sequential", action="store_true", help="run the spec, and stop when the verdict is in")
    gate.add_argument("--looks", type=int, metavar="K", help="how often to look for an alarm (default: 8)")
    gate.share("--model", "--epochs", "--concurrency", "--mode", "--recordings", "--out", "--resume", "--set")
    gate.add_argument("--junit", metavar="FILE", help="write JUnit XML")
    gate.add_argument("--summary", metavar="FILE", help="add Markdown to it (default: $GITHUB_STEP_SUMMARY, if set)")


def _add_what_is_brought(command: Command) -> None:
    score = command("score", published.score, "run")
    score.add_argument("--scorer", action="append", default=[], metavar="S", help="by name or place (default: its own)")
    score.add_argument(
        "--primary", action="append", default=[], metavar="M", help="a measure that decides (default: its own)"
    )
    score.share("--all")

    taken = command("import", published.import_)
    taken.add_argument("format", choices=["predictions"], help="answers of other systems, a row each")
    taken.add_argument("path", metavar="FOLDER", help="with predictions.jsonl or .csv, and conversations.jsonl")
    taken.add_argument("-o", "--out", metavar="RUN", help="the run folder (default: results/<name of the folder>)")
    taken.add_argument("--dataset", metavar="DIR", help="the data set they answer, where it stands elsewhere")
    taken.add_argument(
        "--primary", action="append", default=[], metavar="M", help="a measure that decides, also published_..."
    )

    again = command("reproduce", published.reproduce)
    again.add_argument("pack", nargs="+", metavar="PACK", help="a folder with predictions and published.json")
    again.add_argument("-o", "--out", metavar="RUN", help="keep the imported run in this folder (of one pack)")
    again.add_argument("--markdown", metavar="FILE", help="also write the tables as a page")

    lint = command("lint", handlers.lint)
    lint.add_argument("dataset", nargs="+", metavar="DATASET", help="a data set folder; several are looked at apart")


def _add_what_is_here(command: Command) -> None:
    listing = command("list", list_names)
    listing.add_argument("what", choices=["models", "embedders", "flows", "tools", "scorers", "runs"])

    pull = command("pull", handlers.pull)
    pull.add_argument("model", nargs="+", help="names from `agentlab list models`, or `default`")

    command("doctor", handlers.doctor)
    init = command("init", handlers.init)
    init.add_argument("folder", nargs="?", default=".", help="where (default: here)")
    tools = command("tools", handlers.tools)
    where = tools.add_mutually_exclusive_group(required=True)
    where.add_argument("--mcp", metavar="CONFIG", help="a JSON file of servers")
    where.add_argument("--data", metavar="DIR", help="the data folder of the flow `ego`")
    tools.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds for an answer (default: 30)")

    prompts = command("prompts", handlers.prompts, "spec")
    prompts.add_argument("--flow", metavar="F", help="only this flow, as it is without a spec")
    command("schema", handlers.schema)


def make_parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="agentlab",
        description="Compare ways of orchestrating an LLM: what each costs, and what it buys.",
        epilog="Start with: agentlab doctor; agentlab run --limit 2\n\n`agentlab COMMAND --help` has examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"agentlab {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    spec = DEFAULT_SPEC if DEFAULT_SPEC.exists() else None

    def command(name: str, does: Callable[[argparse.Namespace], int | None], *shared: str) -> _Parser:
        text, _, examples = (HELP / f"{name}.txt").read_text(encoding="utf-8").partition("\n\n")
        sub: _Parser = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=examples.rstrip(),
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("-v", "--verbose", action="count", default=0, help="say more (-vv: everything)")
        sub.set_defaults(command=does, **({"spec": spec} if "spec" in shared else {}))
        sub.share(*shared)
        return sub

    for add in (_add_what_plays, _add_what_shows, _add_what_compares, _add_what_is_brought, _add_what_is_here):
        add(command)
    return parser
