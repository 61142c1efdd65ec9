"""Splits the body of a response into server-sent events."""

from __future__ import annotations

import re

_DONE = re.compile(rb'(?:\A|\n)(?:data:\s*)?"?\[DONE\]', re.IGNORECASE)


class SseParser:
    """Reads server-sent events from the pieces of a body; only their data fields are used."""

    def __init__(self) -> None:
        self.is_done = False
        """True after `[DONE]`."""
        self._unfinished: list[bytes] = []
        self._data: bytes | None = None

    def feed(self, piece: bytes) -> list[bytes]:
        """Return the data of the events that end in `piece`; b"" marks the end of the body."""
        if piece[:5] == b"data:" and piece[-2:] == b"\n\n" and self._data is None and not any(self._unfinished):
            # Fast path: nearly all pieces are whole events of one line each.
            events = piece[5:-2].split(b"\n\ndata:")
            if piece.count(b"\n") == 2 * len(events) and b"\r" not in piece:
                return self._until_done([event.strip() for event in events])
        if piece and b"\n" not in piece and b"\r" not in piece:
            # The pieces are joined once the line is whole: a server may send a line in any number of pieces.
            self._unfinished.append(piece)
            return []
        self._unfinished.append(piece or b"\n\n")
        joined = b"".join(self._unfinished)
        # The next piece may begin with the rest of this line end.
        carriage_return = b"\r" if joined[-1:] == b"\r" else b""
        joined = joined.removesuffix(carriage_return).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = joined.split(b"\n")
        self._unfinished = [rest + carriage_return]
        events = []
        for line in lines:
            # Some servers write an error into a stream as a bare object.
            named = b"data:" + line if line[:1] == b"{" else line
            field, colon, value = named.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if field in (b"data", b"error") and colon:
                self._data = value.strip() if self._data is None else b"%b\n%b" % (self._data, value.strip())
            elif not line and self._data is not None:
                events.append(self._data)
                self._data = None
        return self._until_done(events)

    def _until_done(self, events: list[bytes]) -> list[bytes]:
        for index, event in enumerate(events):
            # A chunk is an object; only other events can be the end.
            if event[:1] + event[-1:] != b"{}" and (end := _DONE.search(event)):
                self.is_done = True
                events = [*events[:index], event[: end.start()]]
                break
        return [event for event in events if event] if b"" in events else events
