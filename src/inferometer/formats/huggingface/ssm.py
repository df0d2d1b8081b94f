"""Mixers with a state in place of a cache: Mamba's selective scan, Mamba-2's, the gated delta rule, and RWKV-7's."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.huggingface import nn


@frozen
class Mamba:
    """`rank` is that of version 1's time step; `heads`, `groups` and `chunk` are version 2's, and 0 in version 1.

    `normed`: dt, B and C pass an RMS norm first (Jamba).
    """

    at: str
    inner: int
    state: int
    kernel: int
    rank: int = 0
    heads: int = 0
    groups: int = 0
    chunk: int = 0
    bias: bool = False
    conv_bias: bool = True
    normed: bool = False
    function: str = "silu"


@frozen
class Delta:
    """Gated DeltaNet (Qwen3-Next, Qwen3.5): each value head keeps a matrix of key_dim × value_dim.

    `fused`: one matrix gives q, k, v and the gate, another both of the per-head numbers.
    """

    at: str
    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    kernel: int
    fused: bool = False

    @property
    def state(self) -> int:
        return self.key_dim


@frozen
class Wkv:
    """RWKV-7: each head keeps a square matrix. Ranks are those of the small matrices that make what steers it.

    `value_rank` is 0 in the first layer, which has no earlier values to mix in.
    """

    at: str
    head_dim: int
    decay_rank: int
    rate_rank: int
    value_rank: int
    gate_rank: int
    shift_mlp: str = ""  # the learned share of the token before, ahead of the layer's MLP

    @property
    def state(self) -> int:
        return self.head_dim


def delta(spec: Delta, at: str, x: Tensor) -> list[Op]:
    """Projections → causal conv over q, k and v → delta rule → norm of each head → gate → out_proj."""
    rows, module = x.shape[:-1], spec.at
    keys, values, heads = spec.key_heads * spec.key_dim, spec.value_heads * spec.value_dim, spec.value_heads
    channels = 2 * keys + values
    if spec.fused:
        both = nn.linear(f"{at}.in_proj_qkvz", x, channels + values, f"{module}.in_proj_qkvz")
        steer = nn.linear(f"{at}.in_proj_ba", x, 2 * heads, f"{module}.in_proj_ba")
        parts = nn.split(f"{at}.parts", both, qkv=(rows[0], channels, rows[1]), z=(*rows, values))
        per_head = nn.split(f"{at}.steer", steer, b=(*rows, heads), a=(*rows, heads))
        ops, (qkv, z), (b, a) = [both, steer, parts, per_head], parts.outputs, per_head.outputs
    else:
        widths = {"qkv": channels, "z": values, "b": heads, "a": heads}
        ops = [nn.linear(f"{at}.in_proj_{part}", x, wide, f"{module}.in_proj_{part}") for part, wide in widths.items()]
        z, b, a = (nn.output(op) for op in ops[1:])
        qkv = nn.reshaped(nn.output(ops[0]), rows[0], channels, rows[1])
    conv = _conv(at, qkv, spec.kernel, f"{module}.conv1d", bias=False)
    active = nn.activation(f"{at}.conv_act", conv, "silu")
    split = nn.split(f"{at}.qkv", active, q=(*rows, keys), k=(*rows, keys), v=(*rows, values))
    q, k, v = split.outputs
    memory = nn.tensor(f"{at}.state", rows[0], heads, spec.value_dim, spec.key_dim, role="state")
    attributes = {
        "inner": values, "state": spec.key_dim, "conv_kernel": spec.kernel, "heads": heads, "groups": spec.key_heads,
        "version": 3,
    }  # fmt: skip
    weights = (nn.weight(f"{module}.dt_bias", heads), nn.weight(f"{module}.A_log", heads))
    scanned = _scan(at, (v, q, k, b, a, memory), weights, attributes)
    normed = nn.head_norm(f"{at}.out_norm", scanned, "rms", f"{module}.norm", spec.value_dim)
    gated = _gated(at, nn.output(normed), z, "silu")
    out = nn.linear(f"{at}.out_proj", gated, nn.width(x), f"{module}.out_proj")
    return [*ops, conv, active, split, scanned, normed, *gated, out]


def shift(name: str, x: Tensor, *shares: str) -> Op:
    """A learned mix of each token with the one before it, one for each of `shares`, which name the weights."""
    memory = nn.tensor(f"{name}.before", x.shape[0], 1, nn.width(x), role="state")
    mixed = tuple(nn.tensor(f"{name}.{index}", *x.shape) for index in range(len(shares)))
    weights = tuple(nn.weight(share, nn.width(x)) for share in shares)
    attributes = {"function": "token_shift", "flops_per_element": 2}  # x + share · (before − x), the difference once
    return Op(
        name=name,
        kind="elementwise",
        inputs=(x, memory),
        outputs=(*mixed, memory),
        weights=weights,
        attributes=attributes,
    )


def mix_time(spec: Wkv, at: str, x: Tensor) -> list[Op]:
    """RWKV-7's time mixing.

    Six mixes with the token before; r, k and v from full matrices; decay, rate, a share of the first layer's values,
    and a gate from pairs of small ones; the state's update; a norm of each head; the gate; and the output.
    """
    module, hidden = spec.at, nn.width(x)
    mixed = shift(f"{at}.shift", x, *(f"{module}.x_{part}" for part in "rwkvag"))
    r_in, w_in, k_in, v_in, a_in, g_in = mixed.outputs[:-1]
    ops = [mixed]
    for part, read in (("r", r_in), ("k", k_in), ("v", v_in)):
        ops.append(nn.linear(f"{at}.{part}_proj", read, hidden, f"{module}.{part}_proj"))
    r, k, v = (nn.output(op) for op in ops[1:])
    small = [("w", w_in, spec.decay_rank, "tanh"), ("a", a_in, spec.rate_rank, "")]
    small += [("v", v_in, spec.value_rank, "")] if spec.value_rank else []
    made = []
    for part, read, rank, function in (*small, ("g", g_in, spec.gate_rank, "sigmoid")):
        lora = f"{module}.{part}_lora.lora"
        ops.append(nn.linear(f"{at}.{part}_down", read, rank, f"{lora}.0"))
        if function:
            ops.append(nn.activation(f"{at}.{part}_act", ops, function))
        ops.append(nn.linear(f"{at}.{part}_up", ops, hidden, f"{lora}.2", bias=part != "g"))
        made.append(nn.output(ops))
    steering, gate = made[:-1], made[-1]
    heads = hidden // spec.head_dim
    memory = nn.tensor(f"{at}.state", x.shape[0], heads, spec.head_dim, spec.head_dim, role="state")
    weights = tuple(nn.weight(f"{module}.{name}", hidden) for name in ("k_k", "k_a", "r_k"))
    attributes = {
        "inner": hidden, "state": spec.head_dim, "conv_kernel": 0, "heads": heads, "groups": heads, "version": 7,
    }  # fmt: skip
    ops.append(_scan(at, (v, r, k, *steering, memory), weights, attributes))
    ops.append(nn.norm(f"{at}.out_norm", ops, "layer", f"{module}.g_norm", bias=True))
    ops.append(nn.multiply(f"{at}.gate", ops, gate))
    return [*ops, nn.linear(f"{at}.o_proj", ops, hidden, f"{module}.o_proj")]


def scan(spec: Mamba, at: str, x: Tensor) -> list[Op]:
    return _scan2(spec, at, x) if spec.heads else _scan1(spec, at, x)


def _scan1(spec: Mamba, at: str, x: Tensor) -> list[Op]:
    """in_proj → causal conv → (dt, B, C) → scan → gate → out_proj."""
    batch, tokens = x.shape[0], x.shape[1]
    inner, rank, state = spec.inner, spec.rank, spec.state
    both = nn.linear(f"{at}.in_proj", x, 2 * inner, f"{spec.at}.in_proj", bias=spec.bias)
    halves = nn.split(f"{at}.halves", both, x=(batch, inner, tokens), gate=(batch, tokens, inner))
    conv = _conv(at, halves.outputs[0], spec.kernel, f"{spec.at}.conv1d", bias=spec.conv_bias)
    active = nn.activation(f"{at}.conv_act", conv, spec.function)
    rows = nn.view(f"{at}.conv_rows", active, batch, tokens, inner)
    ops = [both, halves, conv, active, rows]
    ops.append(nn.linear(f"{at}.x_proj", rows, rank + 2 * state, f"{spec.at}.x_proj"))
    parts = nn.split(f"{at}.parts", ops, dt=(batch, tokens, rank), b=(batch, tokens, state), c=(batch, tokens, state))
    ops.append(parts)
    dt, b, c = parts.outputs
    if spec.normed:
        norms = [
            nn.norm(f"{at}.{name}_norm", part, "rms", f"{spec.at}.{name}_layernorm")
            for name, part in (("dt", dt), ("b", b), ("c", c))
        ]
        ops += norms
        dt, b, c = (nn.output(op) for op in norms)
    step = nn.linear(f"{at}.dt_proj", dt, inner, f"{spec.at}.dt_proj", bias=True)
    softened = nn.activation(f"{at}.softplus", step, "softplus")
    weights = (nn.weight(f"{spec.at}.A_log", inner, state), nn.weight(f"{spec.at}.D", inner))
    memory = nn.tensor(f"{at}.state", batch, inner, state, role="state")
    inputs = (nn.output(rows), nn.output(softened), b, c, memory)
    attributes = {
        "inner": inner, "state": state, "conv_kernel": spec.kernel, "heads": inner, "groups": 1, "version": 1,
        "written": "tokens",
    }  # fmt: skip
    ops += [step, softened, _scan(at, inputs, weights, attributes)]
    return [*ops, *_gated(at, nn.output(ops), halves.outputs[1], spec.function), _out(spec, at, x)]


def _scan2(spec: Mamba, at: str, x: Tensor) -> list[Op]:
    """One projection gives gate, x, B, C and dt; the convolution runs over x, B and C; a gated RMS norm ends it."""
    batch, tokens = x.shape[0], x.shape[1]
    shared = spec.groups * spec.state
    channels = spec.inner + 2 * shared
    both = nn.linear(f"{at}.in_proj", x, spec.inner + channels + spec.heads, f"{spec.at}.in_proj", bias=spec.bias)
    parts = nn.split(f"{at}.parts", both, gate=(batch, tokens, spec.inner), xbc=(batch, channels, tokens),
        dt=(batch, tokens, spec.heads),
    )  # fmt: skip
    gate, xbc, dt = parts.outputs
    conv = _conv(at, xbc, spec.kernel, f"{spec.at}.conv1d", bias=spec.conv_bias)
    active = nn.activation(f"{at}.conv_act", conv, spec.function)
    groups = nn.split(f"{at}.groups", active, x=(batch, tokens, spec.inner), b=(batch, tokens, shared),
        c=(batch, tokens, shared),
    )  # fmt: skip
    per_head = ("A_log", "D", "dt_bias")
    weights = tuple(nn.weight(f"{spec.at}.{name}", spec.heads) for name in per_head)
    head_dim = spec.inner // spec.heads
    memory = nn.tensor(f"{at}.state", batch, spec.heads, head_dim, spec.state, role="state")
    attributes = {
        "inner": spec.inner, "state": spec.state, "conv_kernel": spec.kernel, "heads": spec.heads,
        "groups": spec.groups, "version": 2, "chunk": spec.chunk, "written": "chunks",
    }  # fmt: skip
    scanned = _scan(at, (groups.outputs[0], dt, *groups.outputs[1:], memory), weights, attributes)
    gated = _gated(at, nn.output(scanned), gate, spec.function)
    normed = nn.norm(f"{at}.out_norm", gated, "rms", f"{spec.at}.norm")
    last = nn.linear(f"{at}.out_proj", normed, nn.width(x), f"{spec.at}.out_proj", bias=spec.bias)
    return [both, parts, conv, active, groups, scanned, *gated, normed, last]


def _conv(at: str, x: Tensor, kernel: int, module: str, *, bias: bool) -> Op:
    """Depthwise and causal: the last `kernel − 1` inputs are kept for the next step, so the length stays."""
    channels = nn.channels_of(x)
    shape = nn.ConvFilter(features=channels, kernel=(kernel,), strides=(1,), padding=(kernel - 1,), groups=channels)
    op = nn.convolution(f"{at}.conv", x, shape, module, bias=bias)
    memory = nn.tensor(f"{at}.conv_state", x.shape[0], channels, kernel - 1, role="state")
    y = replace(nn.output(op), shape=x.shape)
    return replace(op, inputs=(x, memory), outputs=(y, memory), attributes={**op.attributes, "causal": True})


def _scan(at: str, inputs: tuple[Tensor, ...], weights: tuple[Tensor, ...], attributes: Mapping[str, Any]) -> Op:
    """The state is read and written: it stands among the inputs and the outputs."""
    y = nn.tensor(f"{at}.scan", *inputs[0].shape)
    return Op(
        name=f"{at}.scan",
        kind="ssm_scan",
        inputs=inputs,
        outputs=(y, inputs[-1]),
        weights=weights,
        attributes=attributes,
    )


def _gated(at: str, y: Tensor, gate: Tensor, function: str) -> list[Op]:
    active = nn.activation(f"{at}.gate_act", gate, function)
    return [active, nn.multiply(f"{at}.gate", y, active)]


def _out(spec: Mamba, at: str, x: Tensor) -> Op:
    gated = nn.tensor(f"{at}.gate", x.shape[0], x.shape[1], spec.inner)
    return nn.linear(f"{at}.out_proj", gated, nn.width(x), f"{spec.at}.out_proj", bias=spec.bias)
