"""Pins the files of a model hub in a spec: at their first use their hash is written behind their name."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable
from pathlib import Path

from agentlab.cli.echo import echo
from agentlab.cli.progress import fetch
from agentlab.core.files import write_atomically
from agentlab.models import hub_files


def pin_hub_files(spec: Path | None, names: Iterable[str]) -> None:
    """Download the hub files that are named without a hash in `names` or the spec, and write their hash into the spec.

    A file that cannot be read is left to the reader of specs.
    """
    text = ""
    if spec is not None:
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = spec.read_text(encoding="utf-8")
    without_comments = re.sub(r"(?m)(?:^|\s)#.*$", "", text)
    given = re.findall(r"local/(hf:[\w./+-]+\.gguf)(?![@\w])", " ".join([without_comments, *names]))
    pinned = text
    for name in dict.fromkeys(given):
        file = hub_files.parse(name)
        assert file is not None, "the name starts with its prefix"
        fetch([name])
        sha256 = hub_files.digest(file)
        echo(f"{name}: SHA-256 {sha256}")
        pinned = re.sub(rf"(local/{re.escape(name)})(?![@\w])", rf"\1@{sha256}", pinned)
    if spec is not None and pinned != text:
        try:
            write_atomically(spec, pinned)
            echo(f"{spec}: pinned")
        except OSError as problem:
            echo(f"{spec}: cannot be pinned ({problem.strerror}); write the hash behind the name, after @")
