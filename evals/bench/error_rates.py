"""Simulates runs and counts how many sentences of agentlab are false, and how many true ones it prints.

    python evals/bench/error_rates.py                       # results/error_rates.md; continues after an interruption
    python evals/bench/error_rates.py --runs 100 --only Ship    # a quick look at one section; the page is printed

Each cell of a table simulates `--runs` runs with a seed of its own. Sections are in `rates_*.py`, the frame is
`rates.py`. A rate that misses its promise by more than two standard errors is marked with `!`. Cells of other code,
by its checksum, are simulated again.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path

import rates
import rates_claims
import rates_gate
import rates_ship

SECTIONS = (*rates_ship.SECTIONS, *rates_claims.SECTIONS, *rates_gate.SECTIONS)
PAGE = Path(__file__).parents[2] / "results" / "error_rates.md"


def main() -> None:
    """Write the page; with `--only` print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200, help="simulated runs a cell (default: 200)")
    parser.add_argument("--only", default="", help="part of the title of the sections to simulate (default: all)")
    parser.add_argument("--state", type=Path, default=Path(tempfile.gettempdir()) / "error_rates.jsonl")
    parser.add_argument("--write", action="store_true", help="write the page with --only, too")
    options = parser.parse_args()
    chosen = [section for section in SECTIONS if options.only.lower() in section.title.lower()]
    rated = rates.simulate(chosen, options.runs, options.state)
    head = (
        "# Error rates\n\n"
        f"`python evals/bench/error_rates.py` makes this page: {options.runs} simulated runs a cell, standard error at"
        f" .05 {math.sqrt(0.05 * 0.95 / options.runs):.3f}. `!` marks a rate that misses its promise by more than two"
        f" standard errors. Columns are numbers of conversations. All cells are of one code, checksum `{rates.code()}`;"
        " `-` marks a cell that this code has not simulated."
    )
    is_written = not options.only or options.write
    text = rates.page(SECTIONS if is_written else chosen, options.runs, rated, head)
    if is_written:
        PAGE.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
