"""What the command line shows: progress with an ETA, the comparison table, download bars, lists."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, DownloadColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from agentlab.evals.results import Run
from agentlab.evals.run_folder import RunFolder
from agentlab.evals.runner import Progress as RunProgress
from agentlab.evals.statistics import smallest_visible_difference
from agentlab.models import weights


class _Display:
    """A progress bar on stderr, so that tables on stdout can be piped."""

    def __init__(self, *columns: Any) -> None:
        self._progress = Progress(*columns, console=Console(stderr=True))
        self._tasks: dict[str, Any] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._tasks:
            self._progress.stop()


class RunDisplay(_Display):
    def __init__(self) -> None:
        label = TextColumn("{task.description}", markup=False)
        super().__init__(TextColumn("turns"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), label)

    def update(self, progress: RunProgress) -> None:
        if "run" not in self._tasks:
            self._progress.start()
            self._tasks["run"] = self._progress.add_task("", total=progress.total)
        failed = f"  {progress.failed} failed" if progress.failed else ""
        self._progress.update(self._tasks["run"], completed=progress.done, description=progress.label + failed)
        # Without a terminal rich draws only once; a log of a CI job still wants to see that something moves.
        if not self._progress.console.is_terminal and progress.done:
            left = progress.seconds_left
            eta = "" if left is None else f", about {left / 60:.0f} min left"
            self._progress.console.print(f"turn {progress.done} of {progress.total}{eta}{failed}", highlight=False)


class DownloadDisplay(_Display):
    def __init__(self) -> None:
        super().__init__(TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TimeRemainingColumn())

    def update(self, file: str, done: int, total: int) -> None:
        if file not in self._tasks:
            self._progress.start()
            self._tasks[file] = self._progress.add_task(file, total=total)
        self._progress.update(self._tasks[file], completed=done)


def show_comparison(run: Run, console: Console | None = None) -> None:
    """The table of a run: one row a measure, one column a flow, intervals at 95 %."""
    # Cut to 80 columns the table would be unreadable in a log, where nobody asked for 80.
    console = console or Console(width=None if Console().is_terminal else 120)
    summary = run.summary
    flows: dict[str, Any] = summary["flows"]
    title = escape(f"{', '.join(summary['datasets'])} on {summary['model']}")
    table = Table(title=title, title_justify="left")
    table.add_column("")
    for label in flows:
        table.add_column(escape(label), justify="right")

    def row(name: str, values: list[str]) -> None:
        table.add_row(name, *values)

    each = list(flows.values())
    row("turns (failed)", [f"{f['turns']} ({f['errors']})" for f in each])
    for name, key in (("LLM", "llm"), ("embedding", "embedding"), ("tool", "tool")):
        row(f"{name} calls / turn", [f"{f[f'{key}_calls_per_turn']:.2f}" for f in each])
    row("fallback rate", [f"{f['fallback_rate']:.2f}" for f in each])
    row("input tokens / turn", [_per_turn(f["input_tokens"], f["turns"]) for f in each])
    row("output tokens / turn", [_per_turn(f["output_tokens"], f["turns"]) for f in each])
    row("cost USD", ["-" if f["cost_usd"] is None else f"{f['cost_usd']:.4f}" for f in each])
    row("latency s, mean (p95)", [f"{f['latency_s']['mean']:.1f} ({f['latency_s']['p95']:.1f})" for f in each])
    table.add_section()
    metrics = list(dict.fromkeys(metric for f in each for metric in f["scores"]))
    for metric in metrics:
        n = max(f["scores"].get(metric, {"n": 0})["n"] for f in each)
        row(f"{metric} (n={n})", [_score(f["scores"].get(metric)) for f in each])
    console.print(table)
    for line in visible_differences(run):
        console.print(line, highlight=False, markup=False)
    console.print(f"run folder: {run.path}", highlight=False, markup=False, soft_wrap=True)
    if summary["status"] != "complete":
        console.print("The run stopped early: the budget is spent. Go on with --resume and a larger one.")


def visible_differences(run: Run) -> list[str]:
    """For each pair with the first flow: the smallest difference in answer F1 that so few turns could have shown."""
    scores = run.scores
    if scores.empty or "answer_f1" not in set(scores["metric"]):
        return []
    wide = scores[scores["metric"] == "answer_f1"].pivot_table(
        index=["conversation", "turn", "epoch"], columns="flow", values="value"
    )
    labels = [label for label in run.summary["flows"] if label in wide.columns]
    lines = []
    for label in labels[1:]:
        pairs = wide[[labels[0], label]].dropna()
        clusters = [str(conversation) for conversation in pairs.index.get_level_values("conversation")]
        differences = (pairs[label] - pairs[labels[0]]).tolist()
        visible = smallest_visible_difference(differences, clusters) if differences else None
        if visible is None:
            shown = "unknown, with fewer than two conversations"
        elif not any(differences):
            shown = "unknown, as no turn differs"
        else:
            shown = f"{visible:.2f}"
        lines.append(f"smallest visible difference in answer_f1, {label} against {labels[0]} (80 % power): {shown}")
    return lines


def _per_turn(number: int | None, turns: int) -> str:
    return "-" if number is None else f"{number / turns:.0f}"


def _score(score: dict[str, Any] | None) -> str:
    if score is None:
        return "-"
    if score["ci95"] is None:
        return f"{score['mean']:.2f}"
    return f"{score['mean']:.2f} [{score['ci95'][0]:.2f}, {score['ci95'][1]:.2f}]"


def list_weights(kind: Any) -> None:
    for name in weights.names(kind):
        state = "here" if weights.is_present(name) else f"agentlab pull {name}"
        entry = weights.CATALOGUE[name]
        megabytes = sum(file.bytes for file in entry.files) / 1e6
        print(f"local/{name:32} {megabytes:6.0f} MB  {entry.licence}  ({state})")


def list_runs() -> None:
    for file in sorted(Path("results").glob("*/run.json")):
        header = RunFolder.open(file.parent).header
        state = "complete" if (file.parent / "summary.json").exists() else "not finished"
        print(f"{file.parent}  {header['started']}  {header['spec']['model']}  {state}")
