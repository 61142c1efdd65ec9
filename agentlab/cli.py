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
RECORDED_SPECS = Path("evals/recorded")
MODES = ("live", "record", "replay", "auto")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 an error, 2 and 3 as `gate` says, 130 interrupted."""
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
        "  agentlab run --set retrieval.top_k=8 --set generation.max_tokens=128\n"
        "  agentlab run evals/recorded/laws.yaml --mode replay     no model, no network, the same numbers",
    )
    run.add_argument("spec", nargs="?", help=f"a spec file (default: {DEFAULT_SPEC}, if it is there)")
    run.add_argument("--flow", action="append", metavar="F", help="a flow by name; several for a comparison")
    run.add_argument("--dataset", action="append", metavar="DIR", help="a data set folder; may be given several times")
    run.add_argument("--model", metavar="M", help="provider/model")
    run.add_argument("--limit", type=int, metavar="N", help="conversations of each data set")
    run.add_argument("--epochs", type=int, metavar="K", help="how often everything is played")
    run.add_argument("--concurrency", type=int, metavar="N", help="conversations in flight")
    run.add_argument("--mode", choices=MODES, help="ask, or look up what was recorded (default: live)")
    run.add_argument("--recordings", metavar="DIR", help="recorded calls (default: evals/recordings)")
    run.add_argument("--out", metavar="DIR", help="the run folder (default: results/<run id>)")
    run.add_argument("--resume", action="store_true", help="go on with the run in --out")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the spec, dotted")

    replay = command(
        "replay",
        _replay,
        "say what a replay would find among the recordings, and why the rest is missing",
        "  agentlab replay                                 is everything of evals/recorded/*.yaml there?\n"
        "  agentlab replay evals/flows.yaml --explain      field by field, for each call that is not\n"
        "  agentlab replay --prune                         drop the recordings that no call asks for any more",
    )
    replay.add_argument("spec", nargs="*", help=f"spec files (default: all in {RECORDED_SPECS})")
    replay.add_argument("--explain", action="store_true", help="every miss, not only the first of each conversation")
    replay.add_argument(
        "--prune", action="store_true", help="drop from the files of these specs what none of them used"
    )
    replay.add_argument("--recordings", metavar="DIR", help="recorded calls (default: evals/recordings)")
    replay.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the spec, dotted")

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

    compare = command(
        "compare",
        _compare,
        "compare two flows turn by turn, in one run or in two",
        "  agentlab compare results/a                                 the first flow with each other one\n"
        "  agentlab compare results/a --flow rag_only --flow tools    these two\n"
        "  agentlab compare results/a results/b                       every flow with itself, a before b\n"
        "  agentlab compare results/a results/b --flow tools --flow tools_k8 --json",
    )
    compare.add_argument("run", nargs="+", metavar="RUN", help="a run folder, or two")
    compare.add_argument("--flow", action="append", default=[], metavar="F", help="a flow; of two runs, one each")
    compare.add_argument("--json", action="store_true", help="print plain data instead of tables")

    cache = command(
        "cache",
        _cache,
        "say how much of each prompt repeats an earlier one, and which step of a flow breaks its prefix",
        "  agentlab cache results/a\n  agentlab cache results/a --block 128 --minimum 1024 --price openai/gpt-4.1-mini",
    )
    cache.add_argument("run", metavar="RUN", help="a run folder")
    cache.add_argument("--block", type=int, default=1, metavar="N", help="tokens that are cached together (default: 1)")
    cache.add_argument("--minimum", type=int, default=0, metavar="N", help="tokens below which nothing is cached")
    cache.add_argument("--ttl", type=float, default=300.0, metavar="S", help="seconds it is remembered (default: 300)")
    cache.add_argument("--price", action="append", default=[], metavar="MODEL", help="what it would cost with this one")

    gate = command(
        "gate",
        _gate,
        "hold a run against a baseline: exit code 0 pass, 1 error, 2 regression, 3 inconclusive",
        "  agentlab gate results/a --baseline evals/baselines/laws.jsonl --update    make it from this run\n"
        "  agentlab gate results/b --baseline evals/baselines/laws.jsonl\n"
        "  agentlab gate results/b --baseline evals/baselines/laws.jsonl --margin answer_f1=.1 --margin latency_s=inf\n"
        "  agentlab gate results/b --baseline evals/baselines/laws.jsonl --junit gate.xml --summary gate.md\n\n"
        "A measure passes when its loss is at most the margin: .05 for quality, a share of the baseline's mean for\n"
        "costs (.05, latency .20). `inf` leaves it out; naming tool_calls or embedding_calls gates them too.",
    )
    gate.add_argument("run", metavar="RUN", help="a run folder")
    gate.add_argument("--baseline", required=True, metavar="FILE", help="the baseline, one line a turn")
    gate.add_argument("--update", action="store_true", help="write the baseline from this run instead")
    gate.add_argument("--margin", action="append", default=[], metavar="M=X", help="the loss of a measure to allow")
    gate.add_argument("--alpha", type=float, default=0.05, metavar="A", help="the rate of false alarms (default: 0.05)")
    gate.add_argument("--junit", metavar="FILE", help="write JUnit XML")
    gate.add_argument("--summary", metavar="FILE", help="add Markdown to it (default: $GITHUB_STEP_SUMMARY, if set)")

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
    from agentlab.evals.estimate import estimate
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
    return 1 if _show_reuse(run.summary["recordings"]) else 0


def _show_reuse(reused: dict[str, Any] | None) -> bool:
    """Print what came from recordings; True where a replay missed something."""
    from agentlab.evals.reuse import describe

    if reused is None:
        return False
    print("\n".join(describe(reused)))
    return bool(reused["missing"])


def _replay(arguments: argparse.Namespace) -> int:
    import tempfile

    from agentlab.evals.reuse import misses
    from agentlab.lab import Lab

    arguments.mode = "replay"
    specs = arguments.spec or sorted(RECORDED_SPECS.glob("*.yaml"))
    if not specs:
        raise ConfigError(f"there is no spec in {RECORDED_SPECS}; name one")
    failed, used = False, set()
    for spec in specs:
        with tempfile.TemporaryDirectory() as scratch, Lab(spec, **_overrides(arguments)) as lab:
            print(f"{spec}:")
            run = lab.run_sync(out=Path(scratch) / "run")
            failed |= _show_reuse(run.summary["recordings"])
            used |= lab.recorder.used
            if arguments.explain:
                print("\n".join(misses(run.traces.values())))
    # Only once all of them have said what they use: one spec may live on what another recorded.
    for spec in specs if arguments.prune and not failed else ():
        with Lab(spec, **_overrides(arguments)) as lab:
            print(f"{spec}: {lab.prune_recordings(used)} recordings dropped")
    return 1 if failed else 0


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
    for flag in ("flow", "dataset", "model", "limit", "epochs", "concurrency", "mode", "recordings"):
        value = getattr(arguments, flag, None)
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
    plays = [play for play in run.traces if play[1] == arguments.id and arguments.flow in (None, play[0])]
    if not plays:
        plays = [(arguments.flow or "-", arguments.id, 0)]
    for flow, conversation, epoch in sorted(plays, key=lambda play: play[2]):
        title = f"{flow} · {conversation}" + (f" · epoch {epoch}" if epoch else "")
        print(f"{title}\n{run.trace(flow, conversation, epoch).steps()}\n")
    return 0


def _compare(arguments: argparse.Namespace) -> int:
    import json

    from agentlab.evals.comparison import compare
    from agentlab.evals.results import open_run
    from agentlab.terminal import show_pairs

    if len(arguments.run) > 2:
        raise ConfigError("compare takes one run or two")
    runs = [open_run(path) for path in arguments.run]
    comparison = compare(runs[0], runs[1] if len(runs) == 2 else None, flows=arguments.flow)
    if arguments.json:
        print(json.dumps(comparison.to_json(), indent=2))
    else:
        show_pairs(comparison)
    return 0


def _cache(arguments: argparse.Namespace) -> int:
    from agentlab.evals.prefix_cache import CacheRules, tables
    from agentlab.evals.results import open_run
    from agentlab.terminal import show_prefixes

    rules = CacheRules(block=arguments.block, minimum=arguments.minimum, ttl=arguments.ttl)
    show_prefixes(*tables(open_run(arguments.run), rules, arguments.price))
    return 0


def _gate(arguments: argparse.Namespace) -> int:
    from agentlab.evals.gate import gate, write_baseline
    from agentlab.evals.gate_report import junit, markdown, save
    from agentlab.evals.results import open_run
    from agentlab.terminal import show_verdict

    run = open_run(arguments.run)
    if arguments.update:
        write_baseline(run, arguments.baseline)
        print(f"wrote {arguments.baseline} from {run.run_id}")
        return 0
    verdict = gate(run, arguments.baseline, margins=_margins(arguments.margin), alpha=arguments.alpha)
    show_verdict(verdict)
    if arguments.junit:
        save(junit(verdict), arguments.junit)
    summary = arguments.summary or os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        save(markdown(verdict), summary, append=True)
    return verdict.exit_code


def _margins(given: Iterable[str]) -> dict[str, float]:
    margins = {}
    for assignment in given:
        name, _, value = assignment.partition("=")
        try:
            margins[name] = float(value)
        except ValueError:
            raise ConfigError(f"--margin {assignment!r}: write it as measure=number, as in answer_f1=0.1") from None
    return margins


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
