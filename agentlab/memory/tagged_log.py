"""Text file of tagged entries that people can edit, used by the layered agent and the backend `textfile`.

    <MEMORY module="ego" kind="user" time="2026-01-05T11:00:00">
    I play the oboe now.
    </MEMORY>

The log ignores text between entries, such as a user's notes, and leaves it in the file. No text can look like another
entry: `<` before MEMORY and unprintable characters are written as references (`&lt;`, `&#x7;`), and an `&` before such
a reference as `&amp;`. Writers wait for each other. A killed writer may leave half an entry. It ends where the next
entry opens; it stays in the file and is not read.
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

from agentlab.core.errors import MemoryUnavailable, ToolError, os_errors_as
from agentlab.core.files import MAX_GENERATED_FILE_BYTES, append_atomically, read_bytes, write_atomically

_ATTRIBUTES = r"(?: [a-z_]+=\"[^\"\n]*\")*"
# No entry reaches past the next opening tag: such an entry was never finished.
_ENTRY = re.compile(
    rf"<MEMORY({_ATTRIBUTES})>\n((?:[^<\n]++|\n(?!</MEMORY>)|<(?!MEMORY{_ATTRIBUTES}>\n))*+)\n</MEMORY>\n?"
)
_ATTRIBUTE = re.compile(r" ([a-z_]+)=\"([^\"]*)\"")
_TAG = re.compile(r"<(?=/?\s*MEMORY)", re.IGNORECASE)
_WRITTEN_TAG = re.compile(r"&lt;(?=/?\s*MEMORY)", re.IGNORECASE)
_CODE = re.compile(r"&#x([0-9a-f]{1,4});")
_REFERENCE = r"(?=(?:amp;)*(?:lt|#x[0-9a-f]{1,4});)"
# Control characters except tab and newline, line ends that an editor may change, and marks of the writing direction.
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff]")
MAX_ENTRY_CHARS = 1_000_000
"""Characters of one entry."""
_WAIT = 10.0
"""Seconds to wait for another writer. The event loop of a flow is blocked for that time."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    module: str
    """Part of the agent that wrote the entry."""
    time: datetime
    """`datetime.min` if the file has no readable time."""
    text: str
    facts: dict[str, str] = field(default_factory=dict)
    """Further attributes, such as `kind`, `summary` or `tags`; names are lower-case letters and underscores."""


class TaggedLog:
    """Entries of one file, oldest first. Methods raise MemoryUnavailable if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = FileLock(path.with_suffix(".lock"), timeout=_WAIT)

    def add(self, entry: Entry) -> None:
        """Append an entry, complete or not at all; raise ToolError if it is too long."""
        if len(entry.text) > MAX_ENTRY_CHARS:
            raise ToolError(f"a memory of {len(entry.text)} characters is too long; {MAX_ENTRY_CHARS} are the most")
        with self.locked():
            append(self.path, render_entries([entry]))

    def entries(self) -> list[Entry]:
        """Return all complete entries."""
        with self.locked():
            return [_parse_entry(match) for match in _ENTRY.finditer(self.text())]

    def remove(self, entries: Iterable[Entry]) -> list[Entry]:
        """Move `entries` to the file of pruned entries; return those that existed, one for each given."""
        with self.locked():
            removed, pruned, rest = _split_off(self.text(), entries)
            if removed:
                # Append first: a kill in between then leaves the entry in both files, not in none.
                append(self.pruned, pruned.encode())
                write_atomically(self.path, rest)
            return removed

    def replace(self, old: Iterable[Entry], new: Iterable[Entry]) -> None:
        """Delete the entries `old` and append `new` in one atomic write."""
        with self.locked():
            _, _, rest = _split_off(self.text(), old)
            write_atomically(self.path, rest.encode() + render_entries(new))

    @property
    def pruned(self) -> Path:
        return self.path.with_name(f"{self.path.stem}.pruned.txt")

    def text(self) -> str:
        """Return the content of the file with Unix line ends; "" if there is no file."""
        if not self.path.exists():
            return ""
        return read_bytes(self.path, MAX_GENERATED_FILE_BYTES).decode("utf-8", "replace").replace("\r\n", "\n")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other writers out for this block; raise MemoryUnavailable if the folder cannot be used."""
        with os_errors_as(MemoryUnavailable, f"{self.path} cannot be used: "):
            self.path.parent.mkdir(parents=True, exist_ok=True)
            try:
                with self._lock:
                    yield
            except Timeout:
                raise MemoryUnavailable(
                    f"{self.path} has been held by another writer for {_WAIT:g} seconds; end it, or wait and try again"
                ) from None


def append(path: Path, content: bytes) -> None:
    """Append `content` to a file on disk, complete or not at all, on a new line even after a killed writer."""
    with path.open("ab+") as file:
        file.seek(max(file.tell() - 1, 0))
        ends_mid_line = file.read(1) not in (b"", b"\n")
        append_atomically(path.resolve(), b"\n" + content if ends_mid_line else content)
        os.fsync(file.fileno())


def render_entries(entries: Iterable[Entry]) -> bytes:
    """Return entries in the format of the file."""
    texts = (f"<MEMORY{_attributes(entry)}>\n{_body(entry.text)}\n</MEMORY>\n" for entry in entries)
    # A model may write a lone surrogate, which UTF-8 cannot encode.
    return "".join(texts).encode("utf-8", "replace")


def _attributes(entry: Entry) -> str:
    facts = {"module": entry.module, **entry.facts, "time": entry.time.isoformat()}
    lines = {name: _escape(html.escape(value)).replace("\n", "&#xa;") for name, value in facts.items()}
    return "".join(f' {name}="{line}"' for name, line in lines.items())


def _body(text: str) -> str:
    return _escape(_TAG.sub("&lt;", re.sub(f"&{_REFERENCE}", "&amp;", text)))


def _escape(text: str) -> str:
    return _UNPRINTABLE.sub(lambda match: f"&#x{ord(match[0]):x};", text)


def _unescape(text: str) -> str:
    def character(code: re.Match[str]) -> str:
        decoded = chr(int(code[1], 16))
        # `_escape` never writes other codes, so they are part of the text.
        return decoded if decoded == "\n" or _UNPRINTABLE.match(decoded) else code[0]

    return _CODE.sub(character, text)


def _parse_entry(match: re.Match[str]) -> Entry:
    facts = {name: html.unescape(_unescape(value)) for name, value in _ATTRIBUTE.findall(match[1])}
    module, moment = facts.pop("module", ""), facts.pop("time", "")
    try:
        time = datetime.fromisoformat(moment)
    except ValueError:
        time = datetime.min
    text = re.sub(f"&amp;{_REFERENCE}", "&", _WRITTEN_TAG.sub("<", _unescape(match[2])))
    return Entry(module=module, time=time, text=text, facts=facts)


def _split_off(text: str, entries: Iterable[Entry]) -> tuple[list[Entry], str, str]:
    """Return those of `entries` that `text` contains, their text, and the rest of `text`."""
    wanted, removed, pieces = list(entries), [], []

    def remove(match: re.Match[str]) -> str:
        entry = _parse_entry(match)
        if entry not in wanted:
            return match[0]
        wanted.remove(entry)
        removed.append(entry)
        pieces.append(match[0].rstrip("\n") + "\n")
        return ""

    rest = _ENTRY.sub(remove, text)
    return removed, "".join(pieces), rest
