"""`python -m inferometer.hub.box.entering PLAN`: the first process in a box gives up what it may not have, and goes on.

Everything up to the module that runs then is our own code without a byte of a job. It starts no thread: what is given
up holds for this thread and all that it starts.
"""

from __future__ import annotations

import os
import socket
import sys
from importlib import import_module

import msgspec

from inferometer.core.frozen import frozen
from inferometer.hub.box import landlock, process, seccomp
from inferometer.hub.box.view import BoxView


@frozen
class EntryPlan:
    """`view`: what Landlock leaves visible; None in a file system of its own. `channel`: a socket for the listener.

    `run` is the module that goes on, and its arguments. `alone`: it starts no process, so that limits of its own hold.
    """

    run: tuple[str, ...]
    file_bytes: int
    processes: int | None
    view: BoxView | None
    filtered: bool
    connecting: bool  # to sockets of its own machine, where nobody else's are
    channel: int | None = None
    alone: bool = False


def enter(plan: EntryPlan) -> None:
    process.set_oom_score(1000)
    process.limit(file_bytes=plan.file_bytes, processes=plan.processes)
    if plan.view is not None:
        process.die_with_parent()
        harmless = process.keep_settings_from_root()
        process.give_up_privileges()
        landlock.restrict(plan.view.readable, plan.view.writable, plan.view.devices, write_proc=harmless)
    if plan.filtered:
        told = plan.channel is not None  # else a refused call would wait for an answer that nobody gives
        listener = seccomp.install(connecting=plan.connecting, alone=plan.alone, notify=told)
        if listener is not None and plan.channel is not None:
            with socket.socket(fileno=plan.channel) as channel:
                socket.send_fds(channel, [b"refused"], [listener])
            os.close(listener)


def main() -> None:
    plan = msgspec.json.decode(sys.argv[1], type=EntryPlan)
    enter(plan)
    sys.argv = list(plan.run)
    import_module(plan.run[0]).main()  # only now: it brings libraries, which may start threads


if __name__ == "__main__":
    main()
