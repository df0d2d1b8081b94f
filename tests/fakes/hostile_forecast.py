"""What a file would do that has taken over the process which reads it for a forecast: it says what it could do."""

import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path


def main():
    asked, done = json.loads(sys.stdin.read()), []
    for path in asked["readable"]:
        with contextlib.suppress(OSError):
            Path(path).read_bytes()
            done.append(f"read {path}")
    for path in asked["writable"]:
        with contextlib.suppress(OSError):
            Path(path).write_bytes(b"x")
            done.append(f"wrote {path}")
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", asked["port"]), timeout=1):
        done.append("connected")
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as here:
        here.connect(asked["socket"])
        done.append("connected here")
    with contextlib.suppress(OSError):
        if not (child := os.fork()):
            os._exit(0)
        os.waitpid(child, 0)
        done.append("forked")
    with contextlib.suppress(OSError):
        subprocess.run(["true"], check=False)
        done.append("started a program")
    done += [f"has {name}" for name, value in os.environ.items() if "TOKEN" in name and value]  # noqa: TID251 - it looks
    thread = threading.Thread(target=done.append, args=["a thread"])
    thread.start()
    thread.join()
    model = Path(asked["files"], "net.onnx").read_bytes().decode()
    sys.stdout.write(json.dumps({"done": done, "model": model}))
