"""One of several processes that play a load: `python -m inferometer.serving.load.worker`, spoken to through pipes.

Messages are pickles with their length before them, from and to the process that started this one and nobody else.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import signal
import struct
import sys
from dataclasses import replace
from typing import IO, TYPE_CHECKING, Any

from inferometer.core.frozen import frozen
from inferometer.serving.load.apis import Endpoint
from inferometer.serving.load.local import Here, prepared
from inferometer.serving.load.loops import new_loop
from inferometer.serving.load.pool import Pool, Security
from inferometer.serving.load.prompts import PromptMaker

if TYPE_CHECKING:
    from inferometer.serving.load.rounds import RoundRows

READY = "ready"
_LENGTH = struct.Struct("!Q")


@frozen
class Setup:
    endpoint: Endpoint
    maker: PromptMaker
    security: Security


def packed(message: Any) -> bytes:
    data = pickle.dumps(message, protocol=5)
    return _LENGTH.pack(len(data)) + data


def length_of(head: bytes) -> int:
    size: int = _LENGTH.unpack(head)[0]
    return size


def _read(stream: IO[bytes]) -> Any:
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    return pickle.loads(stream.read(length_of(head)))  # noqa: S301 - from the process that started this one


def _write(stream: IO[bytes], message: Any) -> None:
    stream.write(packed(message))
    stream.flush()


async def _work(incoming: IO[bytes], outgoing: IO[bytes]) -> None:
    setup: Setup = _read(incoming)
    pool = Pool(setup.endpoint.address, setup.security)
    here = Here(endpoint=setup.endpoint, maker=setup.maker, pool=pool)
    while True:
        plan = await asyncio.to_thread(_read, incoming)
        player = await prepared(here, plan)
        _write(outgoing, READY)
        start = await asyncio.to_thread(_read, incoming)
        rows: RoundRows = await here.play(replace(plan, start_s=start), player=player)
        _write(outgoing, rows)


def main() -> None:
    outgoing = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # nothing that prints may get between the messages
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # outside a round; within one it ends the round
    try:
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(_work(sys.stdin.buffer, outgoing))
    except (EOFError, BrokenPipeError):
        return  # the one who asked is gone, or done


if __name__ == "__main__":
    main()
