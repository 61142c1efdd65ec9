"""What is checked before a run writes anything: that flows, data, recordings and budget fit together."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from agentlab.core.errors import ConfigError
from agentlab.data.datasets import Dataset
from agentlab.data.lint import lint
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)


def check_run(bench: Workbench, datasets: Sequence[Dataset], resume: bool) -> None:
    """Raise ConfigError for what cannot go together, and warn of gold that contradicts itself."""
    for dataset in datasets:
        for variant in bench.variants:
            _check_needs(variant, dataset)
        _check_memory(bench.variants, dataset, bench.spec.ingest)
        found = list(lint(dataset))
        if found:
            more = f" (and {len(found) - 1} more such places)" if len(found) > 1 else ""
            log.warning("%s: %s%s", dataset.name, found[0], more)
    for variant in bench.variants:
        if bench.spec.budget.usd is not None and bench.prices.of(variant.model) is None:
            raise ConfigError(
                f"budget.usd: {variant.model} has no price, so dollars cannot be counted; "
                "add it to a table of your own and name that under `prices`, or use budget.calls"
            )
    _check_recordings(bench, resume)


def _check_needs(variant: Variant, dataset: Dataset) -> None:
    has = {"documents": bool(dataset.documents), "tools": all(c.tools for c in dataset.conversations)}
    for need in variant.needs:
        if not set(need.split(" or ")) <= set(has):
            raise ConfigError(f"flow {variant.label!r} needs {need!r}; a flow can need {' or '.join(has)}")
        if not any(has[part] for part in need.split(" or ")):
            raise ConfigError(f"flow {variant.label!r} needs {need}, and the data set {dataset.name!r} has none")


def _check_memory(variants: Sequence[Variant], dataset: Dataset, ingest: str) -> None:
    """Raise ConfigError where no flow can be asked about what was told before.

    Beside one that can, a flow without a memory shows what is answered without one.
    """
    if not dataset.told:
        return
    remembering = [variant for variant in variants if variant.memory is not None]
    if not remembering:
        raise ConfigError(
            f"no flow of this run has a long-term memory, and {dataset.name!r} asks for what was told before"
        )
    for variant in remembering:
        if ingest == "flow" and variant.write_memory is None:
            raise ConfigError(
                f"flow {variant.label!r} has no step that writes to memory (`write_memory`); use ingest: verbatim"
            )


def _check_recordings(bench: Workbench, resume: bool) -> None:
    recordings = bench.recorder.recordings
    if bench.spec.mode == "record" and not resume and recordings is not None and len(recordings):
        raise ConfigError(
            f"{bench.spec.recordings} holds recordings of {bench.spec.name!r} already; go on with --resume, keep them"
            " and add what is new with --mode auto, or delete the file to record everything anew"
        )
