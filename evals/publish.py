"""Prints the published tables of finished runs as Markdown: a section per data set, with n and detectable differences.

python evals/publish.py results/squad2 results/pyfaq > results/document_flows.md
python evals/publish.py --phases results/research                # and where the calls go
python evals/publish.py --study results/study.md results/study/*/   # as `make study` does: the other sets stay
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agentlab.core.files import read_text, write_atomically
from agentlab.evals.compare.causes import causes
from agentlab.evals.compare.headline import recommend
from agentlab.evals.compare.pairs import compare
from agentlab.evals.store.measures import format_number, summary_rows
from agentlab.lab.run import Run, open_run

STUDY = """# The reference study

Flows that answer and remember, on a 1.5B model. Every set is played whole.

* Detectable differences, planned before the runs: [study_plan.md](study_plan.md). They came out larger than planned.
* Findings: [README.md](README.md). Recording and surprises: [LOG.md](LOG.md). Picture: [study.svg](study.svg).
* Latency is no measure here, because the machine did other work and paused the model at times.
* The sections assistant, laws, memory and research are graded on 2026-11-26, from recordings. Their intervals assume no
  distribution and count one unseen conversation. So a difference may be shown while its interval contains 0
  ([error_rates.md](error_rates.md)).
* The sections mtrag_human, pyfaq and squad2 keep the narrower bootstrap intervals of their recording. Their ranks are
  taken back.
* `p adj.` is adjusted over the primary measures of one flow against those after it. A p below .0001 belongs to a
  difference that is the same in every conversation.
* `detectable` is the difference that 80 % of such comparisons find. Smaller ones are probably missed.
* `groundedness` is the share of a claim's words in the passages or in the question.
  A reply without a claim has 1.
"""
PAIRS = ("A", "B", "measure", "n", "A's mean", "B's mean", "B - A", "95 %", "p adj.", "detectable", "verdict")


def section(run: Run, phases: bool) -> list[str]:
    summary = run.summary
    flows: dict[str, Any] = summary["flows"]
    (name,) = summary["datasets"]
    spec = run.folder.header["spec"]
    each, (verdict, _) = list(run.result.flows.values()), recommend(run)
    lines = [
        f"## {name}",
        "",
        f"`{_command(spec)}`",
        "",
        f"{summary['model']}, {summary['conversations']} conversations"
        + (f" drawn with seed {spec['sample']}" if spec["sample"] is not None else "")
        + f", {each[0].turns} graded turns a flow.",
        "",
        *_table(
            ("", *flows),
            ((title, *cells) for part in summary_rows(each) for _, title, cells in part if {*cells} != {"-"}),
        ),
        *(f"* {line}" for line in (verdict.sentence, *verdict.notes)),
        "",
        "Primary measures, each flow against the flows below it:",
        "",
        *_table(PAIRS, _pairs(run, list(flows))),
        *_why(run, flows),
    ]
    return [*lines, *(_by_phase(flows) if phases else ())]


def _table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> list[str]:
    first, *others = columns
    titles = [f"| {' | '.join((first, *others))} |".replace("|  |", "| |"), f"| --- |{' ---: |' * len(others)}"]
    return [*titles, *(f"| {' | '.join(row)} |" for row in rows), ""]


def _pairs(run: Run, flows: list[str]) -> Iterator[tuple[str, ...]]:
    """The first two flows and those with parts off, each against the flows after it; each of these is a family."""
    leads = [
        flow
        for number, flow in enumerate(flows[:-1])
        if number < 2 or any(other.startswith(f"{flow}_no_") for other in flows)
    ]
    for lead in leads:
        for pair in compare(run, flows=flows[flows.index(lead) :]).pairs:
            for d in (d for d in pair.differences if d.primary):
                p = "-" if d.p_adjusted is None else f"{d.p_adjusted:.2g}" if d.p_adjusted >= 0.0001 else "< 0.0001"
                amounts = (
                    d.measure.show(d.a),
                    d.measure.show(d.b),
                    format_number(d.difference, "+"),
                    d.interval or "-",
                    p,
                    format_number(d.detectable_loss),
                )
                yield pair.a, pair.b, d.measure.name, str(d.n), *amounts, d.words


def _why(run: Run, flows: Mapping[str, Any]) -> list[str]:
    """Return the poor turns by cause."""
    counted: dict[str, Counter[str]] = {flow: Counter() for flow in flows}
    for result in causes(run):
        counted[result.flow][result.cause] += 1
    everywhere = sum(counted.values(), Counter[str]())
    rows = [(cause, *(str(own[cause]) for own in counted.values())) for cause, _ in everywhere.most_common()]
    total = ("poor turns", *(str(own.total()) for own in counted.values()))
    return ["Why turns were poor, by the earliest step that went wrong:", "", *_table(("", *flows), [total, *rows])]


def _by_phase(flows: dict[str, Any]) -> list[str]:
    """Calls, input tokens and seconds a turn by phase, in the order the phases first appear."""
    names = dict.fromkeys(phase for flow in flows.values() for phase in flow["phases"])
    rows = []
    for name in names:
        cells = []
        for flow in flows.values():
            phase = flow["phases"].get(name)
            amounts = phase and [phase[key] / flow["turns"] for key in ("calls", "input_tokens", "seconds")]
            cells.append("{:.1f} / {:.0f} / {:.1f}".format(*amounts) if amounts else "-")
        rows.append((name, *cells))
    caption = (
        "By phase: events / input tokens / seconds a turn. Events are model and embedding calls, searches, tools' runs"
        " and operations of memory."
    )
    return [caption, "", *_table(("", *flows), rows)]


def _command(spec: dict[str, Any]) -> str:
    """Return the command that repeats the run: a spec of evals/, with the public set if it has one."""
    study = Path("evals/study") / f"{spec['name'].removeprefix('study_')}.yaml"
    if study.is_file() and spec["name"].startswith("study_"):
        sets = Path(spec["datasets"][0]).parent
        return f"agentlab run {study} --mode replay" if sets == Path("datasets") else "make study SETS=FOLDER"
    recorded = Path("evals/recorded") / f"{spec['name']}.yaml"
    if recorded.is_file():
        return f"agentlab run {recorded} --mode replay"
    (data,) = spec["datasets"]
    return f"agentlab run evals/{spec['name']}.yaml --dataset {data} --limit {spec['limit']}"


def whole(page: str, made: Mapping[str, str]) -> str:
    """Return the study's page with the new sections, in the order of names; other sections stay unchanged."""
    sections = {
        part.partition("\n")[0]: f"## {part.rstrip()}\n" for part in re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    }
    return "\n".join([STUDY, *(text for _, text in sorted({**sections, **made}.items()))])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", help="a finished run folder")
    parser.add_argument("--phases", action="store_true", help="also what each phase costs")
    parser.add_argument("--study", type=Path, metavar="PAGE", help="the page of the study, which takes these sets in")
    arguments = parser.parse_args()
    sections = ["\n".join(section(open_run(path), arguments.phases)) for path in arguments.run]
    if arguments.study is None:
        print("\n".join(sections))
        return
    page = read_text(arguments.study) if arguments.study.is_file() else ""
    made = {text.partition("\n")[0].removeprefix("## "): text.rstrip() + "\n" for text in sections}
    write_atomically(arguments.study, whole(page, made))


if __name__ == "__main__":
    main()
