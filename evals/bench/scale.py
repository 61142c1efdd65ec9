"""Simulates a run of many conversations: time and disk per turn, one process and two, and a plan.

    python evals/bench/scale.py [--conversations 2000] [--rounds 3] [--plan 1000000] [--page results/scale.md]

Conversations of four turns run in two flows on a model that answers at once, so that only the harness is measured. A
run in one process and a run in two alternate, each in new processes. `wall` is the wall-clock time on this machine,
whose cores others may use. The CPU seconds of the busiest process are the time on free cores. The target compares those
of one process with those of the busier of two, with its start and the driver's. Each process starts for about half a
second, so that below a few thousand conversations the start dominates.

The plan is arithmetic over bytes, CPU seconds and memory per turn. Each is the difference between all conversations and
half of them. The bench checks that this is valid: it ends with an error if disk per turn differs between the two by
more than 5 %, or if CPU grows faster than the turns. Memory is that of the data set, which is read whole, and the sums.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from loopback import compared

TURNS, FLOWS = 4, 2
MODEL_SECONDS, TOKENS_IN, TOKENS_OUT = 2.0, 800, 100
"""Seconds of a model call, assumed for the plan."""
USD_IN, USD_OUT = 0.25, 2.00
"""Dollars per million tokens, assumed for the plan."""

NAMES = ("one process", "two")

FLOW = '''"""Asks once with the whole conversation."""

import agentlab as al


async def respond(turn, session):
    messages = [*session.load_conversation(), al.Message(role="user", text=turn.text)]
    reply = (await session.complete(messages)).text
    session.save_message("user", turn.text)
    session.save_message("agent", reply)
    return al.Reply(text=reply)
'''


def write(folder: Path, conversations: int) -> None:
    data = folder / f"data-{conversations}"
    data.mkdir()
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(FLOW)
    (folder / "replies.yaml").write_text("loop: true\nreplies: [An answer of a dozen words or so, as it comes.]\n")
    with (data / "conversations.jsonl").open("w", encoding="utf-8") as file:
        for number in range(conversations):
            turns = [{"user": f"{number}, question {t}", "reference_answers": ["a dozen words"]} for t in range(TURNS)]
            file.write(json.dumps({"id": f"c{number:08}", "turns": turns}) + "\n")


class Watched:
    """Process pool whose workers report their CPU time at the end."""

    def __init__(self, workers: int, _: str | None = None) -> None:
        import multiprocessing

        self._pool = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))

    def __enter__(self) -> Watched:
        return self

    def submit(self, function: Any, *arguments: Any) -> Any:
        return self._pool.submit(timed, function, *arguments)

    def __exit__(self, *reason: object) -> None:
        self._pool.shutdown()


def timed(function: Any, *arguments: Any) -> Any:
    """Call `function` and write the CPU seconds of this worker into a file beside its shard."""
    result = function(*arguments)
    shard = arguments[0]
    (Path(shard.run) / f"cpu-{shard.partition.number}").write_text(str(time.process_time()))
    return result


def play(folder: Path, conversations: int, workers: int, out: str) -> None:
    """Play one run in its own process; print wall time, and CPU and megabytes of the busiest process."""
    import agentlab as al
    from agentlab.evals.play.shards import EXECUTORS

    spec = {
        "datasets": [str(folder / f"data-{conversations}")],
        "flows": [str(folder / f"{n}.py") for n in ("one", "two")],
    }
    spec |= {"embedder": "hashing/hashing-64", "scorers": ["answer"], "concurrency": 32}
    started = time.perf_counter()
    with al.Lab(model=f"scripted/{folder / 'replies.yaml'}", **spec) as lab:
        EXECUTORS["watched"] = Watched
        options = {"executor": "watched", "workers": workers} if workers > 1 else {}
        lab.run_sync(out=folder / out, **options)
    wall = time.perf_counter() - started
    shards = [float(file.read_text()) for file in (folder / out).glob("cpu-*")]
    used = resource.getrusage(resource.RUSAGE_SELF)
    # The driver begins and ends alone; while it waits for its workers, it counts their rows beside them.
    cpu = max(shards) + time.process_time() if shards else time.process_time()
    print(json.dumps({"wall": wall, "cpu": cpu, "mb": used.ru_maxrss / 1024}))


def step(folder: Path, conversations: int, workers: int, out: str) -> dict[str, float]:
    given = ["--folder", str(folder), "--conversations", str(conversations), "--workers", str(workers), "--out", out]
    done = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, __file__, *given], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    written = sum(file.stat().st_size for file in (folder / out).rglob("*.jsonl"))
    return {**json.loads(done.stdout.splitlines()[-1]), "bytes": written}


def plan(n: int, bytes_a_turn: float, cpu_a_turn: float, bytes_kept: float) -> list[str]:
    """Return the page for `n` conversations; `bytes_kept` are bytes of memory per turn."""
    turns = n * TURNS * FLOWS
    usd = turns * (TOKENS_IN * USD_IN + TOKENS_OUT * USD_OUT) / 1e6
    in_flight, tokens = 1000, TOKENS_IN + TOKENS_OUT
    hours = turns * MODEL_SECONDS / in_flight / 3600
    per_minute = in_flight / MODEL_SECONDS * 60
    return [
        f"## A plan of {n:,} conversations",
        "",
        f"{TURNS} turns, {FLOWS} flows, one call a turn: {turns:,} turns.",
        "",
        "| | |",
        "| --- | ---: |",
        f"| run folder ({bytes_a_turn:,.0f} bytes a turn) | {turns * bytes_a_turn / 1e9:,.1f} GB |",
        f"| CPU of the harness ({cpu_a_turn * 1000:.2f} ms a turn) | {turns * cpu_a_turn / 3600:,.1f} core hours |",
        f"| memory of a process that plays all ({bytes_kept:,.0f} bytes a turn) | {turns * bytes_kept / 1e9:,.2f} GB |",
        f"| model, at ${USD_IN} and ${USD_OUT} a million tokens, {TOKENS_IN} + {TOKENS_OUT} a call | ${usd:,.0f} |",
        f"| time, {in_flight:,} calls in flight of {MODEL_SECONDS:.0f} s | {hours:,.1f} h |",
        f"| of the provider | {per_minute:,.0f} requests and {per_minute * tokens / 1e6:,.1f} M tokens a minute |",
        "",
        "The provider's limit breaks first, then money, then disk; the harness needs"
        f" {turns * cpu_a_turn / 3600 / hours:,.1f} cores to keep up. Two workers or more share the conversations out"
        " (`--executor processes --workers N`; `--executor dask --scheduler ADDRESS` on machines that share a disk);"
        " try it with `--limit 1000` first, and compare its time with this page.",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--conversations", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--plan", type=int, default=1_000_000)
    parser.add_argument("--page", type=Path, help="file for the page")
    for name, kind in (("folder", Path), ("workers", int), ("out", str)):
        parser.add_argument(f"--{name}", type=kind, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.folder:
        play(given.folder, given.conversations, given.workers, given.out)
        return
    n, half = given.conversations, given.conversations // 2
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["AGENTLAB_HOME"] = str(folder / "home")
        write(folder, n)
        write(folder, half)
        rounds = [(step(folder, n, 1, f"one-{r}"), step(folder, n, 2, f"two-{r}")) for r in range(given.rounds)]
        small = step(folder, half, 1, "half")
    one, two = ({key: statistics.median(r[side][key] for r in rounds) for key in rounds[0][side]} for side in (0, 1))
    turns, fewer = n * TURNS * FLOWS, half * TURNS * FLOWS
    bytes_a_turn, bytes_kept = one["bytes"] / turns, max(0.0, (one["mb"] - small["mb"]) * 1e6 / (turns - fewer))
    cpu_a_turn = (one["cpu"] - small["cpu"]) / (turns - fewer)
    lines = [
        "# Many conversations",
        "",
        f"`python evals/bench/scale.py --conversations {n}`: {turns:,} turns, no time of a model.",
        "",
        "| | wall s | CPU s, one after the other | MB of the driver |",
        "| --- | ---: | ---: | ---: |",
        *(
            f"| {name} | {r['wall']:.1f} | {r['cpu']:.1f} | {r['mb']:.0f} |"
            for name, r in (("one process", one), ("two", two))
        ),
        f"| one over two | {one['wall'] / two['wall']:.2f} | {compared(one['cpu'] / two['cpu'], 1.6, least=True)} | |",
        "",
        *plan(given.plan, bytes_a_turn, cpu_a_turn, bytes_kept),
    ]
    print("\n".join(lines))
    off = abs(small["bytes"] / fewer / bytes_a_turn - 1)
    start = one["cpu"] - cpu_a_turn * turns
    print(
        f"\nchecked: half of the conversations took {off:.1%} more or less disk a turn; {start:.1f} s of CPU to start"
    )
    if off > 0.05:
        raise SystemExit("the plan does not hold: disk does not grow with turns")
    if given.page:
        given.page.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
