"""Checks before a run starts, and the header that its folder gets."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import logging
import platform
import sys
from collections.abc import Sequence
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from agentlab.core.errors import ConfigError, RunError
from agentlab.core.secrets import redact_json
from agentlab.core.version import __version__
from agentlab.data.datasets import Dataset, by_name
from agentlab.data.lint import lint
from agentlab.evals.grade.fingerprints import fingerprints
from agentlab.evals.store.folder import RunFolder
from agentlab.evals.store.measures import check_primary
from agentlab.evals.store.rows import UNKNOWN
from agentlab.workbench.variants import Variant
from agentlab.workbench.workbench import Workbench

log = logging.getLogger(__name__)
_MAY_CHANGE = ("concurrency", "budget", "primary", "usable", "limits", "timeouts", "stops", "labels", "also_recorded")
"""Spec keys that may change when a run is resumed."""


def check_run(bench: Workbench, datasets: Sequence[Dataset], resume: bool) -> None:
    """Raise ConfigError if parts of the spec do not fit together; warn about lint findings."""
    for dataset in datasets:
        for variant in bench.variants:
            _check_needs(bench, variant, dataset)
        _check_memory(bench.variants, dataset, bench.spec.ingest)
        findings = lint(dataset)
        if findings:
            rest = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
            log.warning("%s%s; `agentlab lint` lists all findings", findings[0], rest)
    for variant in bench.variants:
        if bench.spec.budget.usd is not None and bench.prices.price_of(variant.model) is None:
            raise ConfigError(
                f"budget.usd: {variant.model} has no price, so dollars cannot be counted; "
                "add a price table under `prices`, or use budget.calls"
            )
    check_primary(bench.spec.primary, bench.scorers, datasets)
    _check_recordings(bench, resume)


def _check_needs(bench: Workbench, variant: Variant, dataset: Dataset) -> None:
    has_documents = bool(dataset.documents) or not bench.retriever(variant.retrieval).needs_documents
    has = {"documents": has_documents, "tools": all(c.tools for c in dataset.conversations)}
    for need in variant.attribute("NEEDS", ()):
        if not set(need.split(" or ")) <= set(has):
            raise ConfigError(f"flow {variant.label!r} needs {need!r}; a flow can need {' or '.join(has)}")
        # A replay needs no documents: its replies are recorded.
        if bench.spec.mode != "replay" and not any(has[part] for part in need.split(" or ")):
            raise ConfigError(f"flow {variant.label!r} needs {need}, but the data set {dataset.name!r} has none")


def _check_memory(variants: Sequence[Variant], dataset: Dataset, ingest: str) -> None:
    """Raise ConfigError if a memory set meets no flow with a memory.

    One such flow is enough: a flow without a memory serves as the comparison.
    """
    if not dataset.memory_sessions:
        return
    with_memory = [variant for variant in variants if variant.memory is not None]
    if not with_memory:
        raise ConfigError(
            f"no flow of this run has a long-term memory, but {dataset.name!r} needs one; set `memory` for a flow"
        )
    for variant in with_memory:
        if ingest == "flow" and variant.attribute("write_memory") is None:
            raise ConfigError(
                f"flow {variant.label!r} has no step that writes to memory (`write_memory`); use ingest: verbatim"
            )


def _check_recordings(bench: Workbench, resume: bool) -> None:
    recordings = bench.recorder.recordings
    if bench.spec.mode == "record" and not resume and recordings is not None and len(recordings):
        raise ConfigError(
            f"{bench.spec.recordings} already has recordings of {bench.spec.name!r}; continue with --resume, add the"
            " missing ones with --mode auto, or delete the file to record everything again"
        )


def open_folder(bench: Workbench, datasets: Sequence[Dataset], path: Path, resume: bool, **special: Any) -> RunFolder:
    """Create the run folder, or with `resume` open the existing one; raises RunError if its settings differ.

    `special` maps kinds of runs to their header or None: `fork`, `shards` (an existing folder keeps its number) and
    `sequential`, the plan of a run that may stop early.
    """
    files = {f"{v.label}/{name}": sha256 for v in bench.variants for name, sha256 in v.prompt_files.items()}
    stops = {label: stops for label, stops in bench.stops.items() if stops}
    header: dict[str, Any] = {
        "run_id": path.name,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "spec": bench.spec.model_dump(mode="json"),
        "datasets": {
            d.name: {"sha256": d.digest, "conversations": len(d.conversations), "turns": d.turns} for d in datasets
        },
        "graders": fingerprints(bench.scorers, bench.embedder.name),
        "models": bench.resolved_models(),
        "flow_code": {v.label: _code_of(v.flow) for v in bench.variants},
        "versions": _versions(),
        "machine": {"system": platform.platform(), "python": sys.version.split()[0], "processor": platform.machine()},
        "prices_dated": bench.prices.dated,
        **{name: value for name, value in {"prompt_files": files, "stops": stops, **special}.items() if value},
    }
    header, _ = redact_json(header)
    if not resume or not (path / "run.json").exists():
        folder = RunFolder.create(path, header)
        folder.write_expected(by_name(datasets, datasets))
        return folder
    folder = RunFolder.open(path)
    before = folder.header
    for part in ("spec", "datasets", "models", "prompt_files", "sequential"):
        may_change = _MAY_CHANGE if part == "spec" else ()
        old, now = before.get(part, {}), header.get(part, {})
        changed = [key for key in sorted({*old, *now}) if old.get(key) != now.get(key) and key not in may_change]
        if changed:
            raise RunError(f"{path}: {part}: {', '.join(changed)} differs in that run; restore it or use a new --out")
    if ("shards" in before) != ("shards" in header):
        how = "with --executor" if "shards" in before else "without --executor"
        raise RunError(f"{path} was started {how}; resume it {how}")
    folder.verify_checksums(regrade=True)
    folder.repair()
    return folder


def _code_of(flow: Any) -> str:
    """Return the SHA-256 of a flow's source; UNKNOWN for an object with settings of its own."""
    try:
        return hashlib.sha256(inspect.getsource(flow).encode()).hexdigest()
    except (OSError, TypeError):
        return UNKNOWN


def _versions() -> dict[str, str]:
    versions = {"agentlab": __version__}
    for name in ("aiohttp", "chromadb", "xllamacpp", "onnxruntime", "bm25s", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions
