"""Kills, stops, starves, deceives and damages runs, and feeds garbage to every reader; prints and writes what survived.

    make torture                                                    # all of it; the table goes to results/survival.md
    PYTHONPATH=tests python tests/hostile/torture.py --part kills --cases 6     # one part, as `make test` does it

Each part is a driver in tests/support that counts its cases and names what failed. The exit code is the number of
failures, 100 at the most.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from support.forks import PRELOADED
from support.interruptions import SET_UPS, SetUp, interrupted

SEED = 20261123
RESULTS = Path(__file__).parents[2] / "results" / "survival.md"


@dataclass
class Tally:
    part: str
    cases: int = 0
    unit: str = ""
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0
    until: float = float("inf")
    """No case is begun after that."""


def interruptions(how: str) -> Callable[[Tally, int, Path, random.Random], None]:
    def work(tally: Tally, cases: int, folder: Path, chance: random.Random) -> None:
        tally.unit = "a run disturbed so often, over five set-ups"
        for number, name in enumerate(list(SET_UPS)[: max(1, cases // 3)]):
            set_up = SetUp(folder / str(number), name)
            share = cases // len(SET_UPS) + (number < cases % len(SET_UPS)) if cases >= 3 * len(SET_UPS) else 3
            while share > 0 and tally.cases < cases and time.monotonic() < tally.until:
                times = min(share, 4)
                tally.failures += [f"{name}: {failure}" for failure in interrupted(set_up, how, chance, times)]
                tally.cases += times
                share -= times

    return work


def other(name: str) -> Callable[[Tally, int, Path, random.Random], None]:
    def work(tally: Tally, cases: int, folder: Path, chance: random.Random) -> None:
        found: Iterator[str | None]
        tally.unit, found = import_module(f"support.{name}").play(cases, folder, chance)
        for failure in found:
            tally.cases += 1
            if failure is not None:
                tally.failures.append(failure)
            if time.monotonic() > tally.until:
                return

    return work


PARTS = {
    "kills": (interruptions("SIGKILL"), 100),
    "stops": (interruptions("SIGTERM"), 20),
    "disks": (interruptions("full disk"), 30),
    "faults": (other("server_faults"), 200),
    "damage": (other("damage"), 120),
    "fuzzing": (other("fuzzing"), 100_000),
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", action="append", choices=PARTS, help="only this one; nothing is written then")
    parser.add_argument("--cases", type=int, help="how many of each (default: from 20 stops to 100,000 inputs)")
    parser.add_argument("--most-seconds", type=float, default=900.0, help="of a part (default: 900)")
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    for module in PRELOADED:
        import_module(module)
    tallies = []
    for name in chosen.part or PARTS:
        work, cases = PARTS[name]
        began = time.monotonic()
        tally = Tally(name, until=began + chosen.most_seconds)
        # Not a TemporaryDirectory: each child would delete that at its end.
        folder = Path(tempfile.mkdtemp(prefix="torture-"))
        try:
            work(tally, chosen.cases or cases, folder, random.Random(f"{chosen.seed}/{name}"))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        tally.seconds = time.monotonic() - began
        tallies.append(tally)
        print("\n".join(_lines(tally)), flush=True)
    if not chosen.part:
        RESULTS.write_text(_table(tallies, chosen.seed, chosen.most_seconds), encoding="utf-8")
    return min(100, sum(len(tally.failures) for tally in tallies))


def _lines(tally: Tally) -> Iterator[str]:
    yield f"{tally.part}: {tally.cases} cases ({tally.unit}), {len(tally.failures)} failed, {tally.seconds:.0f} s"
    for failure, times in Counter(tally.failures).most_common(40):
        yield f"    {times} x {failure}"


def _table(tallies: list[Tally], seed: int, most_seconds: float) -> str:
    rows = [f"| {t.part} | {t.cases} | {t.unit} | {len(t.failures)} | {t.seconds:.0f} |" for t in tallies]
    told = [f"* {t.part}: {times} x {what}" for t in tallies for what, times in Counter(t.failures).most_common(20)]
    return "\n".join(
        [
            "# What survives",
            "",
            f"`make torture`, seed {seed}. A case failed where anything of this is not so: no traceback, no hang, no",
            "process above 500 MB, at most one line of error, the run goes on with `--resume`, nothing finished is",
            "repeated, and in the end all numbers are those of an undisturbed run.",
            "",
            f"A part begins no case after {most_seconds:.0f} s: `cases` is how many there were until then.",
            "",
            "| part | cases | of | failed | seconds |",
            "| --- | ---: | --- | ---: | ---: |",
            *rows,
            "",
            *(["What failed:", "", *told, ""] if told else []),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
