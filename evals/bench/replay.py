"""Times the replay of recorded calls with the full ledger, beside Inspect AI serving the same from its cache.

    python evals/bench/replay.py [--calls 10000] [--inspect PYTHON]

Conversations of ten turns, one call a turn, the whole history in each request. Both sides run the same number of calls
once to record (or to fill the cache) and once from what was recorded; the second run is timed, from its start to its
results on disk. `--inspect` names a Python that has inspect-ai installed (it does not share our environment:
`python -m venv inspect && inspect/bin/pip install inspect-ai`); without it only our side is measured. A run of a
tenth of the size shows how it grows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

TURNS = 10

INSPECT = """
import sys, time
from inspect_ai import Task, eval
from inspect_ai.dataset import Sample
from inspect_ai.model import CachePolicy, ChatMessageUser, GenerateConfig, ModelOutput, get_model
from inspect_ai.solver import solver

conversations, turns, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]

@solver
def talk():
    async def solve(state, generate):
        model = get_model()
        for turn in range(turns):
            state.messages.append(ChatMessageUser(content=f"{state.input_text}, question {turn}"))
            output = await model.generate(state.messages, cache=CachePolicy(expiry="1D"))
            state.messages.append(output.message)
            state.output = output
        return state
    return solve

def answers():
    output = ModelOutput.from_content("mockllm/model", "An answer of a dozen words or so, as a small model gives it.")
    from inspect_ai.model import ModelUsage
    output.usage = ModelUsage(input_tokens=100, output_tokens=12, total_tokens=112)
    while True:
        yield output

samples = [Sample(input=f"Conversation {number}", id=number) for number in range(conversations)]
seconds = []
for _ in range(2):
    started = time.perf_counter()
    model = get_model("mockllm/model", custom_outputs=answers(), memoize=False)
    eval(Task(dataset=samples, solver=talk()), model=model, log_dir=folder, display="none", max_samples=50)
    seconds.append(time.perf_counter() - started)
print(seconds[1])
"""


def ours(conversations: int, folder: Path) -> float:
    """Return the seconds of the replay."""
    import agentlab as al
    from agentlab.core.messages import Message, Reply, UserTurn
    from agentlab.session.session import Session

    async def talk(turn: UserTurn, session: Session) -> Reply:
        messages = [*session.load_conversation(), Message(role="user", text=turn.text)]
        completion = await session.complete(messages)
        session.save_message("user", turn.text)
        session.save_message("agent", completion.message.text)
        return Reply(text=completion.message.text)

    data = folder / "data"
    data.mkdir(parents=True)
    with (data / "conversations.jsonl").open("w", encoding="utf-8") as file:
        for number in range(conversations):
            turns = [{"user": f"Conversation {number}, question {turn}"} for turn in range(TURNS)]
            file.write(json.dumps({"id": str(number), "turns": turns}) + "\n")
    spec = {"datasets": [str(data)], "flows": [talk], "recordings": str(folder / "recordings"), "concurrency": 50}
    seconds = []
    for mode in ("record", "replay"):
        model = al.Scripted(["An answer of a dozen words or so, as a small model gives it."], loop=True)
        started = time.perf_counter()
        with al.Lab(model=model, embedder="hashing/hashing-64", mode=mode, **spec) as lab:
            run = lab.run_sync(out=folder / mode)
        seconds.append(time.perf_counter() - started)
        assert run.summary["flows"]["talk"]["llm_calls"] == conversations * TURNS
    assert run.summary["recordings"]["new"] == 0
    return seconds[1]


def inspect_ai(python: str, conversations: int, folder: Path) -> float:
    environment = {**os.environ, "INSPECT_CACHE_DIR": str(folder / "cache")}
    command = [python, "-c", INSPECT, str(conversations), str(TURNS), str(folder / "logs")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)  # noqa: S603
    if done.returncode:
        raise SystemExit(f"inspect-ai did not run:\n{done.stderr[-2000:]}")
    return float(done.stdout.split()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--inspect", metavar="PYTHON", help="a Python with inspect-ai")
    arguments = parser.parse_args()
    sizes = [arguments.calls // 10, arguments.calls]
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["AGENTLAB_HOME"] = str(Path(scratch) / "home")
        print("| calls | agentlab ms / call | inspect-ai ms / call | ratio |")
        print("| ---: | ---: | ---: | ---: |")
        for calls in sizes:
            mine = ours(calls // TURNS, Path(scratch) / f"ours-{calls}") / calls * 1000
            theirs = None
            if arguments.inspect:
                theirs = inspect_ai(arguments.inspect, calls // TURNS, Path(scratch) / f"theirs-{calls}") / calls * 1000
            ratio = "-" if theirs is None else f"{theirs / mine:.1f}"
            print(f"| {calls} | {mine:.2f} | {'-' if theirs is None else f'{theirs:.2f}'} | {ratio} |", flush=True)


if __name__ == "__main__":
    sys.exit(main())
