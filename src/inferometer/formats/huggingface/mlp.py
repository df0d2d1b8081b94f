"""Feed-forward parts: plain and gated MLPs, and mixtures of experts."""

from inferometer.core.frozen import frozen
from inferometer.core.graph import Op, Tensor
from inferometer.formats.huggingface import nn


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
    ops = [_router(spec, at, x)]
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


def _router(spec: Experts, at: str, x: Tensor) -> Op:
    weights = [nn.weight(f"{spec.router}.weight", spec.experts, nn.width(x))]
    if spec.router_bias:
        weights.append(nn.weight(f"{spec.router}.bias", spec.experts))
    if spec.correction:
        weights.append(nn.weight(spec.correction, spec.experts))
    name = f"{at}.router"
    return Op(
        name=name,
        kind="moe_router",
        inputs=(x,),
        outputs=(nn.tensor(name, *x.shape[:-1], spec.top_k),),
        weights=tuple(weights),
        attributes={"experts": spec.experts, "top_k": spec.top_k},
    )


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
