"""Exported PyTorch programs: loaded, made at fixed sizes, and written as ONNX."""

from __future__ import annotations

import logging
import warnings
import zipfile
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.formats.trust.door import require_data

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inferometer.engines.order import ToolOrder

# Exported programs from a file: the operators that a quantiser put into one are made known before it is loaded.

# How operators of a library begin in a program, the module whose import makes them known, and how to get it.
_LIBRARIES = (
    (b"torch.ops.quantized_decomposed.", "torch.ao.quantization.fx._decomposed", "torch"),
    (b"torch.ops.torchao.", "torchao.quantization.quant_primitives", "torchao"),
)


def load_program(torch: Any, path: Path, *, trusted: bool = False) -> Any:
    """torch.export's ExportedProgram. Unless its owner trusts it, it is looked through, and holds tensors alone."""
    require_data(path, "pt2", trusted=trusted)
    _make_known(path)
    try:
        if trusted:
            return torch.export.load(str(path))
        with _only_tensors(torch):
            return torch.export.load(str(path))
    except Exception as error:  # a zip that is none, a newer schema, an op that is not there
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise FormatError(
            f"torch.export cannot load {str(path)!r}: {lines[0]}",
            remedy="Give a .pt2 file written by torch.export, with the PyTorch that is installed here or an older one.",
        ) from error


@contextmanager
def _only_tensors(torch: Any) -> Iterator[None]:
    """While a program is loaded, nothing but tensors is unpickled: PyTorch itself would fall back to everything."""
    load = torch.load
    torch.load = partial(_load_tensors, load)
    try:
        yield
    finally:
        torch.load = load


def _load_tensors(load: Any, *given: Any, **named: Any) -> Any:
    return load(*given, **{**named, "weights_only": True})


def _make_known(path: Path) -> None:
    programs = b""
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if "models/" in name and name.endswith(".json")]
        programs = b"".join(archive.read(name) for name in names)
    for start, module, package in _LIBRARIES:
        if start not in programs:
            continue
        try:
            import_module(module)
        except ImportError as error:
            raise FormatError(
                f"{str(path)!r} has operators of {package}, which cannot be imported: {error}.",
                remedy=f"pip install {package}.",
            ) from None


_OPSET = 18


def to_onnx(order: ToolOrder) -> Iterator[str]:
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = loaded_program(order)
    try:
        made = torch.onnx.export(program, opset_version=_OPSET, verbose=False)
    except Exception as error:
        raise FormatError(
            f"PyTorch cannot write it as ONNX: {first_line(error)}.",
            remedy="Replace the operator that it names, or give torch.onnx.export a translation of it.",
        ) from error
    assert made is not None  # noqa: S101 - the exporter of programs always returns what it made
    made.save(str(order.target), external_data=False)
    yield f"Opset {_OPSET}."


def loaded_program(order: ToolOrder) -> Any:
    """The source as torch.export's ExportedProgram."""
    import torch  # noqa: PLC0415, TID251 - as above

    return load_program(torch, order.source, trusted=order.trusted)


def example_inputs(order: ToolOrder) -> tuple[Any, ...]:
    """Ones at the sizes that were asked for, to export with."""
    import torch  # noqa: PLC0415, TID251 - as above

    kinds = {name: getattr(torch, kind) for name, kind in order.dtypes.items()}
    return tuple(torch.ones(shape, dtype=kinds.get(name)) for name, shape in order.shapes.items())


def calibration_inputs(order: ToolOrder, path: Path) -> tuple[Any, ...]:
    """One set of inputs to calibrate with, in the program's order."""
    import numpy as np  # noqa: PLC0415 - as above
    import torch  # noqa: PLC0415, TID251 - as above

    with np.load(path, allow_pickle=False) as stored:
        return tuple(torch.from_numpy(stored[name]) for name in order.shapes)


def fixed_program(order: ToolOrder) -> Any:
    """The program at the sizes that were asked for: what is open takes memory for the largest size otherwise."""
    warnings.simplefilter("ignore")
    program = loaded_program(order)
    return exported(program.module(), order) if program.range_constraints else program


def exported(module: Any, order: ToolOrder) -> Any:
    import torch  # noqa: PLC0415, TID251 - as above

    return torch.export.export(module, example_inputs(order))


def first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")


def without_unused(module: Any) -> Any:
    """Without weights that no call reads any more, such as those it was quantised from: they would stay in the file."""
    read = {str(node.target) for node in module.graph.nodes if node.op == "get_attr"}
    called = tuple(f"{node.target}." for node in module.graph.nodes if node.op == "call_module")
    for name, _ in [*module.named_parameters(), *module.named_buffers()]:
        if name not in read and not name.startswith(called):
            parent, _, leaf = name.rpartition(".")
            delattr(module.get_submodule(parent), leaf)
    return module
