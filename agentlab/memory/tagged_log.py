"""A text file of tagged entries, readable and editable by hand: the layered agent's memory and the backend `textfile`.

    <MEMORY module="ego" kind="user" time="2026-01-05T11:00:00">
    I play the oboe now.
    </MEMORY>

What stands between entries, a user's notes, is passed over and kept. An entry cannot pretend to be another: what would
be misread, `<` before MEMORY and what does not print, is written as a reference (`&lt;`, `&#x7;`), and an `&` that
would then begin one as `&amp;`. Writers wait for each other. Half an entry, which a killed writer leaves, ends where
the next one opens: it stays in the file and is not read.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from filelock import FileLock, Timeout

from agentlab.core.errors import MemoryUnavailable, ToolError
from agentlab.core.files import MAX_GENERATED_FILE_BYTES, append_atomically, read_bytes, write_atomically

_ATTRIBUTES = r"(?: [a-z_]+=\"[^\"\n]*\")*"
# None reaches past the next opening tag: what does was never finished.
_ENTRY = re.compile(
    rf"<MEMORY({_ATTRIBUTES})>\n((?:[^<\n]++|\n(?!</MEMORY>)|<(?!MEMORY{_ATTRIBUTES}>\n))*+)\n</MEMORY>\n?"
)
_ATTRIBUTE = re.compile(r" ([a-z_]+)=\"([^\"]*)\"")
_TAG = re.compile(r"<(?=/?\s*MEMORY)", re.IGNORECASE)
_WRITTEN_TAG = re.compile(r"&lt;(?=/?\s*MEMORY)", re.IGNORECASE)
_CODE = re.compile(r"&#x([0-9a-f]{1,4});")
_REFERENCE = r"(?=(?:amp;)*(?:lt|#x[0-9a-f]{1,4});)"
# Controls but the tab, line ends that a text editor may change, and marks that turn the writing direction round.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
MAX_ENTRY_CHARS = 1_000_000
"""Characters of one entry."""
_WAIT = 10.0
"""Seconds to wait for another writer; meanwhile the event loop of a flow stands still."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    module: str
    """Which part of the agent wrote it."""
    time: datetime
    """`datetime.min` where the file has none that can be read."""
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    """Further attributes, such as `kind`, `summary` or `tags`; names are lower-case letters and underscores."""


class TaggedLog:
    """The entries of one file, oldest first. Raises MemoryUnavailable where the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"), timeout=_WAIT)

    def add(self, entry: Entry) -> None:
        """Append an entry, whole or not at all; ToolError for one beyond all measure."""
        if len(entry.text) > MAX_ENTRY_CHARS:
            raise ToolError(f"a memory of {len(entry.text)} characters is too long; {MAX_ENTRY_CHARS} are the most")
        with self.locked():
            append(self.path, render_entries([entry]))

    def entries(self) -> list[Entry]:
        """What is there; text between entries, a user's notes or half an entry of a killed writer, is passed over."""
        with self.locked():
            return [_entry(found) for found in _ENTRY.finditer(self.text())]

    def remove(self, entries: Iterable[Entry]) -> list[Entry]:
        """Move these entries to the file of what was pruned, one for each that is given; returns those still there."""
        with self.locked():
            gone, moved, left = _taken_out(self.text(), entries)
            if gone:
                # First to where it can be found again, then out of here: killed in between, it is in both.
                append(self.pruned, moved.encode())
                write_atomically(self.path, left)
            return gone

    def replace(self, old: Iterable[Entry], new: Iterable[Entry]) -> None:
        """Delete entries and append others, both or neither."""
        with self.locked():
            _, _, left = _taken_out(self.text(), old)
            write_atomically(self.path, left.encode() + render_entries(new))

    @property
    def pruned(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.pruned.txt")

    def text(self) -> str:
        """The file as it stands, with line ends as on Unix; "" where there is none."""
        if not self.path.exists():
            return ""
        return read_bytes(self.path, MAX_GENERATED_FILE_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other writers out, and says in one line where the folder cannot be used."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self._lock:
                yield
        except Timeout:
            raise MemoryUnavailable(
                f"{self.path} has been held by another writer for {_WAIT:g} seconds; end it, or wait and try again"
            ) from None
        except OSError as problem:
            raise MemoryUnavailable(f"{self.path} cannot be used: {problem.strerror or problem}") from None


def append(path: Path, content: bytes) -> None:
    """Whole or not at all, on disk, and on a line of its own where a killed writer left half of one."""
    with path.open("ab+") as file:
        file.seek(max(file.tell() - 1, 0))
        is_begun = file.read(1) not in (b"", b"\n")
        append_atomically(path.resolve(), b"\n" + content if is_begun else content)
        os.fsync(file.fileno())


def render_entries(entries: Iterable[Entry]) -> bytes:
    """Entries as they stand in a file."""
    texts = (f"<MEMORY{_attributes(entry)}>\n{_body(entry.text)}\n</MEMORY>\n" for entry in entries)
    # Half a surrogate pair, which a model may write, has no place in a file.
    return "".join(texts).encode("utf-8", "replace")


def _attributes(entry: Entry) -> str:
    facts = {"module": entry.module, **entry.facts, "time": entry.time.isoformat()}
    lines = {name: _escape(html.escape(value)).replace("\n", "&#xa;") for name, value in facts.items()}
    return "".join(f' {name}="{line}"' for name, line in lines.items())


def _body(text: str) -> str:
    return _escape(_TAG.sub("&lt;", re.sub(f"&{_REFERENCE}", "&amp;", text)))


def _escape(text: str) -> str:
    return _UNPRINTABLE.sub(lambda found: f"&#x{ord(found[0]):x};", text)


def _decoded(text: str) -> str:
    def character(code: re.Match[str]) -> str:
        meant = chr(int(code[1], 16))
        # Other codes are not ours: they stand in what somebody wrote.
        return meant if meant == "\n" or _UNPRINTABLE.match(meant) else code[0]

    return _CODE.sub(character, text)


def _entry(found: re.Match[str]) -> Entry:
    facts = {name: html.unescape(_decoded(value)) for name, value in _ATTRIBUTE.findall(found[1])}
    module, moment = facts.pop("module", ""), facts.pop("time", "")
    try:
        time = datetime.fromisoformat(moment)
    except ValueError:
        time = datetime.min
    text = re.sub(f"&amp;{_REFERENCE}", "&", _WRITTEN_TAG.sub("<", _decoded(found[2])))
    return Entry(module=module, time=time, text=text, facts=facts)


def _taken_out(text: str, entries: Iterable[Entry]) -> tuple[list[Entry], str, str]:
    """The entries that are there, one for each that is given; their part of `text`; and what is left of it."""
    wanted, gone, moved = list(entries), [], []

    def take(found: re.Match[str]) -> str:
        entry = _entry(found)
        if entry not in wanted:
            return found[0]
        wanted.remove(entry)
        gone.append(entry)
        moved.append(found[0].rstrip("\n") + "\n")
        return ""

    left = _ENTRY.sub(take, text)
    return gone, "".join(moved), left
