"""Server-sent events, as they arrive in pieces of any size. Linear in their bytes, however small the pieces are."""


class SseReader:
    """`feed` gives the data of every event that the new bytes complete."""

    __slots__ = ("_data", "_tail")

    def __init__(self) -> None:
        self._tail: list[bytes] = []  # of a line that has not ended: joined once, when it does
        self._data: list[bytes] = []  # the data lines of an event that has not ended

    def feed(self, piece: bytes) -> list[bytes]:
        if b"\n" not in piece:
            self._tail.append(piece)
            return []
        if self._tail:
            self._tail.append(piece)
            piece = b"".join(self._tail)
            self._tail.clear()
        lines = piece.split(b"\n")
        if rest := lines.pop():
            self._tail.append(rest)
        events: list[bytes] = []
        data = self._data
        for line in lines:
            if line[:5] == b"data:":
                data.append(line[6:] if line[5:6] == b" " else line[5:])
            elif data and (not line or line == b"\r"):
                events.append((data[0] if len(data) == 1 else b"\n".join(data)).rstrip(b"\r"))
                data.clear()
            # Comments (": ping") and the fields event, id and retry carry no tokens; unknown fields are to be ignored.
        return events

    def rest(self) -> bytes:
        """What is left when the stream has ended: an event without its blank line."""
        if self._tail:
            line = b"".join(self._tail)
            if line[:5] == b"data:":
                self._data.append(line[5:].strip())
        return b"\n".join(self._data).rstrip(b"\r")
