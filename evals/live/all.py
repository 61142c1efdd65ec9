"""Tries agentlab with servers that others wrote, and prints a line for each check.

    python evals/live/all.py [--only NAME]...    # make live
    python evals/live/all.py --page              # the tables of docs/howto/servers.md

Each server is installed from npm or PyPI into a folder and environment of its own below results/live, listens on
127.0.0.1 and is ended by its pid. Four servers run at a time, because installing and waiting take most of the time.
Each server runs one check at a time. After ten minutes the script leaves out the remaining checks. A server that cannot
be installed, for lack of npm or a network, gives one line and no failure.
"""

from __future__ import annotations

import argparse
import itertools
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import kit_checks  # noqa: F401 - it adds its checks to the catalogue
import mcp_checks  # noqa: F401
import model_checks  # noqa: F401
from bench import ROOT, Bench
from catalogue import SERVERS, Check, Lacking, Server, page

SECONDS = 600.0
CHECK_SECONDS = 240.0
"""Maximum seconds of one check without its installation; a longer check fails."""
AT_A_TIME = 4
"""Number of servers that are tried at the same time."""
TIME_IS_OVER = "the ten minutes are over"
RIGHT, WRONG, LACKING = "right  ", "WRONG  ", "lacking"


def main() -> int:
    parser = argparse.ArgumentParser(description="Try agentlab with servers that others wrote.")
    parser.add_argument("--only", action="append", choices=list(SERVERS), help="a server (default: all)")
    parser.add_argument("--page", action="store_true", help="print the tables of the page instead")
    arguments = parser.parse_args()
    if arguments.page:
        print(page())
        return 0
    ROOT.mkdir(parents=True, exist_ok=True)
    os.environ.pop("OPENAI_BASE_URL", None)
    deadline = time.monotonic() + SECONDS
    chosen = [server for server in SERVERS.values() if not arguments.only or server.name in arguments.only]
    with ThreadPoolExecutor(AT_A_TIME) as pool:
        outcomes = [*itertools.chain(*pool.map(partial(run_all, deadline=deadline), chosen))]
    print(f"{outcomes.count(RIGHT)} right, {outcomes.count(WRONG)} wrong, {outcomes.count(LACKING)} lacking")
    return int(WRONG in outcomes)


def run_all(server: Server, deadline: float) -> list[str]:
    """Run the checks of a server, one after the other, and return their outcomes."""
    return [run(server, what, check, deadline) for what, check in server.checks.items()]


def run(server: Server, what: str, check: Check, deadline: float) -> str:
    """Run a check, print its line and return its outcome."""
    started = time.monotonic()
    title = f"{server.name} {server.version}".strip()
    if started > deadline:
        outcome, detail = LACKING, TIME_IS_OVER
    else:
        print(f"        {title}: {what} ...", flush=True)
        outcome, detail = outcome_of(server, check, deadline)
    seconds = f"{time.monotonic() - started:.0f} s"
    print(f"{outcome} {title}: {what}: {' '.join(detail.split())} ({seconds})", flush=True)
    return outcome


def outcome_of(server: Server, check: Check, deadline: float) -> tuple[str, str]:
    try:
        with Bench(server, deadline, CHECK_SECONDS) as bench:
            return RIGHT, check(bench)
    except Lacking as missing:
        return LACKING, str(missing)
    except subprocess.TimeoutExpired:
        is_over = time.monotonic() >= deadline
        return (LACKING, TIME_IS_OVER) if is_over else (WRONG, "it takes too long")
    except AssertionError as wrong:
        return WRONG, str(wrong)
    except Exception as failure:
        return WRONG, f"{type(failure).__name__}: {failure}"


if __name__ == "__main__":
    sys.exit(main())
