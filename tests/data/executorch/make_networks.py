"""Writes the .pte.xz files beside it: networks from packages of the Python index, lowered to XNNPACK.

`python make_networks.py`, with executorch 1.5.1, torch 2.13, onnx 1.23 and rapidocr-onnxruntime 1.4.4 installed. The
weights of onnx's networks are constants; here the other's are too, so that a file packs into a few thousand bytes.
"""

import lzma
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
from onnx import numpy_helper

import inferometer as im

HERE = Path(__file__).parent
LIGHT = "backend/test/data/light/light_{}.onnx"
# name: module, file in it, sizes that it leaves open
NETWORKS = {
    "squeezenet": ("onnx", LIGHT.format("squeezenet"), {}),
    "shufflenet": ("onnx", LIGHT.format("shufflenet"), {}),
    "resnet50": ("onnx", LIGHT.format("resnet50"), {}),
    "densenet121": ("onnx", LIGHT.format("densenet121"), {}),
    "ocr-cls": ("rapidocr_onnxruntime", "models/ch_ppocr_mobile_v2.0_cls_infer.onnx", {"height": 48, "width": 192}),
}
LEAST = 64  # numbers of a tensor that is weights, not sizes or indices


def even(path, out):
    """The network with all its weights made one small number."""
    model = onnx.load(path)
    constants = [node.attribute[0].t for node in model.graph.node if node.op_type == "Constant"]
    for tensor in (*model.graph.initializer, *constants):
        values = numpy_helper.to_array(tensor)
        if values.dtype == np.float32 and values.size >= LEAST:
            tensor.CopyFrom(numpy_helper.from_array(np.full_like(values, 0.01), tensor.name))
    onnx.save(model, out)
    return out


def main(names=tuple(NETWORKS)):
    for name in names:
        module, file, sizes = NETWORKS[name]
        source = Path(next(iter(find_spec(module).submodule_search_locations))) / file
        with TemporaryDirectory() as folder:
            made = Path(folder) / f"{name}.pte"
            network = source if module == "onnx" else even(source, Path(folder) / f"{name}.onnx")
            im.prepare(str(network), runtime="executorch", out=made, measure=False, threads=1, sizes=sizes)
            (HERE / f"{name}.pte.xz").write_bytes(lzma.compress(made.read_bytes()))


if __name__ == "__main__":
    main()
