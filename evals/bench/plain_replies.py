"""Counts the messages that `ego` answers without a plan, and compares it with an `ego` that plans for every message.

    python evals/bench/plain_replies.py statements datasets/*            # counts by wording, without a model
    python evals/bench/plain_replies.py statements --limit 6 --run       # model calls a turn on the embedded model
    python evals/bench/plain_replies.py datasets/assistant --limit 10 --run

`statements` are 40 plain statements in nine languages. A message that is planned anyway gets the same requests, so
plain replies can only lose right answers in the last column. With `--run`, `planned` has `plain_replies: never`. Then
follows `agentlab compare` with the claim that `plain` loses at most .05 right answers. Calls are recorded in
`results/plain_replies`, so that an interrupted run continues.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

import yaml
from labelled import table

import agentlab as al
from agentlab.cli.parser import main as agentlab
from agentlab.data.datasets import load_dataset
from agentlab.evals.scorers.words import has_reference
from agentlab.flows.ego.plain import needs_plan

STATEMENTS = Path(__file__).parents[2] / "tests" / "data" / "plain_statements.yaml"


def statements(folder: Path) -> Path:
    """Write the 40 plain statements as conversations of one turn, and return the folder."""
    messages = yaml.safe_load(STATEMENTS.read_text(encoding="utf-8"))["plain"]
    rows = [{"id": f"plain-{n:02}", "turns": [{"user": text}]} for n, text in enumerate(messages, 1)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
    (folder / "conversations.jsonl").write_text(lines, encoding="utf-8")
    return folder


def counts_of(folder: Path) -> list[object]:
    """Return a row of the table: turns and turns without a plan, for all turns and for those with a reference."""
    turns = [turn for conversation in load_dataset(folder).conversations for turn in conversation.turns]
    plain = [turn for turn in turns if not needs_plan(turn.user)]
    return [folder.name, len(turns), len(plain), *(sum(map(has_reference, each)) for each in (turns, plain))]


def compare_flows(folder: Path, limit: int | None, model: str) -> None:
    """Play a set through both flows and print their calls; with references also test right answers."""
    lab = al.Lab(
        name=f"plain_{folder.name}",
        flows=[
            {"flow": "ego", "label": "planned", "max_iterations": 1, "max_retries": 0, "plain_replies": "never"},
            {"flow": "ego", "label": "plain", "max_iterations": 1, "max_retries": 0},
        ],
        datasets=[folder],
        model=model,
        embedder="local/all-minilm-l6-v2",
        retrieval={"method": "hybrid", "top_k": 2, "max_tokens": 200},
        generation={"temperature": 0, "seed": 7, "max_tokens": 160},
        limit=limit,
        mode="auto",
        recordings="results/plain_replies",
    )
    out = Path("results/plain_replies") / f"run_{folder.name}"
    with lab:
        run = lab.run_sync(out=out, resume=out.exists())
    columns = ("llm_calls", "input_tokens", "output_tokens")
    rows = [
        [name, len(turns), *(f"{turns[column].mean():.2f}" for column in columns)]
        for name, turns in run.turns.groupby("flow", sort=False)
    ]
    print("\n".join(table(["flow", "turns", "model calls a turn", "input tokens", "output tokens"], rows)))
    if folder.name != "statements":
        agentlab(["compare", str(out), "--max-loss", "answer_correctness=.05"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="+", help="folders of data sets, or `statements`")
    parser.add_argument("--run", action="store_true", help="also play the sets")
    parser.add_argument("--limit", type=int, help="number of conversations to play")
    parser.add_argument("--model", default="local/qwen2.5-coder-0.5b", help="model of both flows")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        written = Path(scratch) / "statements"
        written.mkdir()
        folders = [statements(written) if name == "statements" else Path(name) for name in options.datasets]
        folders = [folder for folder in folders if (folder / "conversations.jsonl").is_file()]
        if not folders:
            parser.error("no data set: none of these folders has a conversations.jsonl")
        head = ["set", "turns", "without a plan", "with a reference", "of these without a plan"]
        print("\n".join(table(head, map(counts_of, folders))))
        for folder in folders if options.run else ():
            compare_flows(folder, options.limit, options.model)


if __name__ == "__main__":
    main()
