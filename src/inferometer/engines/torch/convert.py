"""Exported PyTorch programs: loaded, made at fixed sizes, and written as ONNX."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.engines.torch.programs import load_program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from inferometer.engines.order import ToolOrder

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
