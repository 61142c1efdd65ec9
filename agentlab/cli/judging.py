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
from agentlab.evals.judge.labels import add_rows, read_labels
from agentlab.lab.judging import DEFAULT_JUDGE_MODEL
from agentlab.lab.judging import judge as judge_run
from agentlab.lab.run import open_run


def judge(arguments: argparse.Namespace) -> None:
    if arguments.suggest and not arguments.labels:
        raise ConfigError("--suggest needs --labels FILE, the file to write the replies to")
    if arguments.labels and not arguments.suggest and not Path(arguments.labels).exists():
        raise ConfigError(f"{arguments.labels} does not exist; create it with --suggest 20")
    run = open_run(arguments.run)
    model = arguments.model or DEFAULT_JUDGE_MODEL
    if model in run.header["models"].values():
        echo(f"{model} also wrote the replies, and judges favour their own; choose another one with --model")
    options = spec_overrides(arguments, ("mode", "recordings", "concurrency"))
    with Display() as display:
        report = judge_run(
            run,
            arguments.rubric,
            model=model,
            labels=arguments.labels,
            known_answers=arguments.known_answers,
            prepare=fetch,
            on_progress=partial(display.count, "judged"),
            **options,
        )
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
