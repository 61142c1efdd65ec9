"""Measures what the memory of `chatbox` keeps of a set, by its memory step alone: no reply is written.

    python evals/bench/memory_writes.py                                  # rules alone: a scripted model writes nothing
    python evals/bench/memory_writes.py --model local/qwen2.5-coder-0.5b --set near_min_score=.5
    python evals/bench/memory_writes.py --half build                     # conversations with an odd number
    python evals/bench/memory_writes.py --pairs                          # labelled corrections and paraphrases instead

The table has the measures of `agentlab/evals/scorers/memory_writes.py`. `--set` changes a setting of `chatbox`. Calls
of a model are recorded in `results/memory_writes`, so that a second run takes them from there.

`--pairs` sends both texts of each pair in `evals/labels/corrections.jsonl` and counts what memory holds at the end:
pairs without the second text, without the first one, and with two facts.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from labelled import Fraction, read, table

import agentlab as al
from agentlab.cli.commands import spec_overrides
from agentlab.core.messages import Reply, UserTurn
from agentlab.flows import chatbox
from agentlab.session.session import Session

Settings, PROMPTS, TOOLS, MEMORY = chatbox.Settings, chatbox.PROMPTS, chatbox.TOOLS, chatbox.MEMORY
LABEL = "memory step"
MEASURES = (
    "memory_write_recall",
    "memory_write_precision",
    "no_stale_fact",
    "memory_restraint",
    "memory_recall",
    "duplicates_prevented",
)


async def respond(turn: UserTurn, session: Session) -> Reply:
    """Run only the memory step for a message."""
    await chatbox.write_memory(turn, session)
    return Reply(text="(no reply)")


def half_of(folder: Path, half: str, target: Path) -> Path:
    """Write the conversations with odd (`build`) or even numbers (`held`) to `target`, and return the folder."""
    lines = (folder / "conversations.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    chosen = {"build": lines[::2], "held": lines[1::2], "both": lines}[half]
    (target / "conversations.jsonl").write_text("".join(chosen), encoding="utf-8")
    return target


def write_pairs(target: Path) -> Path:
    """Write each labelled pair as a conversation of two turns to `target`, and return the folder."""
    lines = [
        json.dumps({"id": row["id"], "turns": [{"user": row["stored"]}, {"user": row["told"]}]})
        for row in read("corrections", "both")
    ]
    (target / "conversations.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return target


def print_pairs(run: Any) -> None:
    counts: dict[str, list[list[bool]]] = defaultdict(list)
    for row in read("corrections", "both"):
        texts = [history.fact.text for history in run.memory(row["id"], LABEL).stored]
        lost = [not any(one in text for text in texts) for one in (row["told"], row["stored"])]
        counts[row["kind"]].append([*lost, len(texts) > 1])
    rows = [
        [kind, *(Fraction(sum(c), len(c)) for c in zip(*outcomes, strict=True))] for kind, outcomes in counts.items()
    ]
    print("\n".join(table(["kind", "second text lost", "first text lost", "two facts"], rows)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", type=Path, default=Path("datasets/memory"), help="set with expected_memory")
    parser.add_argument("--half", choices=("build", "held", "both"), default="both", help="half of its conversations")
    parser.add_argument("--pairs", action="store_true", help="labelled pairs instead of the set")
    parser.add_argument("--model", help="model that may write (default: a scripted one, which writes nothing)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="setting of chatbox")
    options = parser.parse_args()
    settings = spec_overrides(options, ())
    rules = {"model": al.Scripted(["null"], loop=True), "mode": "live"}
    model = {"model": options.model, "mode": "auto", "recordings": "results/memory_writes"} if options.model else rules
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        lab = al.Lab(
            flows=[{"flow": __file__, "label": LABEL, "memory_gate": "rules", **settings}],
            datasets=[write_pairs(folder) if options.pairs else half_of(options.dataset, options.half, folder)],
            embedder="local/all-minilm-l6-v2",
            memory="sqlite",
            generation={"temperature": 0, "seed": 7, "max_tokens": 160},
            concurrency=2,
            **model,
        )
        with lab:
            run = lab.run_sync(out=folder / "run")
            flow = run.summary["flows"][LABEL]
            if options.pairs:
                print_pairs(run)
                return
    print(f"{options.dataset.name}, {options.half}: {flow['turns']} turns, {flow['llm_calls']} model calls")
    print("| measure | mean | 95 % interval | turns |\n| --- | ---: | --- | ---: |")
    for name in MEASURES:
        score = flow["scores"][name]
        low, high = score["ci95"] or (float("nan"),) * 2
        print(f"| {name} | {score['mean']:.3f} | [{low:.2f}, {high:.2f}] | {score['n']} |")


if __name__ == "__main__":
    main()
