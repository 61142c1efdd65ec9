"""Lab, the entry point in Python: it reads a spec, runs it and opens chats, on an event loop of its own.

lab = Lab("evals/flows.yaml", limit=2)
run = lab.run_sync()          # in a script
run = await lab.run()         # in a notebook, where the kernel runs a loop of its own
"""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  (registers its end before ours)
import contextlib
import dataclasses
import os
import tempfile
import threading
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from agentlab.core.errors import ConfigError
from agentlab.data.datasets import Dataset
from agentlab.evals.compare.gate import GateVerdict
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.play.runner import run
from agentlab.evals.store.fold import recording_misses
from agentlab.lab.run import Run
from agentlab.workbench.loop import Loop
from agentlab.workbench.spec import FlowSpec, Spec, load_spec, make_spec
from agentlab.workbench.workbench import Workbench, close_each

if TYPE_CHECKING:
    from agentlab.lab.chat import Chat

_OPEN: weakref.WeakSet[Lab] = weakref.WeakSet()
GATE_OPTIONS = ("margins", "alpha", "looks")
"""Options of `gate` that `run` does not have."""


class Lab:
    """Data sets, models and flows of a spec, for runs and chats.

    `spec` is a file, a Spec or None (the defaults). Keywords are keys of the spec and override it:
    `retrieval__top_k=8` sets `retrieval: {top_k: 8}`. `model`, `embedder` and `retrieval__method` may be objects,
    entries of `flows` functions. Parts are opened on first use; `close` or a `with` block closes them.

    Raises ConfigError for a spec or a keyword that is invalid, with file and key.
    """

    def __init__(self, spec: str | Path | Spec | None = None, **overrides: Any) -> None:
        overrides = {key.replace("__", "."): value for key, value in overrides.items()}
        objects = _given("models", "model", overrides) | _given("models.embedders", "embedder", overrides)
        objects |= _given("knowledge.retrievers", "retrieval.method", overrides)
        if "datasets" in overrides:
            folders = overrides["datasets"]
            overrides["datasets"] = [str(f) for f in ([folders] if isinstance(folders, (str, Path)) else folders)]
        if isinstance(overrides.get("flows"), (list, tuple)):
            overrides["flows"] = [_flow_entry(entry, objects) for entry in overrides["flows"]]
        if isinstance(spec, Spec):
            merged = make_spec(spec.model_dump(exclude_unset=True), overrides)
        else:
            merged = load_spec(spec, overrides)
        self.bench = Workbench(merged, objects)
        self.loop = Loop()
        self._chats: set[Chat] = set()
        _OPEN.add(self)

    def datasets(self) -> tuple[Dataset, ...]:
        """Return the data sets of the spec within its `limit`; raises DatasetError with file and line."""
        return self.bench.datasets()

    async def run(self, **options: Any) -> Run:
        """Play the data sets through the flows and return the finished run.

        Options: `out` is the run folder (default: a new one in `results/`); `resume=True` continues the run in `out`;
        `on_progress` is called with a RunProgress after each conversation; `executor="processes"` with `workers=4`
        uses several processes.

        Raises ConfigError before the start if flows, data and budget do not fit together.
        """
        return await asyncio.wrap_future(self.loop.submit(self._run(options)))

    def run_sync(self, **options: Any) -> Run:
        """Run as `run` does and wait for the end: for scripts."""
        return self.loop.run_coroutine(self._run(options))

    async def _run(self, options: dict[str, Any]) -> Run:
        return Run.of(await run(self.bench, **options))

    async def gate(self, baseline: str | Path, **options: Any) -> tuple[Run, GateVerdict]:
        """Run the flows until the verdict against a baseline is known; return the run and the verdict.

        Options: those of `run`; `margins` and `alpha` as in `al.gate`; `looks`, how often the test may stop the run.
        The rate of false alarms stays `alpha` for any number of looks.

        Raises RunError before the start if the baseline has other data, graders, flows, epochs or primary measures.
        """
        return await asyncio.wrap_future(self.loop.submit(self._gate(baseline, options)))

    def gate_sync(self, baseline: str | Path, **options: Any) -> tuple[Run, GateVerdict]:
        """Gate as `gate` does and wait for the verdict: for scripts."""
        return self.loop.run_coroutine(self._gate(baseline, options))

    async def _gate(self, baseline: str | Path, options: dict[str, Any]) -> tuple[Run, GateVerdict]:
        from agentlab.evals.compare.sequential_gate import SequentialGate

        bench, spec = self.bench, self.bench.spec
        current = {
            "name": f"the spec {spec.name}",
            "datasets": {dataset.name: dataset.digest for dataset in bench.datasets()},
            "graders": fingerprints(bench.scorers, bench.embedder.name),
            "stops": bench.stops,
        }
        labels = [variant.label for variant in bench.variants]
        gate_options = {name: options.pop(name) for name in GATE_OPTIONS if name in options}
        gate = SequentialGate(baseline, current, spec.primary, labels, spec.mode, **gate_options)
        finished = await run(bench, observer=gate, **options)
        return Run.of(finished), gate.verdict(finished)

    def chat(self, flow: str | None = None, *, model: str | None = None, **options: Any) -> Chat:
        """Open a chat with a flow of the lab (default: its first), on `model` if given; options are those of Chat."""
        from agentlab.lab.chat import Chat

        variant = self.bench.variant(flow or self.bench.variants[0].label)
        variant = dataclasses.replace(variant, model=model or variant.model)
        spec = self.bench.spec
        has_default = "datasets" not in spec.model_fields_set
        if options.get("documents") is None and has_default and not any(map(os.path.exists, spec.datasets)):
            options["documents"] = ()
        chat = Chat(self.bench, self.loop, variant, on_close=self._chats.discard, **options)
        self._chats.add(chat)
        return chat

    def close(self) -> None:
        """Close chats, models and the event loop. A second call does nothing; a closed lab cannot be used again."""
        if self.loop.is_running:
            self.loop.run_coroutine(close_each(list(self._chats)))
            self.loop.run_coroutine(self.bench.close_all())
            self.loop.end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        self.close()

    def __repr__(self) -> str:
        labels = ", ".join(variant.label for variant in self.bench.variants)
        return f"<Lab {self.bench.spec.name}: {labels} on {self.bench.spec.model}>"


def turns_that_miss(spec: Path) -> list[int]:
    """Replay a saved conversation, without a model, and return its turns with a call that is not recorded, from 1."""
    with tempfile.TemporaryDirectory() as scratch, Lab(spec) as lab:
        replay = lab.run_sync(out=Path(scratch) / "run")
        return sorted({notice.turn + 1 for trace in replay.traces.values() for notice in recording_misses(trace)})


def _close_open_labs() -> None:
    for lab in list(_OPEN):
        with contextlib.suppress(Exception):
            lab.close()


# A script without `with` must lose no write to memory. Such writes use threads, so `atexit` would be too late: by then
# concurrent.futures, which registers its own end in the same way, accepts no work.
threading._register_atexit(_close_open_labs)  # type: ignore[attr-defined]


def _given(room: str, key: str, overrides: dict[str, Any]) -> dict[tuple[str, str], Any]:
    """Replace an object under `key` of `overrides` by its name and return it by room and name; {} without an object."""
    value = overrides.get(key, "")
    if isinstance(value, str):
        return {}
    is_function = room == "knowledge.retrievers" and hasattr(value, "__name__")
    name = getattr(value, "__name__" if is_function else "name", None)
    if not isinstance(name, str):
        raise ConfigError(f"{key}: {value!r} is neither a name nor an object with a name")
    overrides[key] = name
    return {(room, name): value}


def _flow_entry(entry: Any, objects: dict[tuple[str, str], Any]) -> Any:
    """Return an entry of `flows` for the spec; a function is added to `objects` and named."""
    if isinstance(entry, (str, Mapping, FlowSpec)):
        return entry
    name = getattr(entry, "name", None) or getattr(entry, "__name__", None) or type(entry).__name__
    objects["flows", name] = entry
    return {"flow": name}
