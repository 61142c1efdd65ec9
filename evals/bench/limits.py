"""Measures the used share of a provider's limits and the refused calls, for runs without prior knowledge.

    python evals/bench/limits.py [--allowed 600] [--minute 60] [--seconds 90] [--silent]

`loopback.py` lets `--allowed` requests through in a "minute" of `--minute` seconds, evenly, a tenth of them at once at
the beginning. A run of agentlab with 100 conversations in flight plays for about `--seconds`; then two of them at once.
Used is what was answered, of what was allowed from the first call to the last answer. With `--silent` the server
refuses without saying what it allows: only the number of calls at once can then be found, by trying.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from loopback import compared, counts, serving

from live import Case, write_data

BURST = 10
"""The server starts with one part in this many of a minute's allowance."""


def play(processes: int, options: argparse.Namespace) -> str:
    rate = options.allowed / options.minute
    conversations = int(rate * options.seconds / 2 / processes)
    more = {"silent": 1} if options.silent else {}
    with (
        tempfile.TemporaryDirectory() as scratch,
        serving(allowed=options.allowed, minute=options.minute, **more) as address,
    ):
        specs = [write_data(Path(scratch) / str(n), Case(conversations, graded=False)) for n in range(processes)]
        runs = []
        for spec in specs:
            environment = {**os.environ, "OPENAI_BASE_URL": address, "OPENAI_API_KEY": "none"}
            environment |= {"PYTHONPATH": str(Path(__file__).parents[2]), "AGENTLAB_HOME": scratch}
            command = [sys.executable, "-m", "agentlab", "run", str(spec), "--out", str(spec.parent / "run")]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            runs.append(subprocess.Popen(command, env=environment, **quiet))  # noqa: S603
        if any(run.wait() for run in runs):
            raise SystemExit("a run failed")
        counted = counts(address)
        failed = sum(
            flow["errors"]
            for spec in specs
            for flow in json.loads((spec.parent / "run" / "summary.json").read_text())["flows"].values()
        )
    allowed = options.allowed / BURST + rate * counted["seconds"]
    refused = counted["refused"] / (counted["answered"] + counted["refused"])
    used = compared(counted["answered"] / allowed, 0.9, least=True)
    cells = [processes, counted["answered"], f"{counted['seconds']:.1f}", used, compared(refused, 0.01), failed]
    return f"| {' | '.join(map(str, cells))} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--allowed", type=int, default=600)
    parser.add_argument("--minute", type=float, default=60.0)
    parser.add_argument("--seconds", type=float, default=90.0)
    parser.add_argument("--silent", action="store_true")
    parser.add_argument("--rounds", type=int, default=1, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    print("| processes | answered | seconds | used | refused | failed turns |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for processes in (1, 2):
        print(play(processes, arguments), flush=True)


if __name__ == "__main__":
    main()
