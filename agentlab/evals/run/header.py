"""The header of a run folder, `run.json`: what was run on what, and whether a run may be continued with it."""

from __future__ import annotations

import contextlib
import platform
import sys
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from agentlab.core.errors import RunError
from agentlab.core.version import __version__
from agentlab.data.datasets import Dataset
from agentlab.evals.results.graders import fingerprints
from agentlab.evals.run.folder import FORMAT, RunFolder
from agentlab.workbench.workbench import Workbench


def open_folder(bench: Workbench, datasets: tuple[Dataset, ...], path: Path, resume: bool) -> RunFolder:
    """A new folder, or with `resume` the one that is there; raises RunError where that was begun with other things."""
    header: dict[str, Any] = {
        "run_id": path.name,
        "started": datetime.now().astimezone().isoformat(timespec="seconds"),
        "spec": bench.spec.model_dump(mode="json"),
        "datasets": {
            d.name: {"sha256": d.digest, "conversations": len(d.conversations), "turns": d.turns} for d in datasets
        },
        "graders": fingerprints(bench.scorers, bench.embedder.name),
        "models": bench.answering(),
        "versions": _versions(),
        "machine": {"system": platform.platform(), "python": sys.version.split()[0], "processor": platform.machine()},
        "prices_dated": bench.prices.dated,
    }
    prompt_files = {f"{v.label}/{name}": sha256 for v in bench.variants for name, sha256 in v.prompt_files.items()}
    if prompt_files:
        header["prompt_files"] = prompt_files
    if not resume or not (path / "run.json").exists():
        return RunFolder.create(path, header)
    folder = RunFolder.open(path)
    before = folder.header
    if before["format"] != FORMAT:
        raise RunError(f"{path} was begun by an older version (run format {before['format']}); it can only be read")
    for part in ("spec", "datasets", "models", "prompt_files"):
        may_change = ("concurrency", "budget") if part == "spec" else ()
        was, now = before.get(part, {}), header.get(part, {})
        other = [key for key in sorted({*was, *now}) if was.get(key) != now.get(key) and key not in may_change]
        if other:
            raise RunError(f"{path}: {part}: {', '.join(other)} was not the same in that run; it cannot be continued")
    folder.mend()
    # Every turn is graded anew at the end, those of the first sitting too.
    folder.write_json("run.json", {**before, "graders": header["graders"]})
    return folder


def _versions() -> dict[str, str]:
    found = {"agentlab": __version__}
    for name in ("openai", "chromadb", "xllamacpp", "onnxruntime", "bm25s", "numpy"):
        with contextlib.suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found
