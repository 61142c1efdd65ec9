"""Recorded and replayed runs, with a model that must not be called, and the content of a run."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import agentlab as al
from agentlab.core.messages import Completion, Message, Usage
from agentlab.lab.run import Run
from agentlab.models.scripted import Scripted
from support.rules_set import cooperative_model

FLOWS = ["rag_only", "tools", "tools_rag_fallback"]


class ForbiddenModel:
    """A model that must not be asked."""

    name, parallel = "scripted", None

    async def complete(self, request, emit):
        raise AssertionError("a replay asked the model")

    async def close(self):
        pass


class NeverEmbeds:
    name, dimensions = "hashing/hashing-64", 64

    async def embed(self, texts):
        raise AssertionError(f"a replay embedded {texts}")


def lab(dataset: Path, mode: str, model=None, embedder="hashing/hashing-64", **spec) -> al.Lab:
    spec = {"datasets": [str(dataset)], "recordings": str(dataset.parent / "recordings"), **spec}
    return al.Lab(model=model or Scripted([cooperative_model], loop=True), embedder=embedder, mode=mode, **spec)


def play(dataset: Path, mode: str, out: Path, **options) -> Run:
    with lab(dataset, mode, **options) as laboratory:
        return laboratory.run_sync(out=out)


def replay(dataset: Path, out: Path, **options) -> Run:
    return play(dataset, "replay", out, model=ForbiddenModel(), embedder=NeverEmbeds(), **options)


def replay_invariants(run: Run) -> dict:
    """Return the content of a run: figures of flows and turns, without the billed costs."""
    flows = {label: {k: v for k, v in flow.items() if k != "billed"} for label, flow in run.summary["flows"].items()}
    turns = run.turns.drop(columns=["wall_seconds", "take"]).to_json(double_precision=15)
    return {"flows": flows, "turns": turns, "scores": run.scores.to_json(double_precision=15)}


def ledger(run: Run) -> list[dict]:
    """Return the rows of the ledger without the fields that differ between a recording and its replay."""
    rows = [json.loads(line) for line in (run.path / "calls.jsonl").read_text().splitlines()]
    live = ("origin", "waited", "attempt", "take")
    return sorted(
        ({k: v for k, v in row.items() if k not in live} for row in rows),
        key=lambda row: (row["flow"], row["conversation"], row.get("id", -1), row.get("hash", "")),
    )


class VaryingModel:
    """Answers each call differently and after a different pause, so that a mix-up is seen."""

    name, parallel = "scripted", None

    def __init__(self):
        self.received = 0

    async def complete(self, request, emit):
        self.received += 1
        number = self.received
        await asyncio.sleep(0.03 if "slow" in request.messages[-1].text else 0.001 * number)
        return Completion(
            message=Message(role="agent", text=f"answer {number}"), usage=Usage(input_tokens=number, output_tokens=1)
        )

    async def close(self):
        pass


async def ask(session, text):
    return (await session.complete((Message(role="user", text=text),))).message.text
