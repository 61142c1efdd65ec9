"""A memory as a text file of tagged entries, readable and editable by hand: what the layered agent keeps.

    <MEMORY module="ego" kind="user" time="2026-01-05T11:00:00">
    I play the oboe now.
    </MEMORY>

An entry cannot pretend to be another: in it, `<` before MEMORY is written `&lt;`, and `&` before `lt;` as `&amp;`.
Two writers wait for each other; what is taken out lands in `<name>.pruned.txt` beside the file. Half an entry, which a
killed writer leaves, ends where the next one opens: it stays in the file and is not read.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from itertools import zip_longest
from pathlib import Path

from agentlab.core.errors import MemoryUnavailable, ToolError
from agentlab.core.files import replace_file

_OPENING = re.compile(r"<MEMORY((?: [a-z_]+=\"[^\"\n]*\")*)>\n")
_CLOSING = "\n</MEMORY>"
_ATTRIBUTE = re.compile(r" ([a-z_]+)=\"([^\"]*)\"")
_TAG = re.compile(r"<(?=/?\s*MEMORY)", re.IGNORECASE)
_ESCAPED = re.compile(r"&(?=(?:amp;)*lt;)")
_NAME = re.compile(r"[a-z_]+")
LONGEST = 1_000_000
"""Characters of one entry."""
_WAIT = 10.0
"""Seconds to wait for another writer; meanwhile the event loop stands still."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    module: str
    """Which part of the agent wrote it."""
    time: datetime
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    """Further attributes, such as `kind`, `summary` or `tags`; names are lower-case letters and underscores."""


class TaggedLog:
    """The entries of one file, oldest first. Raises MemoryUnavailable where the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def add(self, entry: Entry) -> None:
        """Append an entry, whole or not at all; ToolError for one beyond all measure."""
        if len(entry.text) > LONGEST:
            raise ToolError(f"a memory of {len(entry.text)} characters is too long; {LONGEST} are the most")
        with self._locked():
            _append(self.path, _written(entry))

    def entries(self) -> list[Entry]:
        """What is there; text between entries, a user's notes or half an entry of a killed writer, is passed over."""
        with self._locked():
            return [entry for _, entry in _read(self._text())]

    def remove(self, entries: Iterable[Entry]) -> list[Entry]:
        """Move these entries to the file of what was pruned, one for each that is given; returns those still there."""
        wanted = list(entries)
        with self._locked():
            text = self._text()
            gone, left, moved, end = [], [], [], 0
            for place, entry in _read(text):
                if entry in wanted:
                    wanted.remove(entry)
                    gone.append(entry)
                    left.append(text[end : place.start])
                    moved.append(f"{text[place]}\n")
                    end = place.stop + text.startswith("\n", place.stop)
            if not gone:
                return []
            left.append(text[end:])
            # First to where it can be found again, then out of here: killed in between, it is in both.
            _append(self.pruned, "".join(moved).encode())
            replace_file(self.path, "".join(left))
            return gone

    @property
    def pruned(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.pruned.txt")

    def _text(self) -> str:
        return self.path.read_bytes().decode("utf-8", "replace").replace("\r\n", "\n") if self.path.exists() else ""

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Keeps other writers out, and says in one line where the folder cannot be used."""
        from filelock import FileLock, Timeout

        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with FileLock(self.path.with_suffix(".lock"), timeout=_WAIT):
                yield
        except Timeout:
            raise MemoryUnavailable(
                f"{self.path} has been held by another writer for {_WAIT:g} seconds; end it, or wait and try again"
            ) from None
        except OSError as problem:
            raise MemoryUnavailable(f"{self.path} cannot be used: {problem.strerror or problem}") from None


def _append(path: Path, content: bytes) -> None:
    """Whole or not at all, and on a line of its own where a killed writer left half of one."""
    size = path.stat().st_size if path.exists() else 0
    try:
        with path.open("ab+") as file:
            file.seek(max(size - 1, 0))
            if file.read(1) not in (b"", b"\n"):
                file.write(b"\n")
            file.write(content)
    except OSError:
        with contextlib.suppress(OSError):
            os.truncate(path, size)
        raise


def _written(entry: Entry) -> bytes:
    facts = {"module": entry.module, **entry.facts, "time": entry.time.isoformat()}
    attributes = "".join(f' {name}="{html.escape(" ".join(value.split()))}"' for name, value in _checked(facts))
    text = _TAG.sub("&lt;", _ESCAPED.sub("&amp;", entry.text))
    # Half a surrogate pair, which a model may write, has no place in a file.
    return f"<MEMORY{attributes}>\n{text}\n</MEMORY>\n".encode("utf-8", "replace")


def _checked(facts: dict[str, str]) -> Iterable[tuple[str, str]]:
    for name, value in facts.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a fact: lower-case letters and underscores")
        yield name, value


def _read(text: str) -> Iterator[tuple[slice, Entry]]:
    """The entries, each with its place. None reaches past the next opening tag: what does was never finished."""
    tags = list(_OPENING.finditer(text))
    for tag, following in zip_longest(tags, tags[1:]):
        closing = text.find(_CLOSING, tag.end(), following.start() if following else None)
        if closing >= 0:
            yield slice(tag.start(), closing + len(_CLOSING)), _entry(tag[1], text[tag.end() : closing])


def _entry(attributes: str, body: str) -> Entry:
    facts = {name: html.unescape(value) for name, value in _ATTRIBUTE.findall(attributes)}
    module, moment = facts.pop("module", ""), facts.pop("time", "")
    try:
        time = datetime.fromisoformat(moment)
    except ValueError:
        time = datetime.min
    text = re.sub(r"&amp;(?=(?:amp;)*lt;)", "&", re.sub(r"&lt;(?=/?\s*MEMORY)", "<", body, flags=re.IGNORECASE))
    return Entry(module=module, time=time, text=text, facts=facts)
