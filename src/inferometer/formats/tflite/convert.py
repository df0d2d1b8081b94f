"""From a TFLite operator to ops: what its options and small inputs say about the work."""

from collections.abc import Callable
from math import ceil, log2, prod

from inferometer.core.graph import Op
from inferometer.formats.tflite.layers import LAYERS
from inferometer.formats.tflite.schema import PADDINGS
from inferometer.formats.tflite.scope import Site


def converted(site: Site) -> list[Op]:
    """The ops of one operator; usually one. Ops with bodies are made where the bodies are known."""
    form = site.info.operator.form
    if form in LAYERS:
        return LAYERS[form](site)
    return [_OTHERS.get(form, _plain)(site)]


def _plain(site: Site) -> Op:
    inputs, weights = site.split()
    return site.op(inputs, weights)


def _pool(site: Site) -> Op:
    options = site.options
    return site.op(
        (0,),
        kernel=(options.get("filter_h", 1), options.get("filter_w", 1)),
        strides=(options.get("stride_h", 1), options.get("stride_w", 1)),
        padding=PADDINGS.get(options.get("padding", 0), "same"),
    )


def _window(site: Site) -> Op:
    """The window's sides stand in the options (StableHLO) or in the third input."""
    sides = site.options.get("window") or site.numbers(2)
    if not sides:
        return site.uncovered("the window's size is not in the file")
    return site.op(site.split()[0], kernel=tuple(sides))


def _reduce(site: Site) -> Op:
    axes = site.options.get("axes") or site.numbers(1) or ()
    inputs, weights = site.split()
    return site.op(inputs, weights, axes=tuple(axes))


def _dequantize(site: Site) -> Op:
    """From f16 there is no scale: only the format changes."""
    plain = site.scope.info(site.info.inputs[0]).dtype in {"f16", "bf16"}
    return site.op((0,), kind="cast" if plain else "")


def _lrn(site: Site) -> Op:
    return site.op((0,), size=2 * site.options.get("radius", 0) + 1)


def _topk(site: Site) -> Op:
    kept = site.numbers(1)
    return site.op((0, 1), k=kept[0] if kept else None)


def _axis(site: Site) -> Op:
    return site.op((0,), axis=site.options.get("axis", -1))


def _scatter(site: Site) -> Op:
    """Inputs are indices, updates, shape; the work rule wants the updates last."""
    return site.op((2, 0, 1))


def _update_slice(site: Site) -> Op:
    """Inputs are data, update, start; the work rule wants the updates last."""
    return site.op((0, *range(2, len(site.info.inputs)), 1))


def _fft(site: Site) -> Op:
    """A transform of n real numbers takes 2.5·n·log₂ n operations and gives n/2 + 1 complex ones: 5·log₂ n each."""
    length = site.numbers(1)
    if not length or prod(length) < 1:
        return site.uncovered("the transform's length is not in the file")
    return site.op((0, 1), flops_per_element=5 * max(1, ceil(log2(prod(length)))))


def _bucketize(site: Site) -> Op:
    """A binary search among the boundaries."""
    return site.op((0,), flops_per_element=max(1, len(site.options.get("boundaries", ())).bit_length()))


def _gelu(site: Site) -> Op:
    return site.op((0,), function="gelu_tanh" if site.options.get("approximate") else "gelu")


def _read_variable(site: Site) -> Op:
    """What is read is the memory itself."""
    state = site.scope.variable(site.info.inputs[0], site.info.outputs[0])
    return Op(
        name=site.name, kind="view", inputs=(state,), outputs=site.outputs(), attributes=site.shared(),
        source_type="READ_VARIABLE",
    )  # fmt: skip


def _assign_variable(site: Site) -> Op:
    handle, value = site.info.inputs[0], site.info.inputs[1]
    return Op(
        name=site.name, kind="copy", inputs=(site.scope.tensor(value),),
        outputs=(site.scope.variable(handle, value),), source_type="ASSIGN_VARIABLE",
        attributes={**site.info.operator.attributes, **site.shared()},
    )  # fmt: skip


_OTHERS: dict[str, Callable[[Site], Op]] = {
    "pool": _pool, "window": _window, "reduce": _reduce, "dequantize": _dequantize, "lrn": _lrn, "topk": _topk,
    "axis": _axis, "scatter": _scatter, "update_slice": _update_slice, "fft": _fft, "bucketize": _bucketize,
    "gelu": _gelu, "read_variable": _read_variable, "assign_variable": _assign_variable,
}  # fmt: skip
