"""Operators that multiply: matrices, convolutions, attention, recurrent cells."""

import re
from dataclasses import replace
from typing import Any

from inferometer.core.dims import Dim, Symbol, product
from inferometer.core.graph import Tensor
from inferometer.formats.torch.program import Argument, AtenRow, ProgramCall, Ref, refs_in
from inferometer.formats.torch.scope import ProgramScope, UnreadableCallError

_FOUR_BITS = re.compile("int4pack|4bit")


def _linear(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    x, weight = call.arguments.get("input"), call.arguments.get("weight")
    if not isinstance(x, Ref) or not isinstance(weight, Ref):
        raise UnreadableCallError("no input or no weight")
    _multiplied(scope, call, row, (x, weight), refs_in(call.arguments.get("bias")))


def _product(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    if len(call.refs) != 2:
        raise UnreadableCallError("not two factors")
    _multiplied(scope, call, row, call.refs)


def _product_added(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """The first argument is added to the product of the two others."""
    refs = call.refs
    if len(refs) != 3:
        raise UnreadableCallError("not two factors and a term")
    _multiplied(scope, call, row, refs[1:], refs[:1])


def _multiplied(
    scope: ProgramScope, call: ProgramCall, row: AtenRow, factors: tuple[Ref, ...], added: tuple[Ref, ...] = ()
) -> None:
    """A product with one stored factor is `linear`, any other a `matmul`."""
    if "contracted" not in row.attributes:
        left = scope.value(factors[0], call).shape
        if not left:
            raise UnreadableCallError("a factor without axes")
        row = row.but(contracted=left[-1])
    stored = [scope.of(ref, call).stored for ref in factors]
    terms, biases = scope.operands(added, call)
    flowing, held = scope.operands(factors, call)
    if all(stored):
        scope.emit(call, row.but("matmul"), [*held, *terms], [*held, *biases])
    elif any(stored):
        scope.emit(call, row.but("linear"), [*flowing, *terms], [*held[:1], *biases, *held[1:]])
    else:
        scope.emit(call, row.but("matmul"), [*flowing, *terms], biases)


def _outer(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    _product(scope, call, row.but(contracted=1))


def _tensordot(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    refs, axes = call.refs, call.arguments.get("dims_self")
    shape = scope.value(refs[0], call).shape if refs else ()
    sizes = [shape[a] for a in axes or () if isinstance(a, int) and -len(shape) <= a < len(shape)]
    if len(refs) != 2 or not isinstance(axes, tuple) or len(sizes) != len(axes):
        raise UnreadableCallError("axes that are not known")
    _multiplied(scope, call, row.but(contracted=product(tuple(sizes))), refs)


def _einsum(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Labels that the result does not have are summed over: 2 · results · their sizes for two operands."""
    refs = call.refs
    equation = call.arguments.get("equation")
    shapes = [scope.value(ref, call).shape for ref in refs]
    summed = _summed(equation, shapes) if isinstance(equation, str) else None
    if summed is None or len(refs) > 2:
        raise UnreadableCallError("an equation of more than two operands, or one that is not understood")
    if len(refs) == 2:
        _multiplied(scope, call, row.but(contracted=summed), refs)
        return
    kind, function = ("copy", "permute") if summed == 1 else ("reduce", "sum")
    scope.plain(call, row.but(kind, function=function))


def _summed(equation: str, shapes: list[tuple[Dim, ...]]) -> Dim | None:
    """The product of the sizes of all labels that are summed over. `...` stands for axes that stay."""
    left, arrow, right = equation.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        return None
    sizes: dict[str, Dim] = {}
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, after = term.partition("...")
        if len(before) + len(after) > len(shape) or (not dots and len(before) != len(shape)):
            return None
        sizes |= zip(before, shape[: len(before)], strict=True)
        sizes |= zip(after, shape[len(shape) - len(after) :], strict=True)
    kept = set(right) if arrow else {label for label in sizes if left.count(label) == 1}
    return product(tuple(size for label, size in sizes.items() if label not in kept))


def _packed(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """A product with a weight in a packed format; its scales come with it."""
    refs = call.refs
    flowing, stored = scope.operands(refs[1:], call)
    first, beside = scope.operands(refs[:1], call)
    x = scope.value(refs[0], call).shape if refs else ()
    if not x or not first:
        raise UnreadableCallError("no input")
    kind = "linear" if stored else "matmul"
    if stored and _FOUR_BITS.search(call.target):
        stored[0] = _unpacked(stored[0], (scope.value(call.outputs[0], call).shape[-1], x[-1]))
    scope.emit(call, row.but(kind, contracted=x[-1]), [*first, *flowing], [*stored, *beside])


def _unpacked(packed: Tensor, shape: tuple[Dim, ...]) -> Tensor:
    """Two weights lie in a byte; a kernel's own layout has their scales between them."""
    held, whole = packed.elements, product(shape)
    if not isinstance(held, int) or not isinstance(whole, int) or 2 * held < whole:
        return packed
    return replace(packed, shape=shape, dtype="i4", stored_bytes=held)


def _convolution(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Weights are [out, in / groups, …kernel], or [in, out / groups, …kernel] when transposed."""
    refs = call.refs
    transposed = row.form == "transposed_convolution" or bool(call.arguments.get("transposed"))
    groups = call.arguments.get("groups", 1)
    shape = scope.value(refs[1], call).shape if len(refs) > 1 else ()
    whole = [size for size in shape if isinstance(size, int)]
    if len(whole) < 3 or len(whole) != len(shape) or not isinstance(groups, int) or groups < 1:
        raise UnreadableCallError("a kernel of unknown size")
    first, second, *kernel = whole
    rank = len(kernel)
    row = row.but(
        in_channels=first if transposed else second * groups,
        out_channels=second * groups if transposed else first,
        groups=groups,
        kernel=tuple(kernel),
        strides=_spread(call.arguments.get("stride"), rank),
        dilations=_spread(call.arguments.get("dilation"), rank),
        transposed=transposed,
    )
    scope.plain(call, row)


def _spread(argument: Argument, rank: int) -> tuple[int, ...]:
    """One number for each axis; one stands for all, and none for 1."""
    numbers = [n for n in (argument if isinstance(argument, tuple) else (argument,)) if isinstance(n, int)]
    return tuple(numbers) if len(numbers) == rank else tuple((numbers or [1])[:1] * rank)


def _attention(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Queries [batch, heads, query, head_dim] against keys and values of as many or fewer heads.

    A mask is data: all pairs are computed, as engines do. `is_causal` is an argument, and is counted; torch
    aligns it at the first token, so the keys beyond the queries are never met.
    """
    refs = tuple(call.arguments.get(name) for name in ("query", "key", "value"))
    masks = refs_in(call.arguments.get("attn_mask") or call.arguments.get("attn_bias"))
    sizes = _attention_sizes(scope, call, refs)
    if sizes is None:
        raise UnreadableCallError("heads of unknown number or width")
    query, keys = (scope.value(ref, call).shape[-2] for ref in refs_in(refs[:2]))
    causal = bool(call.arguments.get("is_causal"))
    cross = not causal and keys != query
    flowing, stored = scope.operands((refs, masks), call)
    sizes |= {"query": query, "context": keys if cross else 0, "causal": causal, "cross": cross}
    scope.emit(call, row.but(**sizes, cached=False, masked=bool(masks)), flowing, stored)


def _attention_sizes(scope: ProgramScope, call: ProgramCall, refs: tuple[Argument, ...]) -> dict[str, Any] | None:
    """Heads and widths, from the shapes of q, k and v; None where these do not say them."""
    shapes = [scope.value(ref, call).shape for ref in refs if isinstance(ref, Ref)]
    if len(shapes) != 3 or min(len(shape) for shape in shapes) < 2:
        return None
    q, k, v = shapes
    heads, kv_heads = (shape[-3] if len(shape) > 3 else 1 for shape in (q, k))
    sizes = {"heads": heads, "kv_heads": kv_heads, "head_dim": q[-1], "value_dim": v[-1]}
    return sizes if all(isinstance(size, int) and size > 0 for size in sizes.values()) else None


def _declared_attention(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Our own operator, which stands in Hugging Face models for whatever attention they would choose."""
    given = call.arguments
    refs = (given.get("query"), given.get("key"), given.get("value"))
    sizes = _attention_sizes(scope, call, refs)
    if sizes is None:
        raise UnreadableCallError("heads of unknown number or width")
    flowing, stored = scope.operands(refs, call)
    cached = bool(given.get("cached"))
    row = row.but(
        "attention",
        **sizes,
        query=flowing[0].shape[-2],
        context=Symbol("context") if cached else 0,
        causal=bool(given.get("causal")),
        cached=cached,
        window=given.get("window") or None,
        soft_cap=bool(given.get("soft_cap")),
    )
    scope.emit(call, row, flowing, stored)


def _declared_experts(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """Our own operator for the experts of a mixture: rows, the experts chosen for each, and the stacks of weights."""
    given = call.arguments
    rows_in, chosen = scope.operands(given.get("hidden"), call)[0], given.get("chosen")
    _, stacks = scope.operands(given.get("weights"), call)
    top_k = scope.value(chosen, call).shape[-1] if isinstance(chosen, Ref) else None
    if not rows_in or not stacks or not isinstance(top_k, int):
        raise UnreadableCallError("no rows, no stored experts or an unknown number of choices")
    indices, _ = scope.operands((chosen, given.get("scores")), call)
    row = row.but(
        "moe_experts",
        experts=stacks[0].shape[0],
        top_k=top_k,
        hidden=rows_in[0].shape[-1],
        intermediate=given.get("intermediate"),
        gated=bool(given.get("gated")),
        function=given.get("function"),
    )
    scope.emit(call, row, [*rows_in, *indices], stacks)


def _recurrent(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    """One op for each layer: a stack of cells reads what the layer below gives."""
    given = call.arguments
    x, params = given.get("input", given.get("data")), refs_in(given.get("params"))
    layers, directions = given.get("num_layers", 1), 2 if given.get("bidirectional") else 1
    tensors = 4 if given.get("has_biases", True) else 2
    if not isinstance(x, Ref) or not isinstance(layers, int) or len(params) != layers * directions * tensors:
        raise UnreadableCallError("weights that are not two matrices and two biases for each layer")
    shape, dtype = scope.value(x, call).shape, scope.value(x, call).dtype
    hidden = scope.value(params[1], call).shape[-1]
    states, _ = scope.operands(given.get("hx"), call)
    below, _ = scope.operands(x, call)
    steps = shape[1 if given.get("batch_first") and len(shape) > 2 else 0]
    for layer in range(layers):
        last = layer == layers - 1
        above = Tensor(
            name=f"{scope.prefix}{call.name}.l{layer}", shape=(*shape[:-1], hidden * directions), dtype=dtype
        )
        own = params[layer * directions * tensors : (layer + 1) * directions * tensors]
        flowing, stored = scope.operands(own, call)
        inputs = [*below, *flowing, *(states if layer == 0 else ())]
        numbered = row.but(layer=layer) if layers > 1 else row
        scope.emit(
            call,
            numbered.but(hidden=hidden, directions=directions, steps=steps),
            inputs,
            stored,
            outputs=None if last else (above,),
        )
        below = [above]


def _cell(scope: ProgramScope, call: ProgramCall, row: AtenRow) -> None:
    weights = refs_in((call.arguments.get("w_hh"),))
    hidden = scope.value(weights[0], call).shape[-1] if weights else None
    if not isinstance(hidden, int):
        raise UnreadableCallError("weights of unknown size")
    scope.plain(call, row.but(hidden=hidden, directions=1, steps=1))


FORMS = {
    "linear": _linear, "product": _product, "product_added": _product_added, "outer": _outer, "tensordot": _tensordot,
    "einsum": _einsum, "packed": _packed, "convolution": _convolution, "transposed_convolution": _convolution,
    "attention": _attention, "inferometer.attention": _declared_attention, "inferometer.experts": _declared_experts,
    "recurrent": _recurrent, "cell": _cell,
}  # fmt: skip
