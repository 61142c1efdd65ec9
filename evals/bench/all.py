"""Runs the benchmarks of speed one after the other and writes what they print to results/speed.md.

    python evals/bench/all.py [--quick]        # make bench

Each is a script that prints a Markdown table and can be run alone. `--quick` asks each for one round.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
from datetime import date
from pathlib import Path

BENCH = Path(__file__).parent
RESULTS = BENCH.parents[1] / "results" / "speed.md"
BENCHES = {
    "The live path and replay, beside bare loops": ["live.py", "--full"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round of each")
    rounds = ["--rounds", "1"] if parser.parse_args().quick else []
    machine = f"{os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    parts = [f"# Speed\n\nMade by `make bench` on {date.today()}: {machine}. What each script does stands at its top."]
    for title, (script, *options) in BENCHES.items():
        command = [sys.executable, str(BENCH / script), *options, *rounds]
        print(f"{title}:", flush=True)
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603
            assert process.stdout is not None
            said = ""
            for line in process.stdout:
                print(line, end="", flush=True)
                said += line
        if process.returncode:
            raise SystemExit(f"{script} failed")
        parts.append(f"## {title}\n\n`python evals/bench/{script}`\n\n{said.strip()}")
    RESULTS.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    print(f"written to {RESULTS.relative_to(BENCH.parents[1])}")


if __name__ == "__main__":
    main()
