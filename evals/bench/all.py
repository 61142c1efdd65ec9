"""Runs the benchmarks of speed one after the other and writes what they print to results/speed.md.

    python evals/bench/all.py [--quick]        # make bench

Each is a script that prints a Markdown table and can be run alone. The page shows each figure beside its target,
and lists the figures that miss it first. With `--quick` each script plays one round. Other programs of the machine cost
time, and CPU time, too. So each script compares agentlab with another program that runs in turn with it.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import date
from pathlib import Path

BENCH = Path(__file__).parent
RESULTS = BENCH.parents[1] / "results" / "speed.md"
PAGE = str(RESULTS.with_name("scale.md"))
BENCHES = {
    "The live path and replay, beside bare loops": ["live.py"],
    "What a provider allows, and what is used of it": ["limits.py"],
    "Grading a turn": ["grading.py"],
    "A long run: playing, grading and folding, opening, comparing": ["store.py", "--turns", "10000", "--flows", "5"],
    "Search among 50,000 passages, beside a bare scan": ["search.py"],
    "Two processes beside one, and a plan of many conversations": [
        "scale.py",
        "--conversations",
        "8000",  # fewer, and it is the start of the processes that is measured
        "--page",
        PAGE,
    ],
}
"""About a quarter of an hour on two idle cores."""


def _missed(part: str) -> Iterator[list[str]]:
    """Yield, for each row with a figure that misses its target, its first cell and that figure."""
    for line in part.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")]
        if "**missed**" in line:
            yield [*cells[:2], *(cell for cell in cells[2:] if "**missed**" in cell)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of each")
    rounds = ["--rounds", "1"] if parser.parse_args().quick else ["--full"]
    busy = os.getloadavg()[0]
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}, load {busy:.0f} before"
    started, parts = time.monotonic(), list[str]()
    for title, (script, *options) in BENCHES.items():
        options += [each for each in rounds if each != "--full" or script == "live.py"]
        print(f"{title}:", flush=True)
        with subprocess.Popen(  # noqa: S603
            [sys.executable, str(BENCH / script), *options], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            block = ""
            for line in process.stdout:
                print(line, end="", flush=True)
                block += line
        if process.returncode:
            raise SystemExit(f"{script} failed")
        # Headings of inner pages are one level lower.
        block = re.sub(r"^#+ ", lambda mark: f"##{mark[0]}", block.strip(), flags=re.MULTILINE)
        typed = " ".join(["python evals/bench/" + script, *options]).replace(str(RESULTS.parent), "results")
        parts.append(f"## {title}\n\n`{typed}`\n\n{block}")
        # An early end keeps the figures so far.
        minutes = (time.monotonic() - started) / 60
        RESULTS.write_text(page(parts, f"{machine}, {minutes:.0f} minutes"), encoding="utf-8")
    print(f"written to {RESULTS.relative_to(BENCH.parents[1])}")


def page(parts: list[str], machine: str) -> str:
    missed = [f"- {' '.join(cells)}" for part in parts for cells in _missed(part)]
    head = f"# Speed\n\nMade by `make bench` on {date.today()}: {machine}. The docstring of each script describes it."
    summary = "\n".join([f"{len(missed)} figures miss their target:", "", *missed]) if missed else "No figure misses."
    return "\n\n".join([head, summary, *parts]) + "\n"


if __name__ == "__main__":
    main()
