"""The command line: parses, calls, prints. Every error a user can cause is one line, and the exit code 1."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from agentlab import __version__
from agentlab.errors import AgentlabError, ConfigError

DEFAULT_SPEC = Path("evals/flows.yaml")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 an error, 130 interrupted."""
    arguments = _parser().parse_args(argv)
    verbose = getattr(arguments, "verbose", 0)
    logging.basicConfig(
        level={0: logging.ERROR, 1: logging.INFO}.get(verbose, logging.DEBUG),
        format="%(levelname)s %(name)s: %(message)s",
    )
    logging.getLogger().handlers[0].setLevel({0: logging.ERROR, 1: logging.INFO}.get(verbose, logging.DEBUG))
    try:
        return int(arguments.command(arguments) or 0)
    except AgentlabError as problem:
        print(f"agentlab: {problem}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("agentlab: interrupted; what was done is kept, and --resume continues a run", file=sys.stderr)
        return 130


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        # One line and exit code 1, as for every other mistake; 2 is kept for a regression.
        print(f"agentlab: {message} (see {self.prog} --help)", file=sys.stderr)
        raise SystemExit(1)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="agentlab",
        description="Compare ways of orchestrating an LLM: what each costs, and what it buys.",
        epilog="Start with: agentlab doctor; agentlab run --limit 2\n`agentlab COMMAND --help` has examples.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"agentlab {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(name: str, does: Callable[[argparse.Namespace], int | None], text: str, examples: str) -> Any:
        sub = commands.add_parser(
            name,
            help=text,
            description=text,
            epilog=f"examples:\n{examples}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        sub.add_argument("-v", "--verbose", action="count", default=0, help="say more (-vv: everything)")
        sub.set_defaults(command=does)
        return sub

    run = command(
        "run",
        _run,
        "replay data sets through flows and compare them",
        "  agentlab run                                    the spec evals/flows.yaml\n"
        "  agentlab run --dataset datasets/laws --limit 2 --flow rag_only --flow tools\n"
        "  agentlab run evals/flows.yaml --out results/a --resume\n"
        "  agentlab run --set retrieval.top_k=8 --set generation.max_tokens=128",
    )
    run.add_argument("spec", nargs="?", help=f"a spec file (default: {DEFAULT_SPEC}, if it is there)")
    run.add_argument("--flow", action="append", metavar="F", help="a flow by name; several for a comparison")
    run.add_argument("--dataset", action="append", metavar="DIR", help="a data set folder; may be given several times")
    run.add_argument("--model", metavar="M", help="provider/model")
    run.add_argument("--limit", type=int, metavar="N", help="conversations of each data set")
    run.add_argument("--epochs", type=int, metavar="K", help="how often everything is played")
    run.add_argument("--concurrency", type=int, metavar="N", help="conversations in flight")
    run.add_argument("--out", metavar="DIR", help="the run folder (default: results/<run id>)")
    run.add_argument("--resume", action="store_true", help="go on with the run in --out")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the spec, dotted")

    trace = command(
        "trace",
        _trace,
        "print one conversation of a run, every step, as a tree",
        "  agentlab trace results/a                        what there is\n"
        "  agentlab trace results/a laws-001\n"
        "  agentlab trace results/a laws-001 --flow tools",
    )
    trace.add_argument("run")
    trace.add_argument("id", nargs="?", help="a conversation")
    trace.add_argument("--flow", metavar="F", help="only this flow")

    listing = command(
        "list", _list, "list what can be named in a spec", "  agentlab list models\n  agentlab list flows"
    )
    listing.add_argument("what", choices=["models", "embedders", "flows", "tools", "scorers", "runs"])

    pull = command("pull", _pull, "fetch and verify model weights", "  agentlab pull qwen2.5-coder-0.5b")
    pull.add_argument("model", nargs="+", help="names from `agentlab list models`, or `default`")

    command("doctor", _doctor, "check this machine: packages, weights, keys, servers", "  agentlab doctor")
    init = command(
        "init",
        _init,
        "set up a project of your own: a spec and a small data set",
        "  agentlab init my-evals && cd my-evals && agentlab run",
    )
    init.add_argument("folder", nargs="?", default=".", help="where (default: here)")
    schema = command(
        "schema", _schema, "print the JSON schema of a spec, for editors", "  agentlab schema > evals/spec.schema.json"
    )
    schema.set_defaults()
    return parser


def _run(arguments: argparse.Namespace) -> int:
    from agentlab.evals.runner import estimate
    from agentlab.lab import Lab
    from agentlab.terminal import RunDisplay, show_comparison

    path = arguments.spec or (DEFAULT_SPEC if DEFAULT_SPEC.exists() else None)
    if path is None and not arguments.dataset:
        raise ConfigError(f"there is no {DEFAULT_SPEC} here; name a spec or a --dataset, or run `agentlab init`")
    with Lab(path, **_overrides(arguments)) as lab:
        datasets = lab.datasets()
        print(f"{lab.spec.name}: {estimate(lab, datasets)}", flush=True)
        _fetch(lab.local_weights())
        with RunDisplay() as display:
            run = lab.run_sync(out=arguments.out, resume=arguments.resume, on_progress=display.update)
        show_comparison(run)
    return 0


def _overrides(arguments: argparse.Namespace) -> dict[str, Any]:
    import yaml

    given: dict[str, Any] = {}
    for assignment in arguments.set:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {assignment!r}: write it as key=value, for example retrieval.top_k=8")
        try:
            given[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"--set {assignment!r}: the value is not YAML") from None
    flags = {"flow": "flows", "dataset": "datasets"}
    for flag in ("flow", "dataset", "model", "limit", "epochs", "concurrency"):
        value = getattr(arguments, flag)
        if value is not None:
            given[flags.get(flag, flag)] = value
    return given


def _trace(arguments: argparse.Namespace) -> int:
    from agentlab.evals.results import open_run

    run = open_run(arguments.run)
    if arguments.id is None:
        for flow, conversation, epoch in run.traces:
            print(f"{conversation}  {flow}" + (f"  epoch {epoch}" if epoch else ""))
        return 0
    flows = [arguments.flow] if arguments.flow else list(dict.fromkeys(play[0] for play in run.traces))
    for flow in flows:
        print(f"{flow} · {arguments.id}\n{run.trace(flow, arguments.id).steps()}\n")
    return 0


def _list(arguments: argparse.Namespace) -> int:
    from agentlab import plugins
    from agentlab.terminal import list_runs, list_weights

    rooms = {"flows": "flows", "tools": "tools", "scorers": "evals.scorers"}
    if arguments.what in rooms:
        for name, text in plugins.names(rooms[arguments.what]).items():
            print(f"{name:22} {text}")
    elif arguments.what == "runs":
        list_runs()
    else:
        list_weights("chat" if arguments.what == "models" else "embedding")
        room = "models" if arguments.what == "models" else "models.embedders"
        for name, text in plugins.names(room).items():
            print(f"{name + '/...':38} {text}")
    return 0


def _pull(arguments: argparse.Namespace) -> int:
    from agentlab.models import weights

    named = [name.removeprefix("local/") for name in arguments.model]
    wanted = ["qwen2.5-coder-0.5b", "all-minilm-l6-v2"] if named == ["default"] else named
    _fetch(wanted)
    for name in wanted:
        print(f"{name}: {weights.home() / 'weights' / name}")
    return 0


def _fetch(names: Iterable[str]) -> None:
    from agentlab.models import weights
    from agentlab.terminal import DownloadDisplay

    with DownloadDisplay() as display:
        for name in names:
            weights.fetch(name, None if weights.is_present(name) else display.update)


def _doctor(arguments: argparse.Namespace) -> int:
    from agentlab.doctor import examine

    return examine()


def _init(arguments: argparse.Namespace) -> int:
    from agentlab.project import create

    for path in create(Path(arguments.folder)):
        print(f"wrote {path}")
    print("next: agentlab run")
    return 0


def _schema(arguments: argparse.Namespace) -> int:
    import json

    from agentlab.spec import Spec

    print(json.dumps(Spec.model_json_schema(), indent=2))
    return 0
