"""What each layer of ncnn becomes: its ops, and how large ncnn's own rules say its blobs are, which must agree.

`layers_told.txt` has a case in a line: layers as a .param file has them, `|` between them, after an input `data`
that is 16 wide and 12 high, of 8 channels, unless the case begins with the sizes of another (`0=16 1=6 |`). `python
tests/unit/formats/ncnn/test_layers_told.py` writes the lines below the cases anew (src and tests on the path).
"""

import tempfile
from pathlib import Path

from fakes.every import every
from inferometer.formats.ncnn import reader
from inferometer.formats.ncnn.param import parse_param
from inferometer.formats.ncnn.sizes import blob_sizes
from unit.formats.listing import cases_in, graph_lines, holds, rewrite

TOLD = Path(__file__).parent / "layers_told.txt"


def text_of(case):
    parts = case.split(" | ")
    given = parts.pop(0) if parts[0][:1].isdecimal() else "0=16 1=12 2=8"
    blobs = 1 + sum(int(layer.split()[3]) for layer in parts)
    return "\n".join(("7767517", f"{1 + len(parts)} {blobs}", f"Input data 0 1 data {given}", *parts, ""))


def graph_of(case):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "some.param")
        path.write_text(text_of(case), encoding="utf-8")
        path.with_suffix(".bin").write_bytes(bytes(1 << 20))
        return reader.read(path)


def read(case):
    yield from graph_lines(graph_of(case))
    sizes = blob_sizes(parse_param(text_of(case)))
    yield f"sizes {' '.join(f'{name}={size}'.replace(', ', ',') for name, size in sizes.items() if name != 'data')}"


test_every_layer_becomes_what_is_written_below_it = holds(TOLD, read)


@every([case for case, lines in cases_in(TOLD).items() if not any("Error" in line for line in lines)])
def test_the_sizes_of_blobs_are_those_of_the_ops_results(case):
    """Two ways to the same sizes: ncnn's rules, and ONNX's for the nodes that a layer becomes."""
    made = {tensor.name: tensor.shape for _, op in graph_of(case).ops() for tensor in op.outputs}
    for name, sizes in blob_sizes(parse_param(text_of(case))).items():
        shape = made.get(name)
        if shape is None or sizes is None or len(shape) != len(sizes) + 1:
            continue  # what a pooling leaves has two axes of one more here; a blob of unknown rank
        pairs = zip(sizes, shape[1:], strict=True)
        assert all(ours is None or not isinstance(theirs, int) or ours == theirs for ours, theirs in pairs), name


if __name__ == "__main__":
    rewrite(TOLD, read)
