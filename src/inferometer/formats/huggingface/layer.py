"""What a transformer layer is, as values, and how layers become blocks.

A template turns a config into one `Layer` value a layer. Equal neighbours are one Block, so a model whose layers
alternate between local and global attention has a Block for each change, in the order of execution.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from inferometer.core.frozen import frozen
from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.attention import Attention, Latent, Seen, attend, attend_latent
from inferometer.formats.huggingface.ssm import Delta, Mamba, Wkv, delta, mix_time, scan, shift

# Feed-forward parts: plain and gated MLPs, and mixtures of experts.


@frozen
class Mlp:
    """`up` and `down` alone are a plain MLP; with `gate`, or `gate_up` for both in one matrix, it is a gated one."""

    width: int
    function: str
    up: str = ""
    down: str = ""
    gate: str = ""
    gate_up: str = ""
    bias: bool = False
    transposed: bool = False


@frozen
class Experts:
    """Routed experts. In a weight's name `*` stands for the expert's index: `experts` tensors that are one stack here.

    `stacked` says that the checkpoint itself holds one tensor for all experts, as [experts, in, out].
    """

    experts: int
    top_k: int
    width: int
    function: str
    router: str
    gate: str = ""
    up: str = ""
    down: str = ""
    gate_up: str = ""
    router_bias: bool = False
    correction: str = ""  # a bias that only steers the choice of experts
    stacked: bool = False
    latent: int = 0  # experts read and write this width, between projections from and to the layer's
    latent_in: str = ""
    latent_out: str = ""
    shared: Mlp | None = None
    shared_gate: str = ""


def feed(spec: Mlp, at: str, x: Tensor) -> list[Op]:
    ops: list[Op] = []
    if spec.gate_up:
        both = nn.linear(f"{at}.gate_up_proj", x, 2 * spec.width, spec.gate_up, bias=spec.bias)
        half = (*x.shape[:-1], spec.width)
        parts = nn.split(f"{at}.gate_up", both, gate=half, up=half)
        gate, up = parts.outputs
        ops += [both, parts]
    elif spec.gate:
        ops.append(nn.linear(f"{at}.gate_proj", x, spec.width, spec.gate, bias=spec.bias))
        ops.append(nn.linear(f"{at}.up_proj", x, spec.width, spec.up, bias=spec.bias))
        gate, up = nn.output(ops[0]), nn.output(ops[1])
    else:
        ops.append(nn.linear(f"{at}.up_proj", x, spec.width, spec.up, bias=spec.bias, transposed=spec.transposed))
        gate, up = nn.output(ops), None
    ops.append(nn.activation(f"{at}.act", gate, spec.function))
    if up is not None:
        ops.append(nn.multiply(f"{at}.mul", ops, up))
    down = nn.linear(f"{at}.down_proj", ops, nn.width(x), spec.down, bias=spec.bias, transposed=spec.transposed)
    return [*ops, down]


def route(spec: Experts, at: str, x: Tensor) -> list[Op]:
    """Router, experts, and the shared expert that every token passes."""
    weights = [nn.weight(f"{spec.router}.weight", spec.experts, nn.width(x))]
    if spec.router_bias:
        weights.append(nn.weight(f"{spec.router}.bias", spec.experts))
    if spec.correction:
        weights.append(nn.weight(spec.correction, spec.experts))
    name = f"{at}.router"
    ops = [
        Op(
            name=name,
            kind="moe_router",
            inputs=(x,),
            outputs=(nn.tensor(name, *x.shape[:-1], spec.top_k),),
            weights=tuple(weights),
            attributes={"experts": spec.experts, "top_k": spec.top_k},
        )
    ]
    chosen = nn.output(ops)
    if spec.latent:
        ops.append(nn.linear(f"{at}.latent_in", x, spec.latent, spec.latent_in))
    ops.append(_experts(spec, at, nn.output(ops) if spec.latent else x, chosen))
    if spec.latent:
        ops.append(nn.linear(f"{at}.latent_out", ops, nn.width(x), spec.latent_out))
    if spec.shared is None:
        return ops
    routed = nn.output(ops)
    ops += feed(spec.shared, f"{at}.shared", x)
    shared = nn.output(ops)
    if spec.shared_gate:
        gate = nn.linear(f"{at}.shared.gate", x, 1, spec.shared_gate)
        scaled = nn.activation(f"{at}.shared.sigmoid", gate, "sigmoid")
        ops += [gate, scaled, nn.multiply(f"{at}.shared.scale", shared, scaled)]
        shared = nn.output(ops)
    return [*ops, nn.add(f"{at}.combine", routed, shared)]


def _experts(spec: Experts, at: str, x: Tensor, chosen: Tensor) -> Op:
    name, hidden = f"{at}.experts", nn.width(x)
    attributes = {
        "experts": spec.experts, "top_k": spec.top_k, "hidden": hidden, "intermediate": spec.width,
        "gated": bool(spec.gate or spec.gate_up), "function": spec.function,
    }  # fmt: skip
    weights = _stacked_weights(spec, hidden) if spec.stacked else _expert_weights(spec, hidden)
    return Op(
        name=name,
        kind="moe_experts",
        inputs=(x, chosen),
        outputs=(nn.tensor(name, *x.shape),),
        weights=weights,
        attributes=attributes,
    )


def _expert_weights(spec: Experts, hidden: int) -> tuple[Tensor, ...]:
    gate = (nn.weight(f"{spec.gate}.weight", spec.experts, spec.width, hidden),) if spec.gate else ()
    return (
        *gate,
        nn.weight(f"{spec.up}.weight", spec.experts, spec.width, hidden),
        nn.weight(f"{spec.down}.weight", spec.experts, hidden, spec.width),
    )


def _stacked_weights(spec: Experts, hidden: int) -> tuple[Tensor, ...]:
    """[experts, in, out], gate and up in one tensor. In gpt-oss, whose router has a bias, these have them too."""
    both, down = spec.gate_up, spec.down
    weights = [
        nn.weight(both, spec.experts, hidden, 2 * spec.width),
        nn.weight(f"{both}_bias", spec.experts, 2 * spec.width),
        nn.weight(down, spec.experts, spec.width, hidden),
        nn.weight(f"{down}_bias", spec.experts, hidden),
    ]
    return tuple(weights if spec.router_bias else weights[::2])


@frozen
class Norms:
    """Where a layer normalises: a slot holds the norm's module, or is empty.

    `pre_` norms a sub-layer's input, `post_` its output before it is added, `sum_` the sum after that (BERT).
    `scale_` is a learned factor for each feature of a sub-layer's output (layer scale), named in full.
    """

    kind: str = "rms"
    bias: bool = False
    pre_attention: str = ""
    post_attention: str = ""
    sum_attention: str = ""
    scale_attention: str = ""
    pre_cross: str = ""
    pre_mlp: str = ""
    post_mlp: str = ""
    sum_mlp: str = ""
    scale_mlp: str = ""


Mixer = Attention | Latent | Mamba | Delta | Wkv


@frozen
class Layer:
    """A mixer of tokens and an MLP. Where layers have one part each (Nemotron-H) the other is None."""

    norms: Norms
    mixer: Mixer | None
    cross: Attention | None = None
    ffn: Mlp | Experts | None = None
    parallel: bool = False  # attention and MLP read the same input and are added together


def stack(layers: Sequence[Layer], at: str, hidden: Tensor, block: str, seen: Seen | None = None) -> tuple[Block, ...]:
    """The layers as blocks. Each block reads the tensor `hidden` and its last op writes it again.

    `at` goes before the names of ops, `block` is what the blocks are called.
    """
    seen = seen or Seen()
    blocks: list[Block] = []
    first = 0
    for layer, run in groupby(layers):
        count = sum(1 for _ in run)
        ops = _expand(layer, f"{at}layers.{{}}", hidden, seen)
        blocks.append(Block(name=block, ops=ops, count=count, first=first))
        first += count
    return tuple(blocks)


def _named_norm(name: str, x: Tensor, norms: Norms, module: str) -> Op:
    """A norm of the layer's kind."""
    return nn.norm(name, x, norms.kind, module, bias=norms.bias)


def _expand(layer: Layer, at: str, hidden: Tensor, seen: Seen) -> tuple[Op, ...]:
    itself = Seen(context=seen.context)
    if layer.parallel:
        ops = _parallel(layer, at, hidden, itself)
    else:
        ops = _attention(layer, layer.mixer, at, hidden, itself) if layer.mixer is not None else []
        if layer.cross is not None:
            ops += _cross(layer, at, nn.output(ops), layer.cross, seen)
        if layer.ffn is not None:
            ops += _mlp(layer, at, nn.output(ops) if ops else hidden, layer.ffn)
    last = replace(ops[-1], outputs=(hidden,))
    return (*ops[:-1], last)


def _attention(layer: Layer, mixer: Mixer, at: str, x: Tensor, seen: Seen) -> list[Op]:
    norms, at = layer.norms, f"{at}.{'attn' if isinstance(mixer, Attention | Latent) else 'ssm'}"
    inner = _normed(at, x, norms, norms.pre_attention)
    inner += _mix(mixer, at, nn.output(inner) if inner else x, seen)
    return _joined(at, x, inner, norms, (norms.post_attention, norms.scale_attention, norms.sum_attention))


def _cross(layer: Layer, at: str, x: Tensor, cross: Attention, seen: Seen) -> list[Op]:
    at = f"{at}.cross"
    inner = _normed(at, x, layer.norms, layer.norms.pre_cross)
    inner += attend(cross, at, nn.output(inner) if inner else x, seen)
    return _joined(at, x, inner, layer.norms, ("", "", ""))


def _mlp(layer: Layer, at: str, x: Tensor, ffn: Mlp | Experts) -> list[Op]:
    norms, at = layer.norms, f"{at}.mlp"
    inner = _normed(at, x, norms, norms.pre_mlp)
    read = nn.output(inner) if inner else x
    if isinstance(layer.mixer, Wkv):
        inner.append(shift(f"{at}.shift", read, layer.mixer.shift_mlp))
        read = nn.output(inner)
    inner += _feed(ffn, at, read)
    return _joined(at, x, inner, norms, (norms.post_mlp, norms.scale_mlp, norms.sum_mlp))


def _parallel(layer: Layer, at: str, x: Tensor, seen: Seen) -> list[Op]:
    """One addition joins both; where the MLP has no norm of its own it shares attention's."""
    norms = layer.norms
    ops = _normed(f"{at}.attn", x, norms, norms.pre_attention)
    shared = nn.output(ops) if ops else x
    if layer.ffn is None or layer.mixer is None:
        raise TypeError("A parallel layer has attention and an MLP.")
    ops += _mix(layer.mixer, f"{at}.attn", shared, seen)
    attended = nn.output(ops)
    own = _normed(f"{at}.mlp", x, norms, norms.pre_mlp)
    fed = _feed(layer.ffn, f"{at}.mlp", nn.output(own) if own else shared)
    return [*ops, *own, *fed, nn.add(f"{at}.residual", x, attended, fed)]


def _joined(at: str, x: Tensor, inner: list[Op], norms: Norms, slots: tuple[str, str, str]) -> list[Op]:
    """A sub-layer's ops, then what is done to its output, then the residual addition."""
    post, scale, after = slots
    ops = list(inner)
    if post:
        ops.append(_named_norm(f"{at}.post_norm", nn.output(ops), norms, post))
    if scale:
        ops.append(nn.multiply(f"{at}.scale", ops, weights=(nn.weight(scale, nn.width(x)),)))
    ops.append(nn.add(f"{at}.residual", x, ops))
    if after:
        ops.append(_named_norm(f"{at}.norm", nn.output(ops), norms, after))
    return ops


def _normed(at: str, x: Tensor, norms: Norms, module: str) -> list[Op]:
    return [_named_norm(f"{at}.norm", x, norms, module)] if module else []


def _mix(mixer: Mixer, at: str, x: Tensor, seen: Seen) -> list[Op]:
    match mixer:
        case Attention():
            return attend(mixer, at, x, seen)
        case Latent():
            return attend_latent(mixer, at, x, seen)
        case Mamba():
            return scan(mixer, at, x)
        case Delta():
            return delta(mixer, at, x)
        case Wkv():
            return mix_time(mixer, at, x)


def _feed(ffn: Mlp | Experts, at: str, x: Tensor) -> list[Op]:
    return feed(ffn, at, x) if isinstance(ffn, Mlp) else route(ffn, at, x)
