"""Splits the body of a response into server-sent events."""

from __future__ import annotations


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
            # Whole events of one line each, as nearly all pieces are.
            events = piece[5:-2].split(b"\n\ndata:")
            if piece.count(b"\n") == 2 * len(events) and b"\r" not in piece:
                return self._until_done([event.strip() for event in events])
        if piece and b"\n" not in piece and b"\r" not in piece:
            # The pieces are joined once the line is whole: a server may send a line in any number of pieces.
            self._unfinished.append(piece)
            return []
        self._unfinished.append(piece or b"\n\n")
        together = b"".join(self._unfinished)
        # The next piece may begin with the rest of this line end.
        held = b"\r" if together[-1:] == b"\r" else b""
        together = together.removesuffix(held).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, rest = together.split(b"\n")
        self._unfinished = [rest + held]
        found = []
        for line in lines:
            field, colon, told = line.removeprefix(b"\xef\xbb\xbf").partition(b":")
            if field in (b"data", b"error") and colon:
                self._data = told.strip() if self._data is None else b"%b\n%b" % (self._data, told.strip())
            elif not line and self._data is not None:
                found.append(self._data)
                self._data = None
        return self._until_done(found)

    def _until_done(self, events: list[bytes]) -> list[bytes]:
        for place, event in enumerate(events):
            if event[:6] == b"[DONE]" or event[-7:] == b"\n[DONE]":
                self.is_done = True
                last = event.removesuffix(b"\n[DONE]")
                events = events[:place] if last == event else [*events[:place], last]
                break
        return [event for event in events if event] if b"" in events else events
