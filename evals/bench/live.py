"""Measures agentlab's CPU and memory per call against a bare loop over the vendor's SDK.

    python evals/bench/live.py [CASE...] [--rounds 3] [--full]

Every contender is a process of its own, from its start to its end, and is charged what the system says it used (user
and system time, largest memory), imports included. agentlab is the command line: it reads the data set, plays, keeps
the whole ledger, grades, folds and prints its table. Byte code is there beforehand, of everything alike, as an
installation leaves it: each contender runs once before it counts. The bare loops ask the same calls, 100 in flight, and
keep nothing: the SDK on aiohttp, the same streaming, and the SDK on its own httpx transport. All of them ask
`loopback.py`, another process, at 50 ms a call. Contenders take turns; figures are medians over the rounds, ratios are
ratios of medians.

Cases: `live` (1,000 conversations of two calls), `tools` (500, a call of a tool before each reply), `many` (4,000),
`chunks` (300, completions of 200 pieces), `ten` (10 conversations), `replay` (10,000 recorded calls in conversations of
ten, nothing to grade), `opening` (a file of 100,000 recorded calls). Inspect AI and promptfoo take part where they can
be imported or called.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from bare import TOOL
from loopback import compared, serving

sys.path.insert(0, str(Path(__file__).parents[2]))

BARE = Path(__file__).with_name("bare.py")
IN_FLIGHT = 100
FLOW = '''"""Asks with the whole history."""
from agentlab import Message, Reply


async def respond(turn, session):
    messages = [*session.load_conversation(), Message(role="user", text=turn.text)]
    completion = await session.complete(messages)
    session.save_message("user", turn.text)
    session.save_message("agent", completion.text)
    return Reply(text=completion.text)
'''


CALLING_FLOW = '''"""Asks with the whole history, and runs the tool that is called."""
from agentlab import Message, Reply


async def respond(turn, session):
    messages = [*session.load_conversation(), Message(role="user", text=turn.text)]
    tools = session.tool_specs()
    completion = await session.complete(messages, tools=tools)
    while completion.message.tool_calls:
        results = [await session.call_tool(call) for call in completion.message.tool_calls]
        messages += [completion.message, *results]
        completion = await session.complete(messages, tools=tools)
    session.save_message("user", turn.text)
    session.save_message("agent", completion.text)
    return Reply(text=completion.text)
'''


@dataclass(frozen=True)
class Case:
    conversations: int
    turns: int = 2
    chunks: int = 12
    contenders: tuple[str, ...] = ("agentlab", "openai aiohttp")
    graded: bool = True
    calls_tool: bool = False
    target: tuple[str, float] | None = None
    """Peer of agentlab, and the maximum CPU of agentlab as a multiple of the peer's."""
    memory: float | None = None
    """Maximum memory of agentlab as a multiple of the peer's."""
    times: int = 1
    """Multiplies the rounds: short measurements vary more than long ones."""

    @property
    def calls(self) -> int:
        return self.conversations * self.turns * (2 if self.calls_tool else 1)


CASES = {
    "live": Case(1000, contenders=("agentlab", "openai aiohttp", "openai stream"), target=("openai stream", 0.65)),
    "tools": Case(500, contenders=("agentlab", "openai tools"), calls_tool=True, target=("openai tools", 0.9)),
    "many": Case(4000, target=("openai aiohttp", 1.15), memory=1.5),
    "chunks": Case(300, chunks=200, contenders=("agentlab", "openai stream"), target=("openai stream", 0.35)),
    "ten": Case(10, target=("openai aiohttp", 1.0), times=3),
    "replay": Case(1000, turns=10, contenders=("agentlab",), graded=False),
}
OPENED = 100_000
OPENED_SECONDS, REPLAYED_MS = 2.0, 0.33
"""CPU targets: to open a file of recorded calls, and to replay one call."""


@dataclass(frozen=True)
class Used:
    cpu: float
    megabytes: float
    wall: float


def peers() -> dict[str, str]:
    """Other harnesses, each with the reason why it is not measured, if it is not."""
    lacking = {} if importlib.util.find_spec("inspect_ai") else {"Inspect AI": "cannot be imported"}
    # It has no step for conversations of several calls that keep their history: no case could be put to it alike.
    missing = "does not play these conversations" if shutil.which("promptfoo") else "is not on the PATH"
    return {**lacking, "promptfoo": missing}


def write_data(folder: Path, case: Case) -> Path:
    data = folder / "data"
    data.mkdir(parents=True)
    with (data / "conversations.jsonl").open("w", encoding="utf-8") as file:
        for number in range(case.conversations):
            turns = [
                {"user": f"Conversation {number}, question {turn}"}
                | ({"reference_answers": ["a dozen words"]} if case.graded else {})
                for turn in range(case.turns)
            ]
            row = {"id": f"c{number}", "source": "bench", "licence": "none", "turns": turns}
            if case.calls_tool:
                row["tools"] = [TOOL]
                for turn in turns:
                    turn["expected_calls"] = [{"name": "find", "accepted_arguments": {"query": ["offside"]}}]
            file.write(json.dumps(row) + "\n")
    (folder / "talk.py").write_text(CALLING_FLOW if case.calls_tool else FLOW, encoding="utf-8")
    spec = {
        "name": "bench",
        "datasets": [str(data)],
        "flows": [str(folder / "talk.py")],
        "model": "openai/m",
        "embedder": "hashing/hashing-64",
        "recordings": str(folder / "recordings"),
        "concurrency": IN_FLIGHT,
    }
    (folder / "spec.yaml").write_text(json.dumps(spec), encoding="utf-8")
    return folder / "spec.yaml"


def charged(command: list[str], environment: dict[str, str], folder: Path) -> Used:
    """Return the resources that a command and its children used."""
    started = time.perf_counter()
    with (folder / "said").open("w+b") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder)  # noqa: S603
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            log.seek(0)
            raise SystemExit(f"{command} failed:\n{log.read().decode(errors='replace')[-2000:]}")
    return Used(usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024, time.perf_counter() - started)


def play(contender: str, case: Case, spec: Path, address: str, mode: str = "live") -> Used:
    environment = {
        **{name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"},
        "PYTHONPYCACHEPREFIX": str(spec.parent / "bytecode"),
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "OPENAI_BASE_URL": address,
        "OPENAI_API_KEY": "none",
        "AGENTLAB_HOME": str(spec.parent / "home"),
        "INSPECT_LOG_DIR": str(spec.parent / "logs"),
    }
    if contender == "agentlab":
        out = spec.parent / f"run-{time.monotonic_ns()}"
        command = [sys.executable, "-m", "agentlab", "run", str(spec), "--out", str(out), "--mode", mode]
    else:
        kind = contender.removeprefix("openai ")
        command = [sys.executable, str(BARE), kind, str(case.conversations), str(case.turns)]
    used = charged(command, environment, spec.parent)
    if contender == "agentlab":
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        (flow,) = summary["flows"].values()
        assert (flow["errors"], flow["llm_calls"]) == (0, case.calls), flow
        shutil.rmtree(out)
    return used


def measure(name: str, rounds: int, everybody: bool) -> Iterator[str]:
    """Yield the lines of a table."""
    case = CASES[name]
    contenders = list(case.contenders)
    if everybody and name == "live":
        contenders += ["openai httpx", *(["inspect"] if importlib.util.find_spec("inspect_ai") else [])]
    with tempfile.TemporaryDirectory() as scratch, serving(chunks=case.chunks) as address:
        spec = write_data(Path(scratch) / "bench", case)
        mode = "replay" if name == "replay" else "live"
        if mode == "replay":
            play("agentlab", case, spec, address, "record")
        else:
            few = replace(case, conversations=1)
            first = write_data(Path(scratch) / "first", few)
            for contender in contenders:
                play(contender, few, first, address)
            (first.parent / "bytecode").rename(spec.parent / "bytecode")
        results: dict[str, list[Used]] = {contender: [] for contender in contenders}
        for _ in range(rounds * case.times):
            for contender in contenders:
                results[contender].append(play(contender, case, spec, address, mode))
    medians = {
        contender: [statistics.median(getattr(used, what) for used in runs) for what in ("cpu", "megabytes", "wall")]
        for contender, runs in results.items()
    }
    mine = medians["agentlab"]
    for contender, (cpu, megabytes, wall) in medians.items():
        ratio = "" if contender == "agentlab" else f"{mine[0] / cpu:.2f}"
        if case.target and case.target[0] == contender:
            memory = mine[1] / megabytes
            ratio = f"{compared(mine[0] / cpu, case.target[1])}, memory"
            ratio += f" {compared(memory, case.memory)}" if case.memory else f" {memory:.2f}"
        if name == "replay":
            ratio = f"{compared(cpu / case.calls * 1000, REPLAYED_MS)} ms a call"
        yield (
            f"| {name}, {case.conversations} x {case.turns} | {contender} | {cpu:.2f} | {cpu / case.calls * 1000:.2f}"
            f" | {megabytes:.0f} | {wall:.1f} | {ratio} |"
        )


def opening(rounds: int) -> str:
    """Return the row of a table: the seconds to open a file of recorded calls for look-up."""
    from agentlab.core.messages import Completion, Message, Request, Usage, to_json
    from agentlab.wire.keys import normalise_request
    from agentlab.wire.recordings import Recordings

    completion = Completion(message=Message(role="agent", text="An answer. " * 20), usage=Usage(input_tokens=100))
    with tempfile.TemporaryDirectory() as scratch:
        written = Recordings.open(Path(scratch), "bench", write=True)
        for number in range(OPENED):
            request = Request(messages=(Message(role="user", text=f"Question {number}, " * 20),), seed=7)
            normalised = normalise_request("openai/m", "compatible", request, 0)
            row = {"kind": "completion", "request": normalised.fields, "repeat": 0, "completion": to_json(completion)}
            written.add(normalised.key(0), row | {"seconds": 0.05}, normalised.parts)
        seconds = []
        for _ in range(rounds):
            started = time.process_time()
            assert len(Recordings.open(Path(scratch), "bench")) == OPENED
            seconds.append(time.process_time() - started)
        size = (Path(scratch) / "bench.jsonl").stat().st_size / 1e6
    cpu = statistics.median(seconds)
    per_call = cpu / OPENED * 1000
    ratio = compared(cpu, OPENED_SECONDS)
    return f"| opening, {OPENED} calls, {size:.0f} MB | agentlab | {cpu:.2f} | {per_call:.3f} | | | {ratio} s |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"any of {', '.join(CASES)}, opening; default: all")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--full", action="store_true", help="with httpx and the other harnesses, which are slow")
    arguments = parser.parse_args()
    print("| case | who | CPU s | CPU ms / call | MB | wall s | agentlab / this one |")
    print("| --- | --- | ---: | ---: | ---: | ---: | --- |")
    for name in arguments.cases or [*CASES, "opening"]:
        if name == "opening":
            print(opening(arguments.rounds), flush=True)
            continue
        for line in measure(name, arguments.rounds, arguments.full):
            print(line, flush=True)
    for peer, why in peers().items():
        print(f"\n{peer}: {why}, not measured.")


if __name__ == "__main__":
    main()
