"""ONNX as ncnn, by pnnx."""

import re
import subprocess
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from inferometer.core.errors import FormatError
from inferometer.engines.order import ToolOrder

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_TYPES = {"float32": "f32", "float16": "f16", "int64": "i64", "int32": "i32", "int8": "i8", "uint8": "u8"}
_SIZES = {1: (0,), 2: (1, 0), 3: (2, 1, 0), 4: (2, 11, 1, 0)}  # Input's parameters, by how many sizes there are


def convert(order: ToolOrder) -> Iterator[str]:
    """Pnnx writes a dozen files beside its input: it works in a folder of its own, and two of them are kept."""
    folder = order.target.parent.parent / "pnnx"
    folder.mkdir()
    source = folder / "network.onnx"
    source.symlink_to(order.source)
    shapes = ",".join(
        f"[{','.join(map(str, shape))}]{_TYPES.get(order.dtypes[name], 'f32')}" for name, shape in order.shapes.items()
    )
    done = subprocess.run(  # noqa: S603 - the tool of an installed package
        [_program(), source.name, f"inputshape={shapes}", f"fp16={int(order.options.get('weights') == 'f16')}"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    made = folder / "network.ncnn.param"
    if not made.is_file():
        raise FormatError(f"pnnx made nothing of it. Its last words: {_last_words(done.stdout + done.stderr)}.")
    text = made.read_text(encoding="utf-8")
    _require_known(text)
    order.target.write_text(_with_sizes(text, list(order.shapes.values())), encoding="utf-8")
    (folder / "network.ncnn.bin").rename(order.target.with_suffix(".bin"))
    yield "Inputs are called in0, in1 …, and have the sizes that were asked for."


def _last_words(printed: str) -> str:
    """Without colours, headings, and what ONNX Runtime, which pnnx folds constants with, says of the processor."""
    lines = [line.strip() for line in _COLOURS.sub("", printed).splitlines()]
    said = [line[:300] for line in lines if line and "####" not in line and "cpuid" not in line]
    return " / ".join(said[-3:])


def _program() -> str:
    spec = find_spec("pnnx")
    places = list(spec.submodule_search_locations or ()) if spec else []
    names = [Path(place) / name for place in places for name in ("pnnx", "pnnx.exe")]
    return str(next(path for path in names if path.is_file()))


def _require_known(text: str) -> None:
    """Pnnx leaves operators that ncnn lacks under PyTorch's or ONNX's names: such a file cannot be loaded."""
    kinds = {line.split()[0] for line in text.splitlines()[2:] if line.strip()}
    left = sorted(kind for kind in kinds if "." in kind or "::" in kind or not _has(kind))
    if left:
        raise FormatError(
            f"ncnn has no layer for {', '.join(left[:5])}.",
            remedy="Replace the operator in the model, cut it off, or prepare the model for another engine.",
        )


def _has(kind: str) -> bool:
    """Whether ncnn has a layer of that type; True where it is not installed to be asked."""
    if find_spec("ncnn") is None:
        return True
    import ncnn  # noqa: PLC0415 - an edge, in a child

    return bool(ncnn.layer_to_index(kind) >= 0)


def _with_sizes(text: str, shapes: list[tuple[int, ...]]) -> str:
    """The sizes of the inputs in their layers, where ncnn and readers look for them; ncnn has no batch."""
    lines = text.splitlines()
    for index, shape in enumerate(shapes):
        number = next(
            (n for n, line in enumerate(lines) if line.split()[:1] == ["Input"] and f"in{index}" in line), None
        )
        keys = _SIZES.get(len(shape) - 1)
        if number is not None and keys is not None:
            sizes = " ".join(f"{key}={size}" for key, size in zip(keys, shape[1:], strict=True))
            lines[number] = f"{lines[number]} {sizes}"
    return "\n".join(lines) + "\n"
