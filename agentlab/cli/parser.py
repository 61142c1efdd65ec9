"""The command line: what can be typed. Every error a user can cause is one line, and the exit code 1."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, get_args

from agentlab.cli import commands as handlers
from agentlab.cli.commands import DEFAULT_SPEC, RECORDED_SPECS
from agentlab.core.errors import AgentlabError
from agentlab.core.names import Mode
from agentlab.core.version import __version__

MODES = get_args(Mode)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code: 0 done, 1 an error, 2 and 3 as `gate` says, 130 interrupted."""
    arguments = _parser().parse_args(argv)
    level = {0: logging.ERROR, 1: logging.INFO}.get(arguments.verbose, logging.DEBUG)
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s")
    # The handler has a level of its own: a run's log file opens the loggers to everything.
    logging.getLogger().handlers[0].setLevel(level)
    try:
        return int(arguments.command(arguments))
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

    def command(name: str, does: Callable[[argparse.Namespace], int], text: str, examples: str) -> Any:
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
        handlers.run,
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
    run.add_argument("--events", action="store_true", help="print what flows tell while they work")
    run.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any key of the spec, dotted")

    replay = command(
        "replay",
        handlers.replay,
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
        handlers.trace,
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
        handlers.compare,
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
        handlers.cache,
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
        handlers.gate,
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
        "list", handlers.list_names, "list what can be named in a spec", "  agentlab list models\n  agentlab list flows"
    )
    listing.add_argument("what", choices=["models", "embedders", "flows", "tools", "scorers", "runs"])

    pull = command("pull", handlers.pull, "fetch and verify model weights", "  agentlab pull qwen2.5-coder-0.5b")
    pull.add_argument("model", nargs="+", help="names from `agentlab list models`, or `default`")

    command("doctor", handlers.doctor, "check this machine: packages, weights, keys, servers", "  agentlab doctor")
    init = command(
        "init",
        handlers.init,
        "set up a project of your own: a spec and a small data set",
        "  agentlab init my-evals && cd my-evals && agentlab run",
    )
    init.add_argument("folder", nargs="?", default=".", help="where (default: here)")
    tools = command(
        "tools",
        handlers.tools,
        "ask MCP servers and an agent's data folder what tools they offer, and keep the listing for replays",
        '  agentlab tools --mcp servers.json            {"mcpServers": {"time": {"command": "mcp-server-time"}}}\n'
        "  agentlab tools --data data                   tools/, mcp-servers/ and remote-mcp-servers/ in it",
    )
    where = tools.add_mutually_exclusive_group(required=True)
    where.add_argument("--mcp", metavar="CONFIG", help="a JSON file of servers")
    where.add_argument("--data", metavar="DIR", help="the data folder of the flow `ego`")
    tools.add_argument("--timeout", type=float, default=30.0, metavar="S", help="seconds for an answer (default: 30)")

    prompts = command(
        "prompts",
        handlers.prompts,
        "list the prompts of flows with their placeholders, and which of them are overridden",
        "  agentlab prompts --flow ego                  files in data/prompts/<module>/<PROMPT_NAME>.txt win\n"
        "  agentlab prompts evals/flows.yaml",
    )
    prompts.add_argument("spec", nargs="?", help=f"a spec file (default: {DEFAULT_SPEC}, if it is there)")
    prompts.add_argument("--flow", metavar="F", help="only this flow, as it is without a spec")
    command(
        "schema",
        handlers.schema,
        "print the JSON schema of a spec, for editors",
        "  agentlab schema > evals/spec.schema.json",
    )
    return parser
