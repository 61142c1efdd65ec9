"""Prints the published table of finished runs as Markdown: one section a data set, with n and what n could have shown.

python evals/publish.py results/squad2 results/pyfaq > results/document_flows.md
python evals/publish.py --phases results/research                                   # and where the calls go
python evals/publish.py --study results/study/*/ > results/study.md                  # as `make study` does
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from agentlab.evals.compare.measures import summary_rows
from agentlab.evals.report.verdict import verdict_on
from agentlab.evals.results.run import Run, open_run

STUDY = """# The reference study

Ways of answering and remembering on a model that can answer, each set taken whole. What it could show was said before
it was run: [study_plan.md](study_plan.md); what it says about which flow to use: [README.md](README.md); how it was
recorded, and what was not expected: [LOG.md](LOG.md); as a picture: [study.svg](study.svg). Sets that are not below are
not run yet. Latency is no measure here: the machine did other work meanwhile, and the model stood still at times.
"""


def section(run: Run, phases: bool) -> list[str]:
    summary = run.summary
    flows: dict[str, Any] = summary["flows"]
    header = run.folder.header
    (name,) = summary["datasets"]
    spec = header["spec"]
    command = _command(spec)
    each = list(run.result.flows.values())
    lines = [
        f"## {name}",
        "",
        f"`{command}`",
        "",
        f"{summary['model']}, {summary['conversations']} conversations"
        + (f" drawn with seed {spec['sample']}" if spec["sample"] is not None else "")
        + f", {each[0].turns} graded turns a flow.",
        "",
        f"| | {' | '.join(flows)} |",
        f"| --- |{' ---: |' * len(flows)}",
    ]
    for title, cells in (row for part in summary_rows(each) for row in part):
        if set(cells) != {"-"}:
            lines.append(f"| {title} | {' | '.join(cells)} |")
    lines += ["", *(f"* {line}" for line in verdict_on(run)[0].notes), ""]
    return [*lines, *(_by_phase(flows) if phases else ())]


def _by_phase(flows: dict[str, Any]) -> list[str]:
    """Calls, input tokens and seconds a turn by phase, in the order the phases first appear."""
    names = dict.fromkeys(phase for flow in flows.values() for phase in flow["phases"])
    lines = [
        "By phase: events / input tokens / seconds a turn. Events are model and embedding calls, searches, tools' runs"
        " and operations of memory.",
        "",
        f"| | {' | '.join(flows)} |",
        f"| --- |{' ---: |' * len(flows)}",
    ]
    for name in names:
        cells = []
        for flow in flows.values():
            phase = flow["phases"].get(name)
            amounts = phase and [phase[key] / flow["turns"] for key in ("calls", "input_tokens", "seconds")]
            cells.append("{:.1f} / {:.0f} / {:.1f}".format(*amounts) if amounts else "-")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return [*lines, ""]


def _command(spec: dict[str, Any]) -> str:
    """What makes the run again: a spec of evals/ that names its data, or one that is told which public set to play."""
    study = Path("evals/study") / f"{spec['name'].removeprefix('study_')}.yaml"
    if study.is_file() and spec["name"].startswith("study_"):
        sets = Path(spec["datasets"][0]).parent
        return "make study" if sets == Path("datasets") else "make study SETS=FOLDER"
    recorded = Path("evals/recorded") / f"{spec['name']}.yaml"
    if recorded.is_file():
        return f"agentlab run {recorded} --mode replay"
    (data,) = spec["datasets"]
    return f"agentlab run evals/{spec['name']}.yaml --dataset {data} --limit {spec['limit']}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", help="a finished run folder")
    parser.add_argument("--phases", action="store_true", help="also what each phase costs")
    parser.add_argument("--study", action="store_true", help="with the head of the page on the reference study")
    arguments = parser.parse_args()
    if arguments.study:
        print(STUDY)
    for path in arguments.run:
        print("\n".join(section(open_run(path), arguments.phases)))


if __name__ == "__main__":
    main()
