"""State-space mixers: Mamba's selective scan and Mamba-2's."""

from dataclasses import replace

from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.huggingface import nn


@frozen
class Mamba:
    """`rank` is that of version 1's time step; `heads` and `groups` are version 2's, and 0 in version 1.

    `normed`: dt, B and C pass an RMS norm first (Jamba).
    """

    at: str
    inner: int
    state: int
    kernel: int
    rank: int = 0
    heads: int = 0
    groups: int = 0
    bias: bool = False
    conv_bias: bool = True
    normed: bool = False
    function: str = "silu"


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
    attributes = {"inner": inner, "state": state, "conv_kernel": spec.kernel, "heads": inner, "groups": 1, "version": 1}
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
        "groups": spec.groups, "version": 2,
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


def _scan(at: str, inputs: tuple[Tensor, ...], weights: tuple[Tensor, ...], attributes: dict[str, int]) -> Op:
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
