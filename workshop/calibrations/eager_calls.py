"""What a host takes for the modules and operators of eager PyTorch: the figures behind `calls` of torch-eager.

    python -m workshop.calibrations.eager_calls workshop/recorded/nvidia-h200-pairs-*.jsonl.gz

Each phase that waited for its host, of models whose every kind of op is counted here, is a sum of so many linear
modules, convolutions, norms, operators that start a kernel, views, other modules, and what comes before the first
layer, times how much slower its host was (the small module that was read beside it, over 14.8 µs). Seconds are told by
least squares of what each phase is off by, the worst tenth left out. A figure of `calls` is what its op is counted as.
"""

from __future__ import annotations

import argparse
import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from inferometer.core.engine import kernel_names
from inferometer.core.errors import MissingDependencyError
from inferometer.known.engines import require_effects
from inferometer.predict.ask import ask
from inferometer.predict.work.classes import FREE, class_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from inferometer.core.graph import Graph, Op

RUNTIME, DEVICE = "torch-eager", "nvidia-h200"
LAUNCH_S, MODULE_S = 14.5e-6, 14.8e-6  # of the host that `calls` are in launches of, and its small module
PARTS = ("linear", "convolution", "norm", "batch norm", "kernel", "view", "module", "before")
# Where figures start: what every other row of the two runs of 2026-11-18 and -19 told first, with nothing to draw them.
STARTS = {
    "linear": 25e-6, "convolution": 25e-6, "norm": 23e-6, "batch norm": 23e-6, "kernel": 11e-6, "view": 2e-6,
    "module": 6e-6, "before": 160e-6,
}  # fmt: skip
FREEDOM, NOISE = 0.2, 0.1  # standard deviations: of a figure about its start, and of a phase
# Of each op as transformers 5.22 and torchvision 0.28 write it: (part, how often), as `calls` names it.
COUNTED: Mapping[str, Mapping[str, float]] = {
    "linear": {"linear": 1},
    "convolution": {"convolution": 1},
    "norm": {"batch norm": 1},
    "norm:layer": {"norm": 1},
    "norm:rms": {"kernel": 8, "module": 1},
    "norm:offset": {"kernel": 10, "module": 1},
    "rotary": {"kernel": 10, "view": 6},
    "rotary:partial": {"kernel": 12, "view": 10},
    "attention": {"kernel": 1, "view": 12, "module": 4},
    "attention:cached": {"kernel": 3, "view": 10, "module": 4},
    "activation": {"kernel": 1, "module": 1},
    "activation:gelu_new": {"kernel": 8, "module": 1},
    "elementwise": {"kernel": 1},
    "embedding": {"before": 1},
}
WAITS = 0.7  # of a phase is the most that its device works: it waits for its host
LEFT_OUT = 0.1  # phases that other work disturbed most
PHASES = frozenset({"forward", "prefill", "decode"})


def named(op: Op) -> str:
    """What its counts are called here, the most specific first; nothing where it is not counted."""
    return next((name for name in kernel_names(op) if name in COUNTED), "")


def told(paths: list[Path]) -> Iterator[tuple[str, Any, float]]:
    """Of each phase that waits: its model, how often it has each part, and its seconds on a quiet host."""
    for row in (json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()):
        host = (row.get("environment") or {}).get("host") or {}
        encodes = any(phase["name"] == "encode" for phase in row.get("phases", ()))
        if row.get("engine") != RUNTIME or "phases" not in row or "module_s" not in host or encodes:
            continue
        sizes = {name: row[name] for name in ("batch", "prompt", "generate", "image") if name in row}
        try:
            asked = ask(row["model"], on=DEVICE, runtime=RUNTIME, weights=row["precision"]["weights"], **sizes)
        except MissingDependencyError:  # a network that is not at hand at this size
            continue
        answer = replace(asked, options=replace(asked.options, host_speed=100.0)).answer()  # of the device alone
        counts = counted(asked.graph)
        for measured in row["phases"]:
            phase = answer.phase(measured["name"])
            if measured["name"] not in PHASES or phase is None or counts is None:
                continue
            if phase.time_s < WAITS * measured["time_s"]:
                yield row["model"], counts, measured["time_s"] * MODULE_S / host["module_s"]


def counted(graph: Graph) -> Any:
    """How often a pass has each of `PARTS`; None where it has ops that are not counted here."""
    total = dict.fromkeys(PARTS, 0.0)
    for block in graph.blocks:
        for op in block.ops:
            if class_of(op) in FREE:
                continue
            if not (name := named(op)):
                return None
            for part, times in COUNTED[name].items():
                total[part] += block.count * times
    return np.array([total[part] for part in PARTS])


def solved(counts: Any, seconds: Any) -> Any:
    """Seconds of each part, by the share that each phase is off by.

    Models have linear modules, views and modules in nearly the same numbers, so rows alone do not part them: each
    figure is drawn to where it starts.
    """
    start = np.array([STARTS[part] for part in PARTS])
    drawn = np.diag(1 / (FREEDOM * start))
    rows = np.concatenate([counts / (NOISE * seconds[:, None]), drawn])
    return np.linalg.lstsq(rows, np.concatenate([np.full(len(seconds), 1 / NOISE), drawn @ start]), rcond=None)[0]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("journals", type=Path, nargs="+")
    rows = list(told(parser.parse_args().journals))
    counts, seconds = np.array([each[1] for each in rows]), np.array([each[2] for each in rows])
    found = solved(counts, seconds)
    off = np.abs(np.log(counts @ found / seconds))
    kept = off <= np.quantile(off, 1 - LEFT_OUT)
    found = solved(counts[kept], seconds[kept])
    off = np.abs(np.log(counts @ found / seconds))
    print(f"{len(rows)} phases of {len({each[0] for each in rows})} models, off by {np.median(off):.1%} in the middle")
    print(", ".join(f"{part} {1e6 * value:.1f} us" for part, value in zip(PARTS, found, strict=True)))
    shipped = require_effects(RUNTIME).calls
    for name, parts in COUNTED.items():
        launches = sum(times * found[PARTS.index(part)] for part, times in parts.items()) / LAUNCH_S
        print(f"{name}: {launches:.2f} launches, shipped {shipped.get(name, shipped[name.partition(':')[0]]):.2f}")


if __name__ == "__main__":
    main()
