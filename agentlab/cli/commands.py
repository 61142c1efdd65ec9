"""Commands that run flows: `agentlab run`, `replay`, `gate` and `fork`."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml

from agentlab.cli.comparing import show_pairs, show_verdict
from agentlab.cli.echo import echo
from agentlab.cli.options import DEFAULT_SPEC, RECORDED_SPECS
from agentlab.cli.own_data import convert, store
from agentlab.cli.pinning import pin_hub_files
from agentlab.cli.progress import Display, fetch
from agentlab.cli.terminal import show_run
from agentlab.core.errors import ConfigError
from agentlab.data.lint import lint, not_validated
from agentlab.evals.compare.baselines import write_baseline
from agentlab.evals.compare.gate import GateVerdict
from agentlab.evals.compare.gate import gate as gate_run
from agentlab.evals.compare.pairs import compare
from agentlab.evals.compare.ship import plan_note
from agentlab.evals.play.budget import estimate
from agentlab.evals.report.gate_files import junit, markdown, save, write_reports
from agentlab.evals.store.summary import misses, reuse_lines
from agentlab.knowledge.refusal import language_of
from agentlab.lab.forks import fork as fork_run
from agentlab.lab.lab import Lab
from agentlab.lab.run import Run, open_run
from agentlab.workbench.spec import load_spec

SPEC_FLAGS = ("flow", "dataset", "model", "limit", "epochs", "concurrency", "mode", "recordings")
SEQUENTIAL_FLAGS = ("looks", "model", "epochs", "concurrency", "mode", "recordings", "out", "resume", "set")


def run(arguments: argparse.Namespace) -> int:
    if made := convert(arguments):
        arguments.dataset = [*(arguments.dataset or []), str(store(*made))]
    spec = arguments.spec or (DEFAULT_SPEC if DEFAULT_SPEC.exists() else None)
    if spec is None and not arguments.dataset:
        raise ConfigError(f"{DEFAULT_SPEC} does not exist; name a spec, --dataset, --questions, or run `agentlab init`")
    if arguments.mode != "replay":
        pin_hub_files(None if spec is None else Path(spec), arguments.model or [])
    with Lab(spec, **a_variant_per_model(spec, arguments)) as lab:
        datasets = lab.bench.datasets()
        echo(f"{lab.bench.spec.name}: {estimate(lab.bench, datasets)}")
        if len(lab.bench.variants) > 1 and lab.bench.spec.mode != "replay" and (note := plan_note(datasets)):
            echo(note)
        for folder, dataset in zip(lab.bench.spec.datasets, datasets, strict=True):
            if findings := len(lint(dataset)):
                echo(f"{dataset.name}: {findings} lint finding{'s' * (findings > 1)}; run `agentlab lint {folder}`")
            for note in not_validated(dataset, language_of):
                echo(f"{dataset.name}: {note}")
        fetch(lab.bench.local_weights())
        with Display() as display:
            options: dict[str, Any] = {"on_event": display.print_event} if arguments.events else {}
            options |= {name: getattr(arguments, name) for name in ("executor", "workers", "scheduler")}
            options |= {"resume": arguments.resume, "keep_failures": arguments.keep_failures}
            run = lab.run_sync(out=arguments.out, on_progress=display.update, **options)
        is_incomplete = _show_reuse(run)
        show_run(run, arguments.all)
    return 1 if is_incomplete or run.all_turns_failed else 0


def replay(arguments: argparse.Namespace) -> int:
    arguments.mode = "replay"
    files = arguments.spec or sorted(RECORDED_SPECS.glob("*.yaml"))
    if not files:
        raise ConfigError(f"{RECORDED_SPECS} has no spec; name one")
    failed = False
    for file in files:
        with tempfile.TemporaryDirectory() as scratch, Lab(file, **spec_overrides(arguments)) as lab:
            echo(f"{file}:")
            run = lab.run_sync(out=Path(scratch) / "run")
            failed |= _show_reuse(run)
            for line in misses(run.traces.values()) if arguments.explain else ():
                echo(line)
    return 1 if failed else 0


def gate(arguments: argparse.Namespace) -> int:
    margins = dict(arguments.margin)
    if arguments.sequential:
        run, verdict = _gate_while_running(arguments, margins)
    else:
        if flags := [name for name in SEQUENTIAL_FLAGS if getattr(arguments, name)]:
            raise ConfigError(f"--{flags[0]} works with --sequential only; add it")
        if Path(arguments.run).is_file():
            raise ConfigError(f"{arguments.run} is not a run folder; add --sequential to run that spec")
        run = open_run(arguments.run)
        if arguments.update:
            write_baseline(run, arguments.baseline, arguments.gates)
            echo(f"wrote {arguments.baseline} from {run.run_id}")
            return 0
        verdict = gate_run(run, arguments.baseline, margins=margins, alpha=arguments.alpha)
    write_reports(verdict, run.path)
    show_verdict(verdict, run, explain=arguments.explain)
    if arguments.junit:
        save(junit(verdict), arguments.junit)
    if summary := arguments.summary or os.environ.get("GITHUB_STEP_SUMMARY"):
        save(markdown(verdict), summary, append=True)
    return verdict.exit_code


def _gate_while_running(arguments: argparse.Namespace, margins: dict[str, float]) -> tuple[Run, GateVerdict]:
    if arguments.update:
        raise ConfigError("a run that stops early is no baseline; make one with `agentlab run`, then gate --update")
    if Path(arguments.run).is_dir():
        raise ConfigError(f"--sequential needs a spec, but {arguments.run} is a folder; name the spec of that run")
    if arguments.mode != "replay":
        pin_hub_files(Path(arguments.run), arguments.model or [])
    with Lab(arguments.run, **a_variant_per_model(arguments.run, arguments)) as lab:
        fetch(lab.bench.local_weights())
        with Display() as display:
            return lab.gate_sync(
                arguments.baseline,
                margins=margins,
                alpha=arguments.alpha,
                **({} if arguments.looks is None else {"looks": arguments.looks}),
                out=arguments.out,
                resume=arguments.resume,
                on_progress=display.update,
            )


def fork(arguments: argparse.Namespace) -> int:
    try:
        flow = None if arguments.flow is None else yaml.safe_load(arguments.flow)
    except yaml.YAMLError:
        raise ConfigError(
            f"--flow {arguments.flow!r}: write a name, or an entry such as '{{flow: tools, label: mine}}'"
        ) from None
    source = open_run(arguments.run)
    forked = fork_run(
        source,
        arguments.turn,
        flow=flow,
        replace_flow=arguments.replace_flow,
        mode=arguments.mode,
        out=arguments.out,
        **spec_overrides(arguments, ()),
    )
    is_incomplete = _show_reuse(forked)
    echo(f"{forked.path}: compared with {source.path} from turn {arguments.turn} on")
    if is_incomplete:
        return 1
    new, old = next(iter(forked.header["fork"]["flows"].items()))
    show_pairs(compare(source, forked, flows=[old, new] if flow is not None else ()), [source, forked])
    return 0


def a_variant_per_model(spec: str | Path | None, arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the keys of the spec that the flags give; with several models each flow gets a variant for each."""
    models = list(dict.fromkeys(arguments.model or ()))
    arguments.model = models[0] if models else None
    overrides = spec_overrides(arguments)
    if len(models) > 1:
        names = {model.rpartition("/")[2]: model for model in models}
        names = names if len(names) == len(models) else {model: model for model in models}
        overrides["flows"] = [
            flow.model_copy(update={"model": model, "label": f"{flow.name}@{name}"} if flow.model is None else {})
            for flow in load_spec(spec, overrides).flows
            for name, model in (names if flow.model is None else {"": ""}).items()
        ]
    return overrides


def spec_overrides(arguments: argparse.Namespace, flags: Iterable[str] = SPEC_FLAGS) -> dict[str, Any]:
    """Return the keys of the spec that `flags` and --set give."""
    overrides: dict[str, Any] = {}
    for assignment in arguments.set:
        key, equals, value = assignment.partition("=")
        if not equals or not key:
            raise ConfigError(f"--set {assignment!r}: write it as key=value, for example retrieval.top_k=8")
        try:
            overrides[key] = yaml.safe_load(value)
        except yaml.YAMLError:
            raise ConfigError(f"--set {assignment!r}: the value is not YAML") from None
    keys = {"flow": "flows", "dataset": "datasets"}
    from_flags = {keys.get(flag, flag): getattr(arguments, flag, None) for flag in flags}
    return overrides | {key: value for key, value in from_flags.items() if value is not None}


def _show_reuse(run: Run) -> bool:
    """Print how many calls came from recordings; return True if one was not recorded."""
    recordings = run.result.recordings
    for line in reuse_lines(recordings) if recordings else ():
        echo(line)
    return bool(recordings and recordings.missing)
