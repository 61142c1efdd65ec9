"""Play every conversation through every flow and store the results, turn by turn.

    run = await run(bench, out=Path("results/first"))

`resume=True` continues a run that was killed, or that stopped on a spent budget or an unreachable model. It keeps
finished conversations and starts a new attempt of the others. An executor splits the conversations over workers.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

from msgspec import UNSET
from msgspec.structs import replace

from agentlab.core.errors import ConfigError
from agentlab.core.stream import StreamItem
from agentlab.core.trace import Trace
from agentlab.evals.play.plan import RunObserver
from agentlab.evals.play.player import Fork, Player
from agentlab.evals.play.preflight import check_run, open_folder
from agentlab.evals.play.shards import ShardedRun, executor_factory
from agentlab.evals.store.folder import lock_run_folder, run_log
from agentlab.evals.store.progress import RunProgress
from agentlab.evals.store.run import StoredRun
from agentlab.evals.store.summary import summarise
from agentlab.workbench.workbench import Workbench


async def run(
    bench: Workbench,
    *,
    out: str | Path | None = None,
    resume: bool = False,
    on_progress: Callable[[RunProgress], None] = lambda progress: None,
    on_event: Callable[[Trace, StreamItem], None] | None = None,
    executor: str | None = None,
    workers: int | None = None,
    scheduler: str | None = None,
    observer: RunObserver | None = None,
    fork: Fork | None = None,
    keep_failures: bool = False,
) -> StoredRun:
    """Run the spec into the folder `out` (default `results/<run id>`) and return the finished run.

    `executor` is `processes` or `dask` (the cluster at `scheduler`, or a local one) and plays the conversations in
    `workers` partitions. By default this process plays all of them. Workers write to `out`, a path that they share.

    With `observer`, conversations follow the observer's order, until it stops the run. With `fork` the first turns
    come from another run. With `resume` a conversation in which the provider failed is played again from the failed
    turn on, unless `keep_failures`.

    Raises ConfigError before anything is written, if flows, data and budget do not fit together.
    """
    shards = (os.cpu_count() or 1) if workers is None else workers
    opened = None if executor is None else executor_factory(executor, shards, scheduler)
    for argument, message in (
        (on_event, "--events does not work with other processes; run without --executor"),
        (observer, "a sequential gate needs all flows in this process; run without --executor"),
        (fork, "a fork runs in this process only; run without an executor"),
    ):
        if opened is not None and argument is not None:
            raise ConfigError(message)
    datasets = bench.datasets()
    check_run(bench, datasets, resume)
    if resume and out is None:
        raise ConfigError("--resume needs the folder of the run: add --out DIR")
    run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{bench.spec.name}"
    path = Path(out) if out is not None else Path("results") / run_id
    with run_log() as log_to:
        # An error in the tools must end the run before its folder exists.
        if not all(c.tools for d in datasets for c in d.conversations):
            for variant in bench.variants:
                await bench.tool_managers(variant)
        if out is None:
            path = _new_folder(path)
        with lock_run_folder(path):
            special = {
                "fork": None if fork is None else fork.header,
                "shards": None if opened is None else shards,
                "sequential": None if observer is None else observer.plan,
            }
            folder = open_folder(bench, datasets, path, resume, **special)
            log_to(folder.path)
            if opened is None:
                options: dict[str, Any] = {"fork": fork, "observer": observer, "keep_failures": keep_failures}
                played = await Player(bench, datasets, folder, on_progress, on_event, **options).play()
            else:
                played = await ShardedRun(bench, datasets, folder, on_progress, keep_failures).play(opened)
            if again := sum(flow.counts["asked_again"] for flow in played.flows.values()):
                again += folder.header.get("asked_again", 0)
                folder.write_json("run.json", {**folder.header, "asked_again": again})
            summary = summarise(folder.header, played.flows, complete=played.is_complete, secrets=folder.secrets())
            summary = replace(summary, quarantined=played.quarantined or UNSET, limits=played.limits or UNSET)
            folder.write_json("summary.json", summary)
            return StoredRun(folder, datasets)


def _new_folder(path: Path) -> Path:
    """Create the folder `path`, or one with a number after its name if `path` exists; return the new path."""
    for number in itertools.count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            pass  # the lock of the folder reports it
        return folder
    raise AssertionError("unreachable: the loop has no end")
