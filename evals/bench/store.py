"""Time and memory of a long run: playing it, what comes after the last turn, opening it, comparing its flows.

    python evals/bench/store.py [--turns 10000] [--flows 3] [--mode replay] [--scorers answer similarity]

Conversations of four turns, one call a turn, on a model that answers at once, so that all that is measured is the
harness. With `--mode replay` the run is recorded first, and it is the replay that is measured. Every step is a process
of its own; `after` are seconds between the last turn and the end, `peak` is resident memory. `rows` reads the figures
of all turns from their lines, and from Parquet, beside `json.loads` of the same lines. The targets are those of 100,000
turns of five flows.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from loopback import compared

CONVERSATION = 4
"""Turns per conversation."""
MAX_MB, MAX_AFTER, MAX_ROWS, MAX_PARQUET = 1000.0, 0.10, 0.50, 0.05
"""Targets: peak memory in MB; time after the last turn, as a share of the run; time to load rows, per `json.loads`."""


class Talk:
    """Flow of one call with the whole history; flows omit different words of the answers."""

    def __init__(self, number: int) -> None:
        self.name = f"talk_{number}"
        self._number = number

    async def respond(self, turn: Any, session: Any) -> Any:
        import agentlab as al

        history = session.load_conversation()
        completion = await session.complete([*history, al.Message(role="user", text=turn.text)])
        words = completion.text.split()
        reply = " ".join(words[: len(words) - (hash_of(turn.text) + self._number) % 3])
        session.save_message("user", turn.text)
        session.save_message("agent", reply)
        return al.Reply(text=reply)


def hash_of(text: str) -> int:
    return sum(text.encode())


def write_set(folder: Path, turns: int) -> None:
    folder.mkdir(parents=True)
    with (folder / "conversations.jsonl").open("w", encoding="utf-8") as file:
        for number in range(turns // CONVERSATION):
            rows_of_turns = [
                {"user": f"Conversation {number}, question {turn}", "reference_answers": ["a dozen words or so"]}
                for turn in range(CONVERSATION)
            ]
            file.write(json.dumps({"id": f"c{number:07}", "turns": rows_of_turns}) + "\n")


def play(folder: Path, out: str, mode: str, flows: int, scorers: list[str]) -> dict[str, float]:
    import agentlab as al

    model = al.Scripted(["An answer of a dozen words or so, as a small model gives it."], loop=True)
    last = time.perf_counter()

    def record_progress(progress: Any) -> None:
        nonlocal last
        last = time.perf_counter()

    spec = {"datasets": [str(folder / "data")], "flows": [Talk(n) for n in range(flows)], "concurrency": 50}
    spec |= {"recordings": str(folder / "recordings"), "scorers": scorers}
    with al.Lab(model=model, embedder="hashing/hashing-64", mode=mode, **spec) as lab:
        started = time.perf_counter()
        lab.run_sync(out=folder / out, on_progress=record_progress)
        return {"after": time.perf_counter() - last, "run": time.perf_counter() - started}


def read(folder: Path, out: str) -> dict[str, float]:
    from agentlab.lab.run import open_run

    assert open_run(folder / out).turn_values
    return {}


def compare(folder: Path, out: str) -> dict[str, float]:
    import agentlab.evals.compare.pairs as pairs
    from agentlab.lab.run import open_run

    pairs.compare(open_run(folder / out))
    return {}


def rows(folder: Path, out: str) -> dict[str, float]:
    """Return the CPU seconds to parse all turn rows, to load their figures, and to load those from Parquet."""
    from pyarrow import parquet

    from agentlab.evals.report.export import export
    from agentlab.lab.run import open_run

    run = open_run(folder / out)
    export(run, "parquet", folder / "turns.parquet")
    columns = ["flow", "conversation", "turn", "epoch", "latency_s", "score.answer_f1"]

    def parse() -> None:
        for file in run.folder.files("turns.jsonl"):
            with file.open("rb") as lines:
                for line in lines:
                    json.loads(line)

    def load() -> None:
        for _ in run.folder.latest_turns(texts=False):
            pass

    ways = {
        "json": parse,
        "rows": load,
        "parquet": lambda: parquet.read_table(folder / "turns.parquet", columns=columns).to_pandas(),
    }
    ways["parquet"]()  # what it imports is nobody's turn
    seconds = {}
    for name, way in ways.items():
        started = time.process_time()
        way()
        seconds[name] = time.process_time() - started
    return seconds


def step(name: str, *arguments: str) -> dict[str, float]:
    """Run a step in its own process; return its wall and CPU seconds and its peak memory in MB."""
    started = time.perf_counter()
    done = subprocess.run(  # noqa: S603 - this very file
        [sys.executable, __file__, "--step", name, *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return {"wall": time.perf_counter() - started, **json.loads(done.stdout.splitlines()[-1])}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=10_000, help="of each flow")
    parser.add_argument("--flows", type=int, default=3)
    parser.add_argument("--mode", choices=("live", "replay"), default="live")
    parser.add_argument("--scorers", nargs="+", default=["answer", "similarity"])
    parser.add_argument("--rounds", type=int, default=1, help="rounds; the table shows their median")
    parser.add_argument("--step", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.step:
        one = {
            "record": lambda: play(given.folder, "recorded", "record", given.flows, given.scorers),
            "play": lambda: play(given.folder, "run", given.mode, given.flows, given.scorers),
            "open": lambda: read(given.folder, "run"),
            "compare": lambda: compare(given.folder, "run"),
            "rows": lambda: rows(given.folder, "run"),
        }
        figures = one[given.step]()
        used = resource.getrusage(resource.RUSAGE_SELF)
        print(json.dumps({"cpu": used.ru_utime + used.ru_stime, "peak": used.ru_maxrss / 1024, **figures}))
        return
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["AGENTLAB_HOME"] = str(folder / "home")
        write_set(folder / "data", given.turns)
        same = ["--folder", scratch, "--flows", str(given.flows), "--mode", given.mode, "--scorers", *given.scorers]
        if given.mode == "replay":
            step("record", *same)
        print(f"{given.turns} turns x {given.flows} flows, {given.mode}, {', '.join(given.scorers)}\n")
        print("| step | wall s | CPU s | peak MB |\n| --- | ---: | ---: | ---: |")
        for name in ("play", "open", "compare", "rows"):
            rounds = []
            for _ in range(given.rounds):
                if name == "play":
                    shutil.rmtree(folder / "run", ignore_errors=True)
                rounds.append(step(name, *same))
            took = {key: statistics.median(each[key] for each in rounds) for key in rounds[0]}
            peak = compared(took["peak"], MAX_MB) if name != "rows" else f"{took['peak']:.0f}"
            print(f"| {name} | {took['wall']:.1f} | {took['cpu']:.1f} | {peak} |", flush=True)
            if name == "play":
                cell = compared(took["after"] / took["run"], MAX_AFTER)
                print(f"| of it after the last turn | {took['after']:.1f}; {cell} of it | | |", flush=True)
            if name == "rows":
                print(f"| of it `json.loads` of the turn rows | | {took['json']:.2f} | |")
                for way, most in (("rows", MAX_ROWS), ("parquet", MAX_PARQUET)):
                    cell = compared(took[way] / took["json"], most)
                    print(f"| of it their figures from {way} | | {took[way]:.2f}; {cell} of that | |", flush=True)
        size = sum(file.stat().st_size for file in (folder / "run").rglob("*") if file.is_file())
        print(f"\nrun folder: {size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    sys.exit(main())
