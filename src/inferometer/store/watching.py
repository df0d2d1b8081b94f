"""Whether anybody has written to a SQLite file: far quicker to ask than to read a page of runs anew."""

import sqlite3
import threading
from collections.abc import Callable


class FileWatcher:
    """A connection of its own. SQLite counts the changes to a file by any other: another thread, another program."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None

    def version(self) -> int | None:
        """None where it cannot be told, as of a file that is not there any more."""
        with self._lock:
            try:
                if self._connection is None:
                    self._connection = self._connect()
                return int(self._connection.execute("PRAGMA data_version").fetchone()[0])
            except sqlite3.Error:
                return None

    def close(self) -> None:
        with self._lock:
            if self._connection is not None:
                self._connection.close()
                self._connection = None
