"""From the names that OpenVINO's converter takes from a traced module to the layers of the model's graph.

`__module.model.layers.3.self_attn.q_proj/aten::linear/MatMul` is `layers.3.attn.q_proj`; the modules before `layers`
are those that the exporter put round the model.
"""

from __future__ import annotations

import re

_NAME = re.compile(r"__module\.(?:model\.)*(?P<path>[^/]*)(?:/(?P<operation>.*))?$")
_LAYER = re.compile(r"layers\.(?P<number>\d+)\.?(?P<module>.*)$")
_OUTSIDE = {"embed_tokens": "embed", "norm": "final_norm", "lm_head": "lm_head"}
_MODULES = {
    "input_layernorm": "attn.norm", "post_attention_layernorm": "mlp.norm", "mlp.act_fn": "mlp.act", "mlp": "mlp.mul",
}  # fmt: skip
_ROTARY = re.compile(r"aten::(mul|cat|neg|slice|add|split)\b")


def layer_of(name: str) -> str | None:
    """The layer that an operation of the network belongs to; None for one that serves the whole model."""
    found = _NAME.match(name)
    if found is None:
        return None
    path, operation = found["path"], found["operation"] or ""
    inside = _LAYER.match(path)
    if inside is None:
        return _OUTSIDE.get(path)
    return f"layers.{inside['number']}.{_part(inside['module'], operation)}"


def _part(module: str, operation: str) -> str:
    if not module:  # the sums of the layer itself: after attention, then after the MLP
        return "mlp.residual" if operation.endswith("_1") else "attn.residual"
    if module == "self_attn":
        return "attn.rotary" if _ROTARY.match(operation) else "attn.attention"
    return _MODULES.get(module) or module.replace("self_attn.", "attn.")


def layers_of(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(layer for name in names if (layer := layer_of(name)) is not None))
