"""`agentlab judge`: grade the replies of a finished run with a model, and check it against human labels."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from agentlab.cli.commands import spec_overrides
from agentlab.cli.echo import echo
from agentlab.cli.progress import Display, fetch
from agentlab.core.errors import ConfigError
from agentlab.evals.judge.judge_report import replies, rows_to_label
from agentlab.evals.judge.judging import JudgeResult
from agentlab.evals.judge.labels import add_rows, read_labels
from agentlab.evals.stats.agreement import GOOD
from agentlab.lab.judging import DEFAULT_JUDGE_MODEL, judge_undecided
from agentlab.lab.judging import judge as judge_run
from agentlab.lab.run import Run, open_run


def judge(arguments: argparse.Namespace) -> None:
    if arguments.suggest and not arguments.labels:
        raise ConfigError("--suggest needs --labels FILE, the file to write the replies to")
    if arguments.undecided and arguments.labels:
        raise ConfigError("--undecided takes no --labels: labels correct a judge of the whole run")
    if arguments.labels and not arguments.suggest and not Path(arguments.labels).exists():
        raise ConfigError(f"{arguments.labels} does not exist; create it with --suggest 20")
    run = open_run(arguments.run)
    model = arguments.model or DEFAULT_JUDGE_MODEL
    if model in run.header["models"].values():
        echo(f"{model} also wrote the replies, and judges favour their own; choose another one with --model")
    options = spec_overrides(arguments, ("mode", "recordings", "concurrency"))
    options |= {"model": model, "known_answers": arguments.known_answers, "prepare": fetch}
    with Display() as display:
        options["on_progress"] = partial(display.count, "judged")
        if arguments.undecided:
            result = judge_undecided(run, arguments.rubric, **options)
        else:
            report = judge_run(run, arguments.rubric, labels=arguments.labels, **options)
    if arguments.undecided:
        _show_undecided(run, result)
        return
    echo(str(report))
    if arguments.suggest:
        file = Path(arguments.labels)
        labels = read_labels(file, replies(run)) if file.exists() else {}
        blank = [reply for reply, label in labels.items() if label is None]
        suggested = {reply[1:] for reply in blank}
        chosen = [turn for turn in report.next_to_label(arguments.suggest + len(suggested)) if turn not in suggested]
        added = add_rows(file, rows_to_label(run, chosen[: arguments.suggest]))
        rest = f", with {len(blank)} that have no label yet" if blank else ""
        echo(f"{added} replies to label are in {file}{rest}: fill in the column `label` (0 to 1), then judge again")
    echo(f"next: agentlab compare {arguments.run}")


def _show_undecided(run: Run, result: JudgeResult) -> None:
    """Print for each flow how many undecided replies the judge calls right, and how it grades known answers."""
    for flow in run.result.flows:
        values = [each.value(result.rubric) for each in result.judgements if each.flow == flow]
        read = [value for value in values if value is not None]
        n_right, n_unread = sum(value >= GOOD for value in read), len(values) - len(read)
        unread = f", {n_unread} without a verdict" if n_unread else ""
        echo(f"{flow}: the judge calls {n_right} of {len(read)} undecided replies right{unread}")
    for kind, (n_passed, n_judged, _) in result.known_answer_results.items():
        if n_judged:
            echo(f"known answers: {n_passed} of {n_judged} pass ({kind}; only those of `reference` should)")
    echo(f"the scores are {result.rubric.metric} of the run, apart from all other measures")
