"""What each command of the command line does; a handler loads what it needs when it is called."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentlab.cli.say import say, say_block
from agentlab.core.errors import ConfigError

if TYPE_CHECKING:
    from agentlab.evals.compare.gate import Verdict
    from agentlab.lab.run import Run

DEFAULT_SPEC = Path("evals/flows.yaml")
RECORDED_SPECS = Path("evals/recorded")
TEMPLATE = Path(__file__).parent / "template"
"""The files of a new project, each where it will stand."""


def run(arguments: argparse.Namespace) -> int:
    from agentlab.cli.progress import RunDisplay
    from agentlab.cli.terminal import show_comparison
    from agentlab.data.lint import lint
    from agentlab.evals.play.budget import estimate
    from agentlab.lab.lab import Lab

    if arguments.spec is None and not arguments.dataset:
        raise ConfigError(f"there is no {DEFAULT_SPEC} here; name a spec or a --dataset, or run `agentlab init`")
    with Lab(arguments.spec, **spec_overrides(arguments)) as lab:
        datasets = lab.bench.datasets()
        say(f"{lab.bench.spec.name}: {estimate(lab.bench, datasets)}")
        for folder, dataset in zip(lab.bench.spec.datasets, datasets, strict=True):
            if doubts := len(lint(dataset)):
                say(f"{dataset.name}: {doubts} doubts about what its rows expect; agentlab lint {folder} names them")
        fetch(lab.bench.local_weights())
        with RunDisplay() as display:
            told: dict[str, Any] = {"on_event": display.tell} if arguments.events else {}
            told |= {name: getattr(arguments, name) for name in ("executor", "workers", "scheduler")}
            run = lab.run_sync(out=arguments.out, resume=arguments.resume, on_progress=display.update, **told)
        missed = show_reuse(run)
        show_comparison(run, arguments.all)
    return 1 if missed or run.answered_nothing else 0


def chat(arguments: argparse.Namespace) -> None:
    from agentlab.cli.chat import chat

    chat(arguments, spec_overrides(arguments, ("model", "files")), fetch)


def show_reuse(run: Run) -> bool:
    """Print what came from recordings; True where a replay missed something."""
    from agentlab.evals.store.reuse import describe

    reused = run.result.recordings
    if reused is None:
        return False
    for line in describe(reused):
        say(line)
    return reused.missing > 0


def replay(arguments: argparse.Namespace) -> int:
    import tempfile

    from agentlab.evals.store.reuse import misses
    from agentlab.lab.lab import Lab

    arguments.mode = "replay"
    files = arguments.spec or sorted(RECORDED_SPECS.glob("*.yaml"))
    if not files:
        raise ConfigError(f"there is no spec in {RECORDED_SPECS}; name one")
    failed = False
    for file in files:
        with tempfile.TemporaryDirectory() as scratch, Lab(file, **spec_overrides(arguments)) as lab:
            say(f"{file}:")
            run = lab.run_sync(out=Path(scratch) / "run")
            failed |= show_reuse(run)
            if arguments.explain:
                for line in misses(run.traces.values()):
                    say(line)
    return 1 if failed else 0


FLAGS = ("flow", "dataset", "model", "limit", "epochs", "concurrency", "mode", "recordings")


def spec_overrides(arguments: argparse.Namespace, flags: Iterable[str] = FLAGS) -> dict[str, Any]:
    """The keys of the spec that `flags` and --set give."""
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
    names = {"flow": "flows", "dataset": "datasets"}
    typed = {names.get(flag, flag): getattr(arguments, flag, None) for flag in flags}
    return given | {key: value for key, value in typed.items() if value is not None}


def compare(arguments: argparse.Namespace) -> None:
    import json

    from agentlab.cli.comparing import show_pairs
    from agentlab.cli.seeing import ended
    from agentlab.evals.compare.pairs import compare
    from agentlab.evals.compare.questions import answers

    if len(arguments.run) > 2:
        raise ConfigError("compare takes one run or two")
    runs = [ended(path) for path in arguments.run]
    comparison = compare(runs[0], runs[1] if len(runs) == 2 else None, flows=arguments.flow)
    found = []
    if arguments.cheaper or arguments.not_worse:
        found = answers(comparison, cheaper=arguments.cheaper, not_worse=_margins("--not-worse", arguments.not_worse))
    if arguments.json:
        say_block(json.dumps({"answers": [answer.to_json() for answer in found], **comparison.to_json()}, indent=2))
    else:
        show_pairs(comparison, runs, found, everything=arguments.all)


def gate(arguments: argparse.Namespace) -> int:
    from agentlab.cli.comparing import show_verdict
    from agentlab.evals.compare.baselines import write_baseline
    from agentlab.evals.compare.gate import gate
    from agentlab.evals.report.gate_files import junit, leave, markdown, save
    from agentlab.lab.run import open_run

    margins = _margins("--margin", arguments.margin)
    if arguments.sequential:
        run, verdict = _gate_while_running(arguments, margins)
    else:
        of_a_run = ("looks", "model", "epochs", "concurrency", "mode", "recordings")
        if given := [name for name in (*of_a_run, "out", "resume", "set") if getattr(arguments, name)]:
            raise ConfigError(f"--{given[0].replace('_', '-')} is for flows that are run now; add --sequential")
        if Path(arguments.run).is_file():
            raise ConfigError(f"{arguments.run} is no run folder; add --sequential to run that spec")
        run = open_run(arguments.run)
        if arguments.update:
            write_baseline(run, arguments.baseline)
            say(f"wrote {arguments.baseline} from {run.run_id}")
            return 0
        verdict = gate(run, arguments.baseline, margins=margins, alpha=arguments.alpha)
    leave(verdict, run.path)
    show_verdict(verdict, run, explain=arguments.explain)
    if arguments.junit:
        save(junit(verdict), arguments.junit)
    summary = arguments.summary or os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        save(markdown(verdict), summary, append=True)
    return verdict.exit_code


def _gate_while_running(arguments: argparse.Namespace, margins: dict[str, float]) -> tuple[Run, Verdict]:
    from agentlab.cli.progress import RunDisplay
    from agentlab.lab.lab import Lab

    if arguments.update:
        raise ConfigError("a run that stops early is no baseline; make one with `agentlab run`, then gate --update")
    if Path(arguments.run).is_dir():
        raise ConfigError(f"--sequential runs a spec, and {arguments.run} is a folder; name the spec of that run")
    with Lab(arguments.run, **spec_overrides(arguments)) as lab:
        fetch(lab.bench.local_weights())
        with RunDisplay() as display:
            return lab.gate_sync(
                arguments.baseline,
                margins=margins,
                alpha=arguments.alpha,
                **({} if arguments.looks is None else {"looks": arguments.looks}),
                out=arguments.out,
                resume=arguments.resume,
                on_progress=display.update,
            )


def tools(arguments: argparse.Namespace) -> None:
    import asyncio

    from agentlab.tools.mcp.folder import ToolManager
    from agentlab.tools.mcp.listing import describe

    async def ask() -> ToolManager:
        path = Path(arguments.mcp or arguments.data)
        async with await ToolManager.open(path, timeout_seconds=arguments.timeout, refresh=True) as manager:
            return manager

    manager = asyncio.run(ask())
    say_block(describe(manager.tools))
    for problem in manager.problems:
        say(f"note: {problem}")


def prompts(arguments: argparse.Namespace) -> None:
    from agentlab.core import plugins
    from agentlab.core.files import data_folder
    from agentlab.workbench.spec import FlowSpec, load_spec
    from agentlab.workbench.variants import make_variant

    spec = load_spec(None if arguments.flow else arguments.spec)
    for flow in [FlowSpec(flow=arguments.flow)] if arguments.flow else spec.flows:
        variant, own = make_variant(spec, flow), plugins.resolve("flows", flow.flow)
        modules = getattr(own, "PROMPT_MODULES", {})
        files = {name: f"{module}/{name.upper()}.txt" for module, names in modules.items() for name in names}
        width = max(map(len, files.values()), default=0)
        say(variant.label + (f"   (files in {data_folder(variant.settings.data) / 'prompts'})" if files else ""))
        for name, text in variant.prompts.items():
            file = f"{files[name]:{width}} " if files else ""
            told = _placeholders(own.PROMPTS[name], text, variant.prompt_sources.get(name))
            say(f"  {name:24} {file}{told}".rstrip())


def _placeholders(default: str, text: str, source: str | None) -> str:
    """Those a prompt can have, where it is from if it is not the flow's own, and which of them that one leaves out."""
    from agentlab.workbench.variants import placeholders

    known, used = placeholders(default) or [], placeholders(text) or []
    shown = " ".join(f"{{{field}}}" for field in known)
    unused = " ".join(f"{{{field}}}" for field in known if field not in used)
    origin = f"   (from {source}{f'; not used: {unused}' if unused else ''})"
    return shown + (origin if source else "")


def _margins(flag: str, given: Iterable[str]) -> dict[str, float]:
    margins = {}
    for assignment in given:
        name, _, value = assignment.partition("=")
        try:
            margins[name] = float(value)
        except ValueError:
            raise ConfigError(f"{flag} {assignment!r}: write it as measure=number, as in answer_f1=0.1") from None
    return margins


def lint(arguments: argparse.Namespace) -> int:
    from agentlab.data.datasets import load_dataset
    from agentlab.data.lint import lint, too_small

    doubts = 0
    for folder in arguments.dataset:
        dataset = load_dataset(folder)
        found = lint(dataset)
        doubts += len(found)
        notes = [f"note: {small}"] if (small := too_small(dataset)) else []
        counted = f"{dataset.name}: {len(found)} found in {len(dataset.conversations)} conversations"
        for line in (*found, *notes, counted):
            say(" ".join(line.splitlines()))
    return 1 if doubts else 0


def pull(arguments: argparse.Namespace) -> None:
    from agentlab.models import weights

    default = ("qwen2.5-coder-0.5b", "all-minilm-l6-v2")
    named = [(name,) if name != "default" else default for name in arguments.model]
    wanted = list(dict.fromkeys(name.removeprefix("local/") for names in named for name in names))
    fetch(wanted)
    for name in wanted:
        say(f"{name}: {weights.home() / 'weights' / name}")


def fetch(names: Iterable[str]) -> None:
    from agentlab.cli.progress import DownloadDisplay
    from agentlab.models import weights

    with DownloadDisplay() as display:
        for name in names:
            weights.fetch(name, display.draw)


def doctor(arguments: argparse.Namespace) -> int:
    from agentlab.cli.doctor import examine

    return examine()


def init(arguments: argparse.Namespace) -> None:
    folder = Path(arguments.folder)
    sources = [file for file in sorted(TEMPLATE.rglob("*")) if file.is_file()]
    contents = {folder / file.relative_to(TEMPLATE): file.read_bytes() for file in sources}
    for path in contents:
        if path.exists():
            raise ConfigError(f"{path} is there already; choose another folder: agentlab init FOLDER")
    try:
        for path, content in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    except OSError as problem:
        raise ConfigError(f"cannot write to {folder}: {problem.strerror}") from None
    for path in contents:
        say(f"wrote {path}")
    say("next: agentlab run; then change my_flow.py, and put your own questions into datasets/example")


def schema(arguments: argparse.Namespace) -> None:
    import json

    from agentlab.workbench.settings import spec_schema

    say_block(json.dumps(spec_schema(), indent=2))
