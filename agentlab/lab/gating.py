"""The gate that runs the flows itself, and stops when the verdict is in.

run, verdict = await gate_while_running(bench, "evals/baselines/laws.jsonl", looks=5)
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.evals.compare.gate import Verdict
from agentlab.evals.compare.stopping import Stopping
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.play.runner import run
from agentlab.lab.run import Run
from agentlab.workbench.workbench import Workbench

OF_THE_GATE = ("margins", "alpha", "looks")


async def gate_while_running(bench: Workbench, baseline: str | Path, **options: Any) -> tuple[Run, Verdict]:
    """Options are those of `Stopping` and of `runner.run`.

    Raises RunError where the baseline is of other data, graders, flows, epochs or another family, before anything runs.
    """
    datasets = bench.datasets()
    mine = {
        "name": f"the spec {bench.spec.name}",
        "datasets": {dataset.name: dataset.digest for dataset in datasets},
        "graders": fingerprints(bench.scorers, bench.embedder.name),
    }
    labels = [variant.label for variant in bench.variants]
    given = {name: options.pop(name) for name in OF_THE_GATE if name in options}
    stopping = Stopping(baseline, mine, bench.spec.primary, labels, bench.spec.mode, **given)
    if bench.spec.epochs < stopping.epochs:
        raise RunError(
            f"{baseline} has {stopping.epochs} epochs, the spec {bench.spec.epochs}; add --epochs or --update"
        )
    done = await run(bench, watch=stopping, **options)
    return Run.of(done), stopping.verdict(done)
