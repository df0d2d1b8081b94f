"""Write down what OpenVINO executes for an ONNX file here: `python record.py MODEL.onnx 1,3,48,160 OUT.json`.

The JSON has the file's nodes that do work at run time, and the operations of the engine's runtime model that rest on
more than constants, in order: name, kind, `originalLayersNames`, operations that take the result, and microseconds
where it ran. `pieces` are names of the model as it was read that stand for a node and are not the node's.
"""

import json
import platform
import sys
import time
from pathlib import Path

import numpy as np

from inferometer.engines.base import Target
from inferometer.engines.openvino.adopt import _known_at_load, known_names
from inferometer.engines.openvino.executed import running
from inferometer.engines.openvino.recorded import OpenvinoRecordedSession, executed_of, executed_seconds
from inferometer.engines.openvino.session import info_of


def record(path, shape):
    session = OpenvinoRecordedSession(
        Target(path=path, format="onnx", instrument=True, threads=2), clock=time.perf_counter
    )
    (port,) = session.opened.inputs
    session.feed({port.name: np.random.default_rng(0).random(shape).astype(port.dtype)})
    for _ in range(3):
        session.step()
    seconds, original = executed_seconds(session._request), session._original
    model = session._compiled.get_runtime_model().get_ordered_ops()
    ops = running([executed_of(op.get_friendly_name(), op, info_of(op)) for op in model])
    folded = _known_at_load(original)
    nodes = [node for node in original.nodes if node.name not in folded]
    made = {name for node in nodes for name in node.outputs} | set(original.inputs)
    known, listed = known_names(original), ",".join(op.originals for op in ops.values())
    return {
        "model": path.name,
        "openvino": session.opened.versions["openvino"],
        "machine": platform.machine(),
        "inputs": original.inputs,
        "outputs": original.outputs,
        "nodes": [[n.name, n.engine_name, n.kind, [i for i in n.inputs if i in made], n.outputs] for n in nodes],
        "pieces": {name: node for name, node in session._own.items() if name not in known and name in listed},
        "ops": [
            [op.name, op.kind, op.originals, op.takers, round(seconds[op.name] * 1e6) if op.name in seconds else None]
            for op in ops.values()
        ],
    }


def written(document):
    """One node or operation a line."""
    lines = []
    for key, value in document.items():
        rows = ",\n".join(json.dumps(row) for row in value) if key in {"nodes", "ops"} else None
        lines.append(f"{json.dumps(key)}: " + (f"[\n{rows}\n]" if rows else json.dumps(value)))
    return "{" + ",\n".join(lines) + "}\n"


if __name__ == "__main__":
    file, sizes, out = sys.argv[1:]
    Path(out).write_text(written(record(Path(file), [int(size) for size in sizes.split(",")])), encoding="utf-8")
