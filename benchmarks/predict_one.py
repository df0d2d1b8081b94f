"""One prediction: the call after import, beside EdgeProfiler's closed form; the command, beside a bare interpreter.

Every call asks for another prompt, so that no answer is one that was kept. EdgeProfiler's is one token by six formulas;
ours is a profile: phases, every op with its floor and interval, memory, energy and price.
"""

import itertools
import os
import sys
from pathlib import Path

from figure import Figure, call_seconds, command_seconds
from sweep import edgeprofiler

import inferometer as im

COMMAND = str(Path(sys.executable).with_name("inferometer"))
ASKED = ["predict", "llama-3.2-1b", "--on", "nvidia-h200", "--prompt", "2048", "--generate", "128"]
PI_4 = (50e9, 19e9, 5e8, 12e9, 1e8)
SIX = (24, 2048, 8192, 50257)


def load():
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"


def figures():
    prompts, lengths = itertools.cycle(range(1, 2049)), itertools.cycle(range(1, 2049))
    own = call_seconds(
        lambda: im.predict("llama-3.2-1b", on="nvidia-h200", prompt=next(prompts), generate=128), least=2
    )
    peer = call_seconds(lambda: edgeprofiler(SIX, next(lengths), 4, PI_4))
    yield Figure(
        name="predict_call", value=own * 1e3, unit="ms", target="≤ 1", met=own <= 1e-3,
        note=f"EdgeProfiler's closed form takes {peer * 1e6:.2f} µs, {load()}",
    )  # fmt: skip
    bare, table, document = command_seconds(
        [sys.executable, "-c", "pass"], [COMMAND, *ASKED], [COMMAND, *ASKED, "--format", "json"]
    )
    yield Figure(
        name="predict_command", value=table, unit="s", target="≤ 0.4", met=table <= 0.4,
        note=f"bare Python takes {bare * 1e3:.1f} ms, {load()}",
    )  # fmt: skip
    yield Figure(name="predict_command_json", value=document, unit="s", target="≤ 0.4", met=document <= 0.4)
