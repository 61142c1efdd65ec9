"""Command line. Every error that a user can cause prints one line and ends with exit code 1."""

from __future__ import annotations

import argparse
import atexit
import contextlib
import gc
import importlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from agentlab.cli.echo import accept_any_encoding, echo, echo_block
from agentlab.cli.options import ARGUMENTS, COMMANDS, GROUPS, NARROWED, REMOVED
from agentlab.core import plugins
from agentlab.core.errors import AgentlabError, ConfigError, Terminated
from agentlab.core.escaping import LogFormatter
from agentlab.core.gc_tuning import relax_gc
from agentlab.core.version import __version__

HELP = Path(__file__).parent / "help"
"""One file per command: a line for the overview, then examples and explanations."""
MAX_WIDTH = 72
START = """
start with:
  agentlab doctor
  agentlab init my-evals && cd my-evals && agentlab run

`agentlab COMMAND --help` shows the flags of a command and examples."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code.

    0 done, 1 error, 2 and 3 as `gate` defines them, 130 interrupted, 128 plus n ended by signal n.
    """
    if argv is None:
        relax_gc()
        atexit.register(gc.freeze)  # an ending interpreter would collect all objects once more
    resume_hint = ""
    accept_any_encoding()
    try:
        with _signals_as_exceptions():
            arguments = parse(sys.argv[1:] if argv is None else argv)
            if "resume" in arguments:
                resume_hint = "; progress is saved, continue a run with --resume"
            _log_to_stderr({0: logging.ERROR, 1: logging.INFO}.get(arguments.verbose, logging.DEBUG))
            module, _, function = arguments.handler.partition(":")
            handler = getattr(importlib.import_module(f"agentlab.cli.{module}"), function)
            return handler(arguments) or 0
    except AgentlabError as problem:
        return _fail(str(problem))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as problem:
        location = f"{problem.filename}: " if problem.filename else ""
        return _fail(f"{location}{problem.strerror or problem}")
    except KeyboardInterrupt:
        if argv is None:
            signal.signal(signal.SIGINT, _end_workers)
        return _fail(f"interrupted{resume_hint}", 130)
    except Terminated as ended:
        return _fail(f"ended by a signal{resume_hint}", 128 + ended.number)


def _fail(message: str, code: int = 1) -> int:
    echo(f"agentlab: {message}", error=True)
    return code


def _log_to_stderr(level: int) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter("%(levelname)s %(name)s: %(message)s"))
    # The handler needs its own level, because a run's log file sets the loggers to DEBUG.
    handler.setLevel(level)
    logging.basicConfig(level=level, handlers=[handler])


def _end_workers(number: int, frame: object) -> None:
    """End worker processes at once, without their tracebacks."""
    import multiprocessing  # slow to import, rarely needed

    for child in multiprocessing.active_children():
        child.terminate()


@contextlib.contextmanager
def _signals_as_exceptions() -> Iterator[None]:
    """Raise Terminated inside this block on SIGTERM and SIGHUP, so that servers and temporary files are cleaned up."""

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


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"{message.removeprefix('argument ')}; see {self.prog} --help")


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the arguments of a command line; `handler` names the function that runs it.

    Raises ConfigError for an invalid command line, SystemExit after `--help` and `--version`.
    """
    name, *rest = argv or ["--help"]
    if name in ("-h", "--help"):
        echo_block(overview())
        raise SystemExit
    if name == "--version":
        echo(f"agentlab {__version__}")
        raise SystemExit
    if name in REMOVED:
        raise ConfigError(f"`agentlab {name}` is now `agentlab {REMOVED[name]}`")
    return make_parser(name).parse_args(rest)


def overview() -> str:
    """Return the help of `agentlab` itself: every command in one line."""
    lines = ["usage: agentlab COMMAND ...", "", "Compare LLM flows: what each costs, and how good its replies are."]
    for group, names in GROUPS.items():
        lines += ["", f"{group}:", *(f"  {name:11}{help_of(name)[0]}" for name in names.split())]
    return "\n".join([*lines, START])


def help_of(name: str) -> tuple[str, str]:
    """Return the first line of a command's help, and the examples and explanations below it."""
    line, _, page = (HELP / f"{name}.txt").read_text(encoding="utf-8").partition("\n\n")
    return line, page.rstrip()


def make_parser(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command; raises ConfigError if the command does not exist."""
    plugins.check_names("command", [name], COMMANDS)
    (handler, arguments), (line, page) = COMMANDS[name], help_of(name)
    parser = _Parser(
        prog=f"agentlab {name}",
        description=line,
        epilog=page,
        formatter_class=lambda prog: argparse.RawDescriptionHelpFormatter(prog, width=MAX_WIDTH),
        allow_abbrev=False,
    )
    for argument in arguments.split():
        names = ("-o", argument) if argument == "--out" else (argument,)
        parser.add_argument(*names, **{**ARGUMENTS[argument], **NARROWED.get(f"{name} {argument}", {})})
    parser.add_argument("-v", "--verbose", action="count", default=0, help="log more (-vv: everything)")
    parser.set_defaults(handler=handler)
    return parser
