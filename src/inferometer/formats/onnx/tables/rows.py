"""The few shapes that rows of the tables have."""

from typing import Any

from inferometer.formats.onnx.lower import layers as lower_l
from inferometer.formats.onnx.rules.common import nothing_known
from inferometer.formats.onnx.rules.windows import pool as pool_rule
from inferometer.formats.onnx.step import OnnxRow, Rule


def row(kind: str, infer: Rule, *, function: str = "", flops: int = 1, **more: Any) -> OnnxRow:
    """A row whose op has a function, and a cost an element other than 1, where these are given."""
    named: dict[str, Any] = {"function": function} if function else {}
    counted = {"flops_per_element": flops} if flops != 1 else {}
    return OnnxRow(kind=kind, infer=infer, attributes={**named, **counted, **more.pop("attributes", {})}, **more)


def custom(reason: str, rule: Rule = nothing_known) -> OnnxRow:
    """An operator whose work cannot be read off the file."""
    return OnnxRow(kind="custom", infer=rule, attributes={"reason": reason}, folds=False)


def pool(function: str, rule: Rule = pool_rule) -> OnnxRow:
    return OnnxRow(kind="pool", infer=rule, lower=lower_l.lower_pool(function), least=1)
