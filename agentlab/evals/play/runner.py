"""Plays every conversation through every flow and writes down what happens, turn by turn.

    run = await run(bench, out=Path("results/first"))

A killed run is continued with `resume=True`: finished conversations are kept, the others begin again as a new take. So
is one that stopped because its budget was spent or the model down. With an executor the conversations are shared out.
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
from agentlab.evals.play.executors import executor_factory
from agentlab.evals.play.fork import Fork
from agentlab.evals.play.observer import RunObserver
from agentlab.evals.play.player import Player
from agentlab.evals.play.preflight import check_run, open_folder
from agentlab.evals.play.shards import play_in_shards
from agentlab.evals.store.folder import lock_run_folder
from agentlab.evals.store.log import run_log
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
    watch: RunObserver | None = None,
    fork: Fork | None = None,
    keep_failures: bool = False,
) -> StoredRun:
    """Run the spec into the folder `out` (default `results/<run id>`) and return the finished run.

    `executor` is `processes` or `dask` (of the cluster at `scheduler`, or a local one), and shares the conversations
    out among `workers`; by default they are played in this process. Workers write to `out`, which they must be able to
    reach.

    With `watch` conversations are played in its order, until it says that the run may stop; with `fork`
    their first turns are those of another run. With `resume`, conversations in which the provider failed are played
    again from that turn on, unless `keep_failures`.

    Raises ConfigError where flows, data and budget do not fit together, before anything is written.
    """
    shards = (os.cpu_count() or 1) if workers is None else workers
    opened = None if executor is None else executor_factory(executor, shards, scheduler)
    for given, why in (
        (on_event, "what flows tell while they work does not come from other processes; run without --executor"),
        (watch, "a gate that looks while flows are played needs them in this process; run without --executor"),
        (fork, "a fork is played in this process; run it without an executor"),
    ):
        if opened is not None and given is not None:
            raise ConfigError(why)
    datasets = bench.datasets()
    check_run(bench, datasets, resume)
    if resume and out is None:
        raise ConfigError("to resume, name the folder of the run to go on with: --out DIR")
    run_id = f"{datetime.now():%Y%m%d-%H%M%S}-{bench.spec.name}"
    path = Path(out) if out is not None else Path("results") / run_id
    with run_log() as log_to:
        # What is broken in the tools of a data folder ends the run while there is no folder of its own yet.
        if not all(c.tools for d in datasets for c in d.conversations):
            for variant in bench.variants:
                await bench.tool_managers(variant)
        if out is None:
            path = _new_folder(path)
        with lock_run_folder(path):
            special = {
                "fork": None if fork is None else fork.header,
                "shards": None if opened is None else shards,
                "sequential": None if watch is None else watch.plan,
            }
            folder = open_folder(bench, datasets, path, resume, **special)
            log_to(folder.path)
            if opened is None:
                options: dict[str, Any] = {"fork": fork, "watch": watch, "keep_failures": keep_failures}
                played = await Player(bench, datasets, folder, on_progress, on_event, **options).play()
            else:
                played = await play_in_shards(bench, datasets, folder, opened, on_progress, keep_failures)
            if again := sum(flow.counts["asked_again"] for flow in played.flows.values()):
                again += folder.header.get("asked_again", 0)
                folder.write_json("run.json", {**folder.header, "asked_again": again})
            found = summarise(folder.header, played.flows, complete=played.is_complete, secrets=folder.secrets())
            found = replace(found, quarantined=played.quarantined or UNSET, limits=played.limits or UNSET)
            folder.write_json("summary.json", found)
            return StoredRun(folder, datasets)


def _new_folder(path: Path) -> Path:
    """Make the folder `path`, or one with a number behind its name if another run of the same second has it."""
    for number in itertools.count(1):
        folder = path if number == 1 else path.with_name(f"{path.name}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError:
            pass  # the lock of the folder reports it
        return folder
    raise AssertionError("numbers do not end")
