"""Exported PyTorch programs with smaller numbers, by torchao.

Weights and activations in i8 go by its quantisers for the compiler (PT2E): the one made for this processor says what is
quantised. Dense layers alone go by `quantize_`, which wants modules: those of a program are made again of its calls.
"""

from __future__ import annotations

import platform
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import FormatError
from inferometer.core.units import counted
from inferometer.engines.torch.convert import calibration_inputs, exported, first_line, fixed_program, without_unused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.engines.order import ToolOrder

_ARM = frozenset({"aarch64", "arm64"})
_GROUP = 32  # weights that share a scale, where they have 4 bits
_MULTIPLES = {"i4-weights": (16, _GROUP), "i4-dynamic": (1, _GROUP)}  # of a layer's outputs and inputs
_OTHER = "Choose another format: `inferometer prepare` lists those of an engine when it is asked for an unknown one."


def quantise(order: ToolOrder) -> Iterator[str]:
    """Weights and activations in i8, with their ranges found by running the calibration sets through the program."""
    from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e  # noqa: PLC0415 - an edge

    program = fixed_program(order)
    try:
        # The one for this processor: what it quantises is what PyTorch's compiler has kernels for there.
        name = "arm" if platform.machine() in _ARM else "x86"
        module = import_module(f"torchao.quantization.pt2e.quantizer.{name}_inductor_quantizer")
        quantiser = getattr(module, f"{name.capitalize()}InductorQuantizer")()
        observed = prepare_pt2e(
            program.module(),
            quantiser.set_global(getattr(module, f"get_default_{name}_inductor_quantization_config")()),
        )
        for path in order.calibration:
            observed(*calibration_inputs(order, path))
        made = exported(without_unused(convert_pt2e(observed)), order)
    except Exception as error:
        raise FormatError(f"torchao cannot quantise it: {first_line(error)}.", remedy=_OTHER) from error
    yield f"The ranges are those of {len(order.calibration)} sets of inputs."
    _save(made, order)


def quantise_dense(order: ToolOrder) -> Iterator[str]:
    """The weights of dense layers, in the way that `options` names; everything else keeps its numbers."""
    from torchao.quantization import quantize_  # noqa: PLC0415 - as above
    from torchao.utils import unwrap_tensor_subclass  # noqa: PLC0415 - as above

    module = fixed_program(order).module()
    way = order.options["way"]
    names, left = _dense_modules(module, _MULTIPLES.get(way, (1, 1)))
    if not names and not left:
        raise FormatError(
            "The model has no dense layer, and torchao quantises so no others.",
            remedy="Ask for i8, which has convolutions too.",
        )
    config = _WAYS[way]()
    try:
        quantize_(module, config, filter_fn=lambda _, name: name in names)
        made = exported(unwrap_tensor_subclass(module), order)
    except Exception as error:
        raise FormatError(f"torchao cannot quantise it: {first_line(error)}.", remedy=_OTHER) from error
    kept = f"; {counted(left, 'other')} of sizes that it has no kernels for stay as they were" if left else ""
    yield f"{counted(len(names), 'dense layer')} quantised{kept}."
    _save(made, order)


def _dense_modules(module: Any, multiples: tuple[int, int]) -> tuple[tuple[str, ...], int]:
    """Put a module in the place of each call that multiplies with a matrix of weights.

    Their names, and how many were left alone because their outputs and inputs are no `multiples` of these.
    """
    import torch  # noqa: PLC0415, TID251 - as above

    aten, names, left = torch.ops.aten, [], 0
    for node in list(module.graph.nodes):
        if node.target not in {aten.linear.default, aten.matmul.default} or node.args[1].op != "get_attr":
            continue
        weight = _attribute(module, node.args[1].target)
        if weight.dim() != 2 or not weight.is_floating_point():
            continue
        bias = node.args[2] if len(node.args) > 2 else None
        if bias is not None and bias.op != "get_attr":
            continue
        stored = weight if node.target is aten.linear.default else weight.t().contiguous()
        if any(size % multiple for size, multiple in zip(stored.shape, multiples, strict=True)):
            left += 1
            continue
        linear = _linear(stored, None if bias is None else _attribute(module, bias.target))
        name = _name(node)
        _put(module, name, linear)
        with module.graph.inserting_before(node):
            call = module.graph.call_module(name, (node.args[0],))
        call.meta = dict(node.meta)
        node.replace_all_uses_with(call)
        module.graph.erase_node(node)
        names.append(name)
    module.graph.eliminate_dead_code()
    module.recompile()
    return tuple(names), left


def _attribute(module: Any, path: str) -> Any:
    parent, _, name = path.rpartition(".")
    return getattr(module.get_submodule(parent), name)


def _linear(weight: Any, bias: Any) -> Any:
    import torch  # noqa: PLC0415, TID251 - as above

    with torch.device("meta"):
        linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    linear.weight = torch.nn.Parameter(weight.detach(), requires_grad=False)
    if bias is not None:
        linear.bias = torch.nn.Parameter(bias.detach(), requires_grad=False)
    return linear.eval()


def _name(node: Any) -> str:
    """The module that the call was made in; the call's own name where that module made others too."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = (str(stack[-1][0]), str(stack[-1][1])) if stack else ("", "")
    plain = path and "Linear" in kind and all(path.split("."))
    return path if plain else f"{path}.{node.name}" if path and all(path.split(".")) else str(node.name)


def _put(module: Any, name: str, linear: Any) -> None:
    """Where a module of that name holds other things, they go with it."""
    try:
        before = module.get_submodule(name)
    except AttributeError:
        before = None
    if before is not None:
        for key, value in before.named_buffers(recurse=False):
            linear.register_buffer(key, value)
        for key, child in before.named_children():
            linear.add_module(key, child)
    module.add_submodule(name, linear)


def weights_i8() -> Any:
    from torchao.quantization import Int8WeightOnlyConfig  # noqa: PLC0415 - as above

    return Int8WeightOnlyConfig(set_inductor_config=False)


def dynamic_i8() -> Any:
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig  # noqa: PLC0415 - as above

    return Int8DynamicActivationInt8WeightConfig(set_inductor_config=False)


def _weights_i4() -> Any:
    from torchao.prototype.quantization.int4 import PrototypeInt4WeightOnlyConfig  # noqa: PLC0415 - as above

    return PrototypeInt4WeightOnlyConfig(group_size=_GROUP, set_inductor_config=False)


def _dynamic_i4() -> Any:
    """Kernels for this are in PyTorch for Arm alone (KleidiAI)."""
    torch: Any = import_module("torch")
    from torchao.quantization import Int8DynamicActivationIntxWeightConfig, MappingType  # noqa: PLC0415 - as above
    from torchao.quantization.granularity import PerGroup  # noqa: PLC0415 - as above

    if not torch.backends.kleidiai.is_available():
        raise FormatError(
            "Weights of 4 bits with activations quantised while it runs need PyTorch's kernels for Arm (KleidiAI), and "
            "this PyTorch has none.",
            remedy="Ask for i4-weights.",
        )
    return Int8DynamicActivationIntxWeightConfig(
        weight_dtype=torch.int4, weight_granularity=PerGroup(_GROUP), weight_mapping_type=MappingType.SYMMETRIC,
        intx_packing_format="opaque_aten_kleidiai",
    )  # fmt: skip


_WAYS = {"i8-weights": weights_i8, "i8-dynamic": dynamic_i8, "i4-weights": _weights_i4, "i4-dynamic": _dynamic_i4}


def _save(program: Any, order: ToolOrder) -> None:
    import torch  # noqa: PLC0415, TID251 - as above

    torch.export.save(program, str(order.target))
