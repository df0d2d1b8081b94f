"""Two models measured in turns, each in a process of its own: what slows the machine meanwhile slows both.

A conductor in the parent lets one child go on at a time: first each loads its model, then they run in turns, in an
order drawn anew each round, and at the end each measures its layers. Between two turns a child waits for the word.
"""

import os
import random
import secrets
import shutil
import socket
import sys
import tempfile
import threading
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import field
from multiprocessing.connection import Client, Connection, Listener
from typing import Any

from inferometer.core.frozen import frozen

_GO, _DONE = b"go", b"done"
_CLOSED = (EOFError, OSError, TypeError)  # the last where a pipe is closed here while it is being read


@frozen
class TurnsAddress:
    """Where a child waits for its turn. `index` is its place in the order of turns."""

    address: Any
    key: bytes = field(repr=False)
    index: int


class Turns:
    """The child's side. It has the turn from `wait` on until it asks for the next one, or closes."""

    def __init__(self, at: TurnsAddress | None) -> None:
        self._pipe: Connection[Any, Any] | None = None
        if at is not None:
            try:
                self._pipe = Client(at.address, authkey=at.key)
                self._pipe.send_bytes(bytes([at.index]))
            except (EOFError, OSError):
                raise KeyboardInterrupt from None  # the other could not be measured, so nobody conducts any more
            self._receive()

    def next(self) -> None:
        """Hand over, and return when it is this child's turn again; alone, at once."""
        if self._pipe is not None:
            self._pipe.send_bytes(_DONE)
            self._receive()

    def close(self) -> None:
        if self._pipe is not None:
            self._pipe.close()

    def _receive(self) -> None:
        try:
            if self._pipe is not None:
                self._pipe.recv_bytes()
        except (EOFError, OSError):
            raise KeyboardInterrupt from None  # the parent is gone, or was interrupted


class Conductor:
    """The parent's side: says whose turn it is until every child has closed."""

    def __init__(self, count: int, *, seed: int) -> None:
        self._count, self._order = count, random.Random(seed)  # noqa: S311 - an order of runs, not a secret
        self._key = secrets.token_bytes(16)
        # The path of a socket has at most 107 bytes, and a job's temporary files may lie deeper. Linux has another way
        # to the same folder, which the children can take too.
        self._folder, self._opened, address = None, None, None
        if sys.platform == "linux":
            self._folder = tempfile.mkdtemp(prefix="turns-")
            self._opened = os.open(self._folder, os.O_PATH | os.O_DIRECTORY)
            address = f"/proc/{os.getpid()}/fd/{self._opened}/turns"
        self._listener = Listener(address, authkey=self._key)
        self._pipes: dict[int, Connection[Any, Any]] = {}
        self._stopped, self._lock = threading.Event(), threading.Lock()

    def is_reachable(self) -> bool:
        """Whether a child could connect: a box without a network of its own lets nobody."""
        if self._opened is None:
            return True
        here = f"/proc/{os.getpid()}/fd/{self._opened}/tried"
        with socket.socket(socket.AF_UNIX) as waiting, socket.socket(socket.AF_UNIX) as asking:
            try:
                waiting.bind(here)
                waiting.listen(1)
                asking.connect(here)
            except OSError:
                return False
        return True

    def addresses(self) -> tuple[TurnsAddress, ...]:
        at = self._listener.address
        return tuple(TurnsAddress(address=at, key=self._key, index=index) for index in range(self._count))

    def conduct(self) -> None:
        """Lead them until they have ended: all load, all run in turns, then each measures its layers."""
        with suppress(*_CLOSED):
            while len(self._pipes) < self._count:
                pipe = self._listener.accept()
                if self._stopped.is_set():
                    return
                self._pipes[pipe.recv_bytes()[0]] = pipe
            self._give_turns(range(self._count))  # each loads its model
            while len(self._pipes) == self._count and not self._stopped.is_set():
                self._give_turns(self._order.sample(range(self._count), self._count))
            for index in tuple(self._pipes):  # the others' layers
                while index in self._pipes and not self._stopped.is_set():
                    self._give_turns((index,))

    def _give_turns(self, order: Iterable[int]) -> None:
        for index in order:
            pipe = self._pipes.get(index)
            if pipe is None:
                continue
            try:
                pipe.send_bytes(_GO)
                pipe.recv_bytes()
            except _CLOSED:  # it has ended, well or not
                pipe.close()
                self._pipes.pop(index, None)

    def stop(self) -> None:
        """Close everything: a child that waits for its turn sees it and ends. It may be called more than once."""
        with self._lock:
            if self._stopped.is_set():
                return
            self._stopped.set()
        for pipe in list(self._pipes.values()):
            with suppress(OSError):
                pipe.close()
        with suppress(OSError, EOFError):
            Client(self._listener.address).close()  # wakes an accept, which closing alone does not
        with suppress(OSError):
            self._listener.close()
        if self._folder is not None and self._opened is not None:
            os.close(self._opened)
            shutil.rmtree(self._folder, ignore_errors=True)
