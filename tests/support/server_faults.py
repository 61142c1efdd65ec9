"""Runs against a server that lies, floods, drips or is down: each fault alone, then mixed; then it is well again."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import agentlab as al
from agentlab.models import openai, openai_connection
from agentlab.wire import limits, retries
from support.child_processes import in_child
from support.faulty_server import FAULTS, FaultyServer
from support.rules_set import DOCUMENTS, write_set

ANSWER_SECONDS = 0.6
"""Time limit of a whole answer, instead of ten minutes; the tests check only that the limit holds."""
MAX_MEGABYTES = 500
PRICES = 'dated: "2026"\nmodels:\n  openai/m: {input: 2, output: 10}\n'


def run(url: str, folder: Path, out: str, **spec: Any) -> int:
    """Run in a child process, and print the outcome as JSON."""
    openai_connection.SILENCE_SECONDS, retries.BACKOFF_SECONDS = ANSWER_SECONDS, 0.0
    retries.MAX_RETRY_AFTER_SECONDS = limits.MAX_PAUSE_SECONDS = 0.2
    os.environ["AGENTLAB_HOME"] = str(folder / "home")
    model = openai.connect("m", base_url=url, api_key="key-of-a-test", timeout=ANSWER_SECONDS)
    given = {"datasets": [str(folder / "set")], "embedder": "hashing/hashing-64", "prices": str(folder / "prices.yaml")}
    with al.Lab(model=model, **given, **spec) as lab:
        summary = lab.run_sync(out=folder / out, resume=(folder / out).exists()).summary
    flows = list(summary["flows"].values())
    print(
        json.dumps(
            {
                "status": summary["status"],
                "turns": summary["turns"],
                "errors": sum(flow["errors"] for flow in flows),
                "cost": [flow["cost_usd"] for flow in flows],
            }
        )
    )
    return 0


def play(cases: int, folder: Path, chance: random.Random, part: str) -> tuple[str, Iterator[str | None]]:
    kinds = list(enumerate(FAULTS))
    mixed = max(4, cases // 4)
    chosen = kinds if cases >= len(FAULTS) else chance.sample(kinds, max(1, cases - 2))
    unit = f"{len(chosen)} kinds of faults one by one, and runs of {mixed} conversations with 20 and 50 % of them"
    return unit, _cases(chosen, mixed, folder)


def _cases(chosen: list[tuple[int, str]], mixed: int, folder: Path) -> Iterator[str | None]:
    (folder / "prices.yaml").write_text(PRICES)
    conversations = [{"id": f"c{n:03}", "turns": [{"user": f"How heavy is the ball? {n}"}]} for n in range(mixed)]
    write_set(folder / "set", conversations, DOCUMENTS)
    server = FaultyServer()
    try:
        for number, name in chosen:
            problem = _one(partial(run, flows=["tools"], limit=2), server, number, folder, 2)
            yield problem and f"{name}: {problem}"
        for fraction in (20, 50):
            work = partial(run, flows=["tools"], concurrency=4)
            problem = _one(work, server, f"mix{fraction}", folder, mixed)
            yield problem and f"mixed at {fraction} %: {problem}"
    finally:
        server.stop()


def _one(work: Any, server: FaultyServer, which: object, folder: Path, turns: int) -> str | None:
    """Play a run with the fault, then the same run with a healthy server; return a problem of the two runs, or None."""
    out = f"run-{which}"
    ended = in_child(lambda: work(server.url(which), folder, out), max_seconds=30 + 10 * turns)
    problem = _wrong(ended, turns)
    if problem is None:
        ended = in_child(lambda: work(server.url("good"), folder, out), max_seconds=60)
        problem = _wrong(ended, turns) or ("" if _summary_of(ended)["status"] == "complete" else "it stays incomplete")
    return problem or None


def _summary_of(ended: Any) -> dict[str, Any]:
    summary: dict[str, Any] = json.loads(
        next(line for line in ended.printed.splitlines() if line.startswith('{"status"'))
    )
    return summary


def _wrong(ended: Any, turns: int) -> str | None:
    if not ended.is_clean or ended.code != 0:
        return str(ended)
    if ended.megabytes > MAX_MEGABYTES:
        return f"{ended.megabytes:.0f} MB"
    summary = _summary_of(ended)
    if summary["status"] == "complete" and summary["turns"] != turns:
        return f"{summary['turns']} of {turns} turns are counted"
    return "a negative cost" if any(cost is not None and cost < 0 for cost in summary["cost"]) else None
