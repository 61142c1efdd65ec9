"""Kills, stops, starves, deceives, damages and edits runs, and feeds garbage to every reader; writes what survived.

    make torture                                                  # all of it; the table goes to results/survival.md
    PYTHONPATH=tests python tests/hostile/torture.py kills disks  # these parts; their rows of the table are made again
    PYTHONPATH=tests python tests/hostile/torture.py --short      # a few cases of each, as `make test` does it

Each part is a driver in tests/support that counts its cases and names what failed. What a part found is kept in
results/torture.json, so that they may be run one after another. The exit code is the number of failures, 100 at most.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from support.child_processes import PRELOADED

SEED = 20261123
RESULTS = Path(__file__).parents[2] / "results"
STATE_FILE, TABLE = RESULTS / "torture.json", RESULTS / "survival.md"
PARTS = {
    # Part: its driver in tests/support, cases, and cases of a short run.
    "kills": ("interruptions", 100, 3),
    "stops": ("interruptions", 30, 3),
    "disks": ("interruptions", 40, 4),
    "faults": ("server_faults", 200, 6),
    "damage": ("damage", 120, 6),
    "inputs": ("fuzzing", 100_000, 300),
    "edits": ("edits", 5_000, 200),
    "strings": ("sinks", 0, 0),
}
FAILED = """A case failed where anything of this is not so: no traceback, no hang (2 s of the processor for an input),
at most one line of error, no process above 500 MB (faults and inputs; 600 for damage), the run continues with
`--resume`, nothing finished is repeated, no fact is left in a temporary folder, and in the end all numbers are those of
an undisturbed run."""


def played(part: str, cases: int, seed: int) -> dict[str, Any]:
    """Run a part; return its name, number of cases, seconds and counts of failures."""
    started, count = time.monotonic(), 0
    failures: Counter[str] = Counter()
    # Not a TemporaryDirectory: each child would delete that at its end.
    folder = Path(tempfile.mkdtemp(prefix="torture-"))
    try:
        unit, result = import_module(f"support.{PARTS[part][0]}").play(
            cases, folder, random.Random(f"{seed}/{part}"), part
        )
        for failure in result:
            count += 1
            if failure is not None:
                failures[failure] += 1
    except KeyboardInterrupt:
        unit = f"{unit}; broken off"
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return {"cases": count, "of": unit, "seconds": round(time.monotonic() - started), "failures": dict(failures)}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)} (default: all)")
    parser.add_argument("--short", action="store_true", help="a few cases of each; nothing is written then")
    parser.add_argument("--seed", type=int, default=SEED)
    chosen = parser.parse_args()
    if unknown := set(chosen.parts) - set(PARTS):
        parser.error(f"there is no part {', '.join(unknown)}")
    for module in PRELOADED:
        import_module(module)
    # Ctrl-C, or `kill -INT`, ends the part that is at work, and what it has found is kept.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    failed = 0
    for part in chosen.parts or PARTS:
        result = played(part, PARTS[part][2 if chosen.short else 1], chosen.seed)
        failed += sum(result["failures"].values())
        print("\n".join(lines(part, result)), flush=True)
        if not chosen.short:
            stored = json.loads(STATE_FILE.read_text()) if STATE_FILE.exists() else {}
            STATE_FILE.write_text(json.dumps({**stored, part: {**result, "seed": chosen.seed}}, indent=1))
            TABLE.write_text(table(json.loads(STATE_FILE.read_text())), encoding="utf-8")
    return min(100, failed)


def lines(part: str, results: dict[str, Any]) -> Iterator[str]:
    failed = sum(results["failures"].values())
    yield f"{part}: {results['cases']} cases ({results['of']}), {failed} failed, {results['seconds']} s"
    for failure, times in list(results["failures"].items())[:40]:
        yield f"    {times} x {failure}"


def table(results: dict[str, Any]) -> str:
    parts = [(part, results[part]) for part in PARTS if part in results]
    rows = [
        f"| {part} | {result['cases']:,} | {result['of']} | {sum(result['failures'].values())} | {result['seconds']} |"
        for part, result in parts
    ]
    texts = [
        f"* {part}: {times} x {what}" for part, result in parts for what, times in list(result["failures"].items())[:20]
    ]
    seeds = ", ".join(map(str, sorted({result["seed"] for _, result in parts})))
    return "\n".join(
        [
            *("# What survives", "", f"`make torture`, seed {seeds}. {FAILED}".replace("\n", " "), ""),
            *("| part | cases | of | failed | seconds |", "| --- | ---: | --- | ---: | ---: |", *rows, ""),
            *(["What failed:", "", *texts, ""] if texts else ["Nothing failed.", ""]),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
