"""Exported PyTorch programs as ExecuTorch's, lowered to XNNPACK as far as it takes them."""

import re
from collections.abc import Iterator
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.engines.order import ToolOrder
from inferometer.engines.torch.convert import calibration_inputs, example_inputs, exported, fixed_program

_OPERATOR = re.compile(r"Operator torch\._ops\.(\S+)|Missing out variants: \{(.*?)\}")
_LONG = 300  # characters of an error that are shown
_REPLACE = "Replace the operator in the model and export it again, or prepare the model for another engine."


def lower(order: ToolOrder) -> Iterator[str]:
    """In the numbers that the program has."""
    yield from _written(fixed_program(order), order)


def quantise(order: ToolOrder) -> Iterator[str]:
    """Weights and activations in i8, with their ranges found by running the calibration sets through the program."""
    prepared, converted = _observed(fixed_program(order), is_dynamic=False)
    for path in order.calibration:
        prepared(*calibration_inputs(order, path))
    yield f"The ranges are those of {len(order.calibration)} sets of inputs."
    yield from _written(exported(converted(prepared), order), order)


def quantise_dynamic(order: ToolOrder) -> Iterator[str]:
    """Weights of dense layers in i8; what they are multiplied with is quantised while it runs."""
    prepared, converted = _observed(fixed_program(order), is_dynamic=True)
    prepared(*example_inputs(order))
    yield "Only dense layers are quantised so; everything else keeps its numbers."
    yield from _written(exported(converted(prepared), order), order)


def _observed(program: Any, *, is_dynamic: bool) -> tuple[Any, Any]:
    """The program with observers in it, and what makes a quantised one of it."""
    from executorch.backends.xnnpack.quantizer.xnnpack_quantizer import (  # noqa: PLC0415 - as above
        XNNPACKQuantizer,
        get_symmetric_quantization_config,
    )
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: PLC0415 - as above

    asked = get_symmetric_quantization_config(is_per_channel=True, is_dynamic=is_dynamic)
    return prepare_pt2e(program.module(), XNNPACKQuantizer().set_global(asked)), convert_pt2e


def _written(program: Any, order: ToolOrder) -> Iterator[str]:
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner  # noqa: PLC0415 - as above
    from executorch.exir import to_edge_transform_and_lower  # noqa: PLC0415 - as above

    try:
        made = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()]).to_executorch()
    except Exception as error:
        raise FormatError(f"ExecuTorch cannot lower it: {_reason(error)}.", remedy=_REPLACE) from error
    (plan, *_) = made.executorch_program.execution_plan
    operators = [f"{operator.name}.{operator.overload}" for operator in plan.operators]
    # What the runtime that is installed has no kernel for would fail only when the file is opened.
    from inferometer.engines.executorch.session import loaded_engine  # noqa: PLC0415 - as above

    known = {name.removesuffix(".") for name in loaded_engine()._get_operator_names()}  # noqa: SLF001 - its only name
    missing = [name for name in operators if name.removesuffix(".") not in known]
    if missing:
        raise FormatError(
            f"The runtime of ExecuTorch that is installed has no kernel for {', '.join(missing)}.", remedy=_REPLACE
        )
    with order.target.open("wb") as file:
        made.write_to_file(file)
    left = f"; portable kernels are left for {', '.join(operators)}" if operators else ""
    yield f"Parts lowered to XNNPACK: {len(plan.delegates)}{left}."


def _reason(error: Exception) -> str:
    """The operator that it names, or its first lines: the second may list what the first speaks of."""
    text = str(error)
    found = _OPERATOR.search(text)
    if found is not None:
        return f"it has no form of the operator {found[1] or found[2]}"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " ".join(lines[:2] or [type(error).__name__])[:_LONG].rstrip(".:")
