"""The operator table: which ATen operator is what in the graph's vocabulary. The rows are data, in `aten.toml`."""

import tomllib
from collections.abc import Mapping
from dataclasses import field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from inferometer.core.frozen import frozen

_RESERVED = frozenset({"kind", "form", "ops", "flops", "reason"})

# Quantisation made explicit by torch's own quantiser; the operators stand in a namespace of their own.
_QUANTIZED = "quantized_decomposed"


@frozen
class AtenRow:
    """`attributes` go onto the op as they are; `form` is read by the converter of that name."""

    kind: str
    form: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def but(self, kind: str | None = None, **attributes: Any) -> "AtenRow":
        """The row of another kind, or with further attributes."""
        return replace(self, kind=kind or self.kind, attributes={**self.attributes, **attributes})


@cache
def rows() -> Mapping[str, AtenRow]:
    """Every operator that is known, by its name without namespace and overload."""
    text = files(__package__).joinpath("aten.toml").read_text(encoding="utf-8")
    table: dict[str, AtenRow] = {}
    for group in tomllib.loads(text)["group"]:
        for name in group["ops"].split():
            table[name] = _row(name, group)
    return table


def row_of(target: str) -> AtenRow:
    """The row of `aten.linear.default` or `quantized_decomposed.quantize_per_tensor.default`.

    An operator that is not known is custom, with a reason that names it.
    """
    namespace, _, rest = target.partition(".")
    name = base_name(target)
    if namespace == "aten" and name in rows():
        return rows()[name]
    if namespace == _QUANTIZED and rest.startswith(("quantize", "dequantize")):
        kind = rest.partition("_")[0]
        return AtenRow(kind=kind, form="dequantize" if kind == "dequantize" else None)
    if namespace in {"higher_order", "inferometer"}:
        return AtenRow(kind="control", form=f"{namespace}.{name}")
    return AtenRow(kind="custom", attributes={"reason": f"{target} is not a known operator"})


def base_name(target: str) -> str:
    """`aten.add_.Tensor` → `add`. An operator in place is the one without the underscore."""
    parts = target.split(".")
    name = parts[1] if len(parts) > 1 else target
    if name in rows() or name.startswith("__"):
        return name
    return name.removesuffix("_") if name.removesuffix("_") in rows() else name


def _row(name: str, group: Mapping[str, Any]) -> AtenRow:
    kind = group["kind"]
    attributes = {key: value for key, value in group.items() if key not in _RESERVED}
    if kind in {"elementwise", "activation", "reduce", "copy"}:
        attributes.setdefault("function", name.strip("_"))
    if "flops" in group:
        attributes["flops_per_element"] = group["flops"]
    if "reason" in group:
        attributes["reason"] = f"{name}: {group['reason']}"
    return AtenRow(kind=kind, form=group.get("form"), attributes=attributes)
