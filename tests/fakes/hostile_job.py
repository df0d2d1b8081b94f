"""A warden with something hostile in place of the runner, in processes of their own.

`python hostile_job.py FOLDER MEANS ORDER` is the warden; in the box it starts itself again as what the job brings an
engine to do, after it has entered the box like any runner. What that finds out is the error of the job's result.
"""

import contextlib
import ctypes
import json
import os
import signal
import socket
import sys
import time
from pathlib import Path

import msgspec

from inferometer.core.box import BoxOrder, Means
from inferometer.core.codec import decode, encode
from inferometer.core.job import Job, JobResult
from inferometer.hub.box.entering import EntryPlan, enter


def main():
    from inferometer.hub.agent import warden  # the job in the box has no use for it
    from inferometer.hub.box import process

    folder = Path(sys.argv[1])
    job = decode((folder / "job.json").read_bytes(), Job)
    means, order = (
        msgspec.json.decode(text, type=kind) for text, kind in zip(sys.argv[2:], (Means, BoxOrder), strict=True)
    )
    warden._GRACE_S = 0.2
    process.adopt_orphans()
    words = ("-P", str(folder / "hostile_job.py"), "--attack", str(folder))
    warden.Warden(folder, job, order, means, runner=words).run()


def attack(folder, plan):
    asked = json.loads((folder / "attack.json").read_bytes())
    own = Path(plan.run[2])

    def say(words):
        job = decode((folder / "job.json").read_bytes(), Job)
        (own / "result.json").write_bytes(encode(JobResult(job=job, ended="failed", error=words)))

    enter(plan)
    globals()[asked["name"]](own, say, **asked["with"])


def look_around(own, say, *, readable, writable, openable, port, sock, victim, home):
    """Everything that it should not be able to do; what it could all the same is said."""
    done = []
    for path in readable:
        with contextlib.suppress(OSError):
            Path(path).read_bytes()
            done.append(f"read {path}")
    for path in writable:
        with contextlib.suppress(OSError), Path(path).open("ab") as file:
            file.write(b"x")
            done.append(f"wrote {path}")
    for path in openable:
        with contextlib.suppress(OSError), Path(path).open("ab"):
            done.append(f"may write {path}")
    for family, address in ((socket.AF_INET, ("127.0.0.1", port)), (socket.AF_UNIX, sock)):
        with contextlib.suppress(OSError), socket.socket(family) as made:
            made.connect(address)
            done.append(f"reached {address}")
    with contextlib.suppress(OSError):
        done += [f"saw {path}" for path in Path(home).iterdir()]
    with contextlib.suppress(OSError):
        os.kill(victim, 0)
        done.append("may end the agent")
    libc = ctypes.CDLL(None, use_errno=True)
    calls = {"ptrace": (16, victim, 0, 0), "mount": (b"none", b"/tmp", b"tmpfs", 0, None), "unshare": (0x10000000,)}
    done += [name for name, words in calls.items() if not getattr(libc, name)(*words)]
    Path(own, "kept").write_text("it may write here")
    say(f"Done: {done}.")


def take_memory(own, say, size):
    held = [bytearray(b"x" * 1_000_000) for _ in range(size // 1_000_000)]
    say(f"It has {len(held)} MB.")


def start_processes(own, say, many):
    started = 0
    for _ in range(many):
        try:
            if os.fork() == 0:
                time.sleep(60)
                os._exit(0)
            started += 1
        except OSError:
            break
    time.sleep(60)


def write(own, say, size, files):
    for number in range(files):
        with Path(own, f"part{number}").open("wb") as file:
            file.write(os.urandom(size))
    time.sleep(60)


def write_sparse(own, say, size):
    with Path(own, "large").open("wb") as file:
        file.truncate(size)
    say("It was written.")


def outlive(own, say, mark):
    """It does not stop when it is asked, and leaves a process that nobody is the parent of."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execvp(sys.executable, [sys.executable, "-c", "import time; time.sleep(300)", mark])  # noqa: S606 - ours
        os._exit(0)
    Path(own, "events.jsonl").write_bytes(b'{"nonsense": 1}\n' + b"x" * 3_000_000)
    time.sleep(300)


def litter(own, say, secret):
    """A result that is a link to somebody's file, and a folder that cannot be entered."""
    Path(own, "result.json").symlink_to(secret)
    Path(own, "closed", "inner").mkdir(parents=True)
    Path(own, "closed", "inner").chmod(0)
    Path(own, "closed").chmod(0)


if __name__ == "__main__":
    if sys.argv[1] == "--attack":
        attack(Path(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=EntryPlan))
    else:
        main()
