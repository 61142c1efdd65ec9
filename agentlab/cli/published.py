"""Commands for existing answers: `agentlab import`, `score` and `reproduce`."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from agentlab.cli.echo import echo
from agentlab.cli.progress import Display
from agentlab.cli.terminal import show_run
from agentlab.core.constants import JUDGE_METRIC_PREFIX
from agentlab.core.errors import ConfigError
from agentlab.evals.published.page import markdown, sections
from agentlab.evals.published.reproduce import reproduce as reproduce_pack
from agentlab.evals.report.gate_files import save
from agentlab.evals.report.tables import new_console, print_line, print_table
from agentlab.lab.regrading import score as score_run
from agentlab.lab.run import import_predictions, open_run

COMPARED_AT_ONCE = 200_000
"""A comparison holds every turn in memory; the import before it does not."""


def score(arguments: argparse.Namespace) -> None:
    graders = open_run(arguments.run, regrade=True).header["graders"]
    with Display() as display:
        run = score_run(arguments.run, arguments.scorer, arguments.primary, partial(display.count, "graded"))
    # Show every measure if the user named the scorers.
    show_run(run, arguments.all or bool(arguments.scorer))
    if lost := [name for name in graders if name.startswith(JUDGE_METRIC_PREFIX)]:
        echo(f"{', '.join(lost)} was dropped; `agentlab judge {arguments.run}` adds it again from recordings")


def _note(line: str) -> None:
    echo(f"note: {line}", error=True)


def import_answers(arguments: argparse.Namespace) -> None:
    source = Path(arguments.path)
    out = arguments.out or Path("results") / (source if source.is_dir() else source.parent).resolve().name

    options = {"dataset": arguments.dataset, "primary": arguments.primary, "note": _note}
    with Display() as display:
        run = import_predictions(source, out, **options, on_progress=display.count)
    show_run(run, max_turns=COMPARED_AT_ONCE)


def reproduce(arguments: argparse.Namespace) -> int:
    if arguments.out and len(arguments.packs) > 1:
        raise ConfigError("--out takes one pack; leave it out, or name one pack")
    console, page, agrees = new_console(), [], True
    for folder in arguments.packs:
        result = reproduce_pack(folder, arguments.out, _note)
        agrees &= result.agrees
        parts = list(sections(result))
        page.append(markdown(parts, result.pack.name))
        for part in parts:
            if isinstance(part, str):
                print_line(console, part)
            else:
                print_table(console, part.title, part.columns, part.rows)
    if arguments.markdown:
        packs = " ".join(f"PACKS/{Path(folder).resolve().name}" for folder in arguments.packs)
        command = f"agentlab reproduce {packs} --markdown {arguments.markdown}"
        title = f"# Published answers, regraded\n\nMade by `{command}`.\n\n"
        save(title + "\n".join(page), arguments.markdown)
    return 0 if agrees else 2
