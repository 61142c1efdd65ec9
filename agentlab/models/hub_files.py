"""GGUF files of a model hub by name: `hf:OWNER/REPO/FILE.gguf`, with its hash `hf:OWNER/REPO/FILE.gguf@SHA256`.

The hub is that of `HF_ENDPOINT`. The first download of a file shows its SHA-256 and stores it beside the file. From
then on other bytes are refused. A spec that names the hash is pinned to these bytes on every machine.
"""

from __future__ import annotations

import re
from pathlib import Path

from msgspec import Struct

from agentlab.core.errors import ConfigError, WeightsError, os_errors_as
from agentlab.models.sources import Hub
from agentlab.models.weights import Progress, WeightFile, ensure_file, home, is_verified, known_digest

PREFIX = "hf:"
_NAME = re.compile(r"hf:([\w.-]+/[\w.-]+)/((?:[\w.+-]+/)*[\w.+-]+\.gguf)(?:@([0-9a-f]{64}))?", re.IGNORECASE | re.ASCII)


class HubFile(Struct, frozen=True):
    repo: str
    path: str
    pin: str = ""
    """SHA-256 of the file; "" if the name has none."""

    @property
    def name(self) -> str:
        """Name without the hash."""
        return f"{PREFIX}{self.repo}/{self.path}"

    @property
    def target(self) -> Path:
        return home() / "weights" / "hub" / self.repo / self.path


def parse(name: str) -> HubFile | None:
    """Return the file that `name` names; None for a name without `hf:`. Raises ConfigError for any other form."""
    if not name.startswith(PREFIX):
        return None
    match = _NAME.fullmatch(name)
    if match is None or ".." in name.split("/"):
        raise ConfigError(f"local/{name}: write local/hf:OWNER/REPO/FILE.gguf, optionally with @ and its SHA-256")
    return HubFile(match[1], match[2], (match[3] or "").lower())


def digest(file: HubFile) -> str:
    """Return the SHA-256 of the file, from its name or its first download; raises ConfigError if it is unknown."""
    sha256 = file.pin or known_digest(file.target)
    if not sha256:
        raise ConfigError(f"local/{file.name} has no hash: run `agentlab pull local/{file.name}`, write it after @")
    return sha256


def fetch(file: HubFile, progress: Progress = lambda name, done, total: None) -> Path:
    """Return the path of the file; download it if it is missing.

    Raises WeightsError for a hub that does not respond, and for other bytes than those of the hash.
    """
    sha256 = file.pin or known_digest(file.target) or ""
    wanted = WeightFile(name=file.path, bytes=0, sha256=sha256, sources=(Hub(repo=file.repo, path=file.path),))
    with os_errors_as(WeightsError, f"cannot write {file.target}: "):
        if not (sha256 and is_verified(file.target, wanted)):
            ensure_file(file.target, wanted, "chat", progress)
    return file.target


def files_here() -> list[tuple[HubFile, str]]:
    """Return the downloaded files with their SHA-256."""
    folder = home() / "weights" / "hub"
    files = []
    for path in sorted(folder.glob("*/*/**/*.gguf")):
        owner, repo, *rest = path.relative_to(folder).parts
        if sha256 := known_digest(path):
            files.append((HubFile(f"{owner}/{repo}", "/".join(rest)), sha256))
    return files
