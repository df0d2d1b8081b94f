"""Exported PyTorch programs as ONNX."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from inferometer.errors import FormatError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.prepare.order import ToolOrder

_OPSET = 18


def to_onnx(order: ToolOrder) -> Iterator[str]:
    import torch  # noqa: PLC0415, TID251 - an edge, in a child

    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    program = loaded_program(order)
    try:
        made = torch.onnx.export(program, opset_version=_OPSET, verbose=False)
    except Exception as error:
        raise FormatError(
            f"PyTorch cannot write it as ONNX: {_first_line(error)}.",
            remedy="Replace the operator that it names, or give torch.onnx.export a translation of it.",
        ) from error
    assert made is not None  # noqa: S101 - the exporter of programs always returns what it made
    made.save(str(order.target), external_data=False)
    yield f"Opset {_OPSET}."


def loaded_program(order: ToolOrder) -> Any:
    """The source as torch.export's ExportedProgram."""
    import torch  # noqa: PLC0415, TID251 - as above

    try:
        return torch.export.load(str(order.source))
    except Exception as error:  # noqa: BLE001 - whatever an archive holds
        raise FormatError(
            f"{order.source.name} cannot be loaded as an exported program: {error}.",
            remedy="Save it with torch.export.save, with the PyTorch that is installed here or an older one.",
        ) from None


def _first_line(error: Exception) -> str:
    lines = [line for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__).rstrip(".")
