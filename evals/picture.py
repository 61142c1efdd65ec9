"""Draws finished runs as one picture: how often each flow is right on each set, with its interval, beside its price.

python evals/picture.py results/study/*/ > results/study.svg       # as `make study` does
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from html import escape

from agentlab.evals.results.rows import FlowSummary
from agentlab.evals.results.run import Run, open_run

MEASURE = "answer_correctness"
WIDTH, ROW, GAP, TOP = 760, 20, 26, 62
"""Pixels; GAP is the height of a set's name."""
SCALE = (200, 560)
"""Where 0 and 1 of the measure stand."""
PRICES = (635, 735)
"""Where the columns of prices end."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#000000")
"""Okabe and Ito's, which readers who do not see all colours can tell apart."""


def picture(runs: list[Run]) -> Iterator[str]:
    """The lines of an SVG file."""
    flows = dict.fromkeys(label for run in runs for label in run.result.flows)
    colours = {flow: COLOURS[place % len(COLOURS)] for place, flow in enumerate(flows)}
    height = TOP + sum(GAP + ROW * len(run.result.flows) for run in runs) + 12
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
        ' font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#222222">'
    )
    yield f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    yield _text(SCALE[0], 20, "right answers, with the 95 % interval over conversations", "start")
    yield from (_text(x, 20, title, "end") for x, title in zip(PRICES, ("LLM calls", "input tokens"), strict=True))
    yield from (_text(x, 36, "a turn", "end") for x in PRICES)
    for tenth in range(0, 11, 2):
        x = _place(tenth / 10)
        yield _text(x, 40, f"{tenth / 10:.1f}", "middle")
        yield f'<line x1="{x}" y1="46" x2="{x}" y2="{height - 8}" stroke="#dddddd"/>'
    y = TOP
    for run in runs:
        (name,) = run.summary["datasets"]
        yield _text(14, y + 6, f"{name}: {run.summary['conversations']} conversations", "start", "bold")
        y += GAP
        for flow, summary in run.result.flows.items():
            yield from _row(flow, summary, y, colours[flow])
            y += ROW
    yield "</svg>"


def _row(flow: str, summary: FlowSummary, y: int, colour: str) -> Iterator[str]:
    yield _text(26, y + 4, flow, "start")
    score = summary.scores.get(MEASURE)
    if score is not None and score.mean is not None:
        if score.ci95 is not None:
            low, high = map(_place, score.ci95)
            yield f'<line x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
        yield f'<circle cx="{_place(score.mean)}" cy="{y}" r="5" fill="{colour}"/>'
    for x, spent, digits in zip(PRICES, (summary.llm_calls, summary.input_tokens), (2, 0), strict=True):
        yield _text(x, y + 4, "-" if spent is None else f"{spent / summary.turns:,.{digits}f}", "end")


def _place(value: float) -> float:
    return round(SCALE[0] + value * (SCALE[1] - SCALE[0]), 1)


def _text(x: float, y: float, said: str, anchor: str, weight: str = "normal") -> str:
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}">{escape(said)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", nargs="+", help="a finished run folder")
    print("\n".join(picture([open_run(path) for path in parser.parse_args().run])))


if __name__ == "__main__":
    main()
