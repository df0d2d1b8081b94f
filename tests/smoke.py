"""What a newcomer does first, with the package that is installed: `python smoke.py`, away from the checkout.

It needs the standard library and nothing of this repository, so that it runs wherever a wheel was installed. Each line
is a command with what its output must have; steps that need an extra are left out, and said, where it is missing.
"""

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

QUICK = ("--no-guard", "--runs", "3", "--seconds", "0", "--warmup", "1", "--size", "image=64")
COMMANDS = (  # the extra's module, the words, and what the answer must have
    ("", ("--version",), "0."),
    ("", ("predict", "llama-3.2-1b", "--on", "nvidia-h200"), "each token"),
    ("", ("fit", "llama-3.1-8b", "--on", "nvidia-l4"), "fits"),
    ("", ("can-i-run", "llama-3.1-8b", "--on", "nvidia-rtx-4090"), "q4_k"),
    ("", ("sweep", "--models", "resnet50", "--on", "nvidia-h200", "--batch", "1,8"), "resnet50"),
    ("", ("simulate", "llama-3.1-8b", "--on", "nvidia-h200", "--rate", "2", "--requests", "20"), "first token"),
    ("", ("devices", "show", "raspberry-pi-5"), "Raspberry"),
    ("", ("models", "show", "resnet18"), "layer4.1.conv2"),
    ("", ("formulas",), "roofline"),
    ("", ("schema", "profile"), "2020-12"),
    ("", ("completion", "bash"), "complete"),
    ("", ("doctor", "--interval", "50ms"), "memory"),
    ("onnxruntime", ("demo",), "resnet"),
    ("onnxruntime", ("profile", "squeezenet1.1", "--runtime", "onnxruntime", *QUICK), "latency"),
    ("onnxruntime", ("profile", "squeezenet1.1", "--runtime", "onnxruntime", *QUICK), "latency"),
    ("onnxruntime", ("explain", "last"), "squeezenet1.1"),
    ("onnxruntime", ("compare", "last~1", "last"), "latency"),
    ("onnxruntime", ("export", "last", "-o", "run.html"), "run.html"),
    ("fastapi", ("hub", "token", "list"), ""),
    ("mcp", ("hub", "mcp", "--help"), "stdin"),
)


def main():
    import inferometer

    home = Path(tempfile.mkdtemp(prefix="inferometer-smoke-"))
    where = {"INFEROMETER_DATA": str(home / "data"), "INFEROMETER_CACHE": str(home / "cache")}
    environment = {**os.environ, **where, "PYTHONWARNINGS": "error"}  # noqa: TID251 - the children's
    print(f"Python {sys.version.split()[0]}, {inferometer.__file__}")
    failed, left = 0, set()
    for extra, words, told in COMMANDS:
        if extra and find_spec(extra) is None:
            left.add(extra)
            continue
        command = [sys.executable, "-m", "inferometer", *words]
        done = subprocess.run(command, cwd=home, env=environment, capture_output=True, text=True, check=False)
        output = done.stdout + done.stderr
        right = done.returncode == 0 and told in output and "Traceback" not in output
        failed += not right
        print(f"{'ok    ' if right else 'FAILED'} inferometer {' '.join(words)}")
        if not right:
            print(f"       exit code {done.returncode}, expected {told!r} in:\n{output[-2000:]}")
    print(f"{failed} of {len(COMMANDS)} failed; left out for want of an extra: {', '.join(sorted(left)) or 'none'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
