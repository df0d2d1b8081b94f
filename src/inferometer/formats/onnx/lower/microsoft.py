"""ONNX Runtime's own operators: packed products, fused layers, experts."""

from dataclasses import replace
from math import prod

from inferometer.core.dims import Dim
from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.onnx.lower.layers import product_op, unpacked
from inferometer.formats.onnx.rules.common import static
from inferometer.formats.onnx.step import Lowering, Maker, OnnxStep, Wires, part_op

# Packed weights


def lower_n_bits(step: OnnxStep, maker: Maker) -> list[Op]:
    """[N, K] in `bits` bits a number, a scale for each block of them. The bytes are the file's, the parameters N·K."""
    call = step.call
    columns, depth, bits = call.integer("N"), call.integer("K"), call.integer("bits", 4)
    bias = 5 if call.node.op_type == "MatMulNBits" else None
    contracted = depth if call.integer("transB", 1) else columns  # MatMulBnb4 may go through the matrix the other way
    op = product_op(step, maker, (0, 1, bias), contracted, block=call.integer("block_size"), bits=bits)
    return [_unpacked_first(op, (columns, depth), bits)]


def lower_fpq4(step: OnnxStep, maker: Maker) -> list[Op]:
    sides = step.call.whole(2)
    if sides is None or len(sides) != 2:
        return maker.custom(step, "the shape of its weight is not known")
    op = product_op(step, maker, (0, 1, None), sides[0], bits=4)
    return [_unpacked_first(op, sides, 4)]


def lower_block_quantized(bits: int, bias: int) -> Lowering:
    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        a, b = step.call.shape(0), static(step.call.shape(1))
        if b is None:
            return maker.custom(step, "the shape of its weight is not known")
        op = product_op(step, maker, (0, 1, bias), a[-1], bits=bits)
        return [_unpacked_first(op, (b[0], b[1] * 8 // bits), bits)]

    return lower


def _unpacked_first(op: Op, shape: tuple[Dim, ...], bits: int) -> Op:
    if not op.weights or op.kind != "linear":
        return op
    return replace(op, weights=(unpacked(op.weights[0], shape, bits), *op.weights[1:]))


def lower_nbits_mlp(step: OnnxStep, maker: Maker) -> list[Op]:
    """Optional sum and norm, then gate and up projections of one input, one gated by the other."""
    call, columns = step.call, step.call.integer("N")
    x, ops = _normed(step, maker)
    halves: list[Tensor] = []
    for name, place in (("gate", 3), ("up", 6)):
        y = Tensor(name=f"{step.name}/{name}", shape=(*x.shape[:-1], columns), dtype=x.dtype)
        ops.append(_projection(step, maker, name, place, (x, y)))
        halves.append(y)
    wires = Wires(tuple(halves), (maker.tensor(step.outs[0]),))
    function = call.text("activation", "silu").casefold()
    return [*ops, part_op(step, "gated", "activation", wires, function=function)]


def lower_nbits_qkv(step: OnnxStep, maker: Maker) -> list[Op]:
    """Optional sum, norm, then the projections to q, k and v."""
    x, ops = _normed(step, maker)
    for order, (name, place) in enumerate((("q", 3), ("k", 6), ("v", 9))):
        if order < len(step.outs) and step.outs[order].name:
            ops.append(_projection(step, maker, name, place, (x, maker.tensor(step.outs[order]))))
    return ops


def _normed(step: OnnxStep, maker: Maker) -> tuple[Tensor, list[Op]]:
    """The input as the projections see it, and the norm before them where there is one."""
    call, x = step.call, maker.tensor(step.call.value(0))
    if not call.has(2):
        return x, []
    inner = Tensor(name=f"{step.name}/normed", shape=x.shape, dtype=x.dtype)
    skip = (maker.tensor(call.value(1)),) if call.has(1) else ()
    wires = Wires((x, *skip), (inner,), maker.weights([call.inputs[2]]))
    return inner, [part_op(step, "norm", "norm", wires, norm="rms")]


def _projection(step: OnnxStep, maker: Maker, name: str, index: int, ends: tuple[Tensor, Tensor]) -> Op:
    """Packed weight, scales and bias stand at `place` and the two after it."""
    call, bits, depth = step.call, step.call.integer("bits", 4), step.call.integer("K")
    x, y = ends
    weights = maker.weights([call.inputs[i] for i in (index, index + 2, index + 1) if call.has(i)])
    op = part_op(step, name, "linear", Wires((x,), (y,), weights), contracted=depth, bits=bits)
    return _unpacked_first(op, (y.shape[-1], depth), bits)


def lower_gather_quantized(step: OnnxStep, maker: Maker) -> list[Op]:
    """A lookup in a packed table."""
    call = step.call
    table, bits = static(call.shape(0)), call.integer("bits", 4)
    if table is None or not table or not call.value(0).constant or bits < 1:
        return [maker.op(step, "gather")]
    packed = call.dtype(0) == "u8" and bits < 8
    whole = (*table[:-1], table[-1] * 8 // bits) if packed else table
    op = maker.op(step, "embedding", bits=bits)
    return [replace(op, weights=(unpacked(op.weights[0], whole, bits), *op.weights[1:]))]


# Experts


@frozen
class ExpertPlaces:
    """Where the stacks of a mixture's three projections stand among its inputs."""

    first: int
    second: int
    third: int
    packed: bool


MOE = ExpertPlaces(first=2, second=4, third=6, packed=False)
QMOE = ExpertPlaces(first=2, second=5, third=8, packed=True)


def lower_moe(places: ExpertPlaces) -> Lowering:
    """Router scores come in; the experts' projections are here.

    Their inner width follows from the second stack; a first stack of twice its size holds the gate too.
    """

    def lower(step: OnnxStep, maker: Maker) -> list[Op]:
        call = step.call
        sizes = static((call.shape(1)[-1], call.shape(0)[-1]))
        up, down = (static(call.shape(place)) for place in (places.first, places.second))
        if sizes is None or 0 in sizes or up is None or down is None:
            return maker.custom(step, "the shape of its experts is not known")
        experts, hidden = sizes
        bits = call.integer("expert_weight_bits", 4) if places.packed else 8
        per_byte = 8 // bits if bits in {1, 2, 4, 8} else 1
        function = call.text("activation_type", "relu").casefold()
        op = maker.op(
            step,
            "moe_experts",
            experts=experts,
            top_k=call.integer("k", 1),
            hidden=hidden,
            intermediate=prod(down) * per_byte // (experts * hidden),
            gated=prod(up) == 2 * prod(down) or call.has(places.third),
            function={"swiglu": "silu"}.get(function, function),
        )
        return [_unpacked_stacks(op, bits) if places.packed else op]

    return lower


def _unpacked_stacks(op: Op, bits: int) -> Op:
    """Stacks of packed matrices, [experts, rows, columns / numbers in a byte]."""
    per_byte = max(1, 8 // max(1, bits))
    weights = tuple(
        unpacked(w, (*w.shape[:-1], w.shape[-1] * per_byte), bits) if w.role == "weight" and len(w.shape) == 3 else w
        for w in op.weights
    )
    return replace(op, weights=weights)


# The rest


def lower_embed_norm(step: OnnxStep, maker: Maker) -> list[Op]:
    """Lookups of words, positions and segments, added up and normalised."""
    call = step.call
    ids, y = maker.tensor(call.value(0), "index"), maker.tensor(step.outs[0])
    ops: list[Op] = []
    for name, place, index in (("words", 2, 0), ("positions", 3, 8), ("segments", 4, 1)):
        table = call.inputs[place] if call.has(place) else None
        if table is None or not table.constant:
            continue
        chosen = maker.tensor(call.value(index), "index") if call.has(index) else ids
        out = Tensor(name=f"{step.name}/{name}", shape=y.shape, dtype=y.dtype)
        ops.append(part_op(step, name, "embedding", Wires((chosen,), (out,), maker.weights([table]))))
    outputs = tuple(maker.tensor(value) for value in step.outs if value.name)
    norm = maker.weights([call.inputs[i] for i in (5, 6) if call.has(i)])
    wires = Wires(tuple(op.outputs[0] for op in ops), outputs, norm)
    return [*ops, part_op(step, "norm", "norm", wires, norm="layer")]


def lower_inverse(step: OnnxStep, maker: Maker) -> list[Op]:
    """2·n³ operations a matrix, n² results: 2·n each."""
    n = step.call.shape(0)[-1]
    if not isinstance(n, int):
        return maker.custom(step, "the size of its matrices is not known")
    return [maker.op(step, function="inverse", flops_per_element=max(1, 2 * n))]


def lower_cdist(step: OnnxStep, maker: Maker) -> list[Op]:
    """All distances between two sets of vectors: a product of the one with the other."""
    return [product_op(step, maker, (0, 1, None), step.call.shape(0)[-1])]
