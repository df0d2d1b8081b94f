"""The operator tables: every operator as a row of data, by domain."""

from collections.abc import Mapping
from functools import cache

from inferometer.formats.onnx.step import OnnxRow

__all__ = ["domain_rows", "table"]


@cache
def table() -> Mapping[tuple[str, str], OnnxRow]:
    """(domain, operator) → row. Built when first asked for: importing a reader costs nothing."""
    from inferometer.formats.onnx.tables.microsoft import MICROSOFT, NCHWC  # noqa: PLC0415
    from inferometer.formats.onnx.tables.standard import CLASSIC, PREVIEW, STANDARD, TRAINING  # noqa: PLC0415

    by_domain = {
        "": STANDARD,
        "ai.onnx.ml": CLASSIC,
        "ai.onnx.preview": PREVIEW,
        "ai.onnx.preview.training": TRAINING,
        "com.microsoft": MICROSOFT,
        "com.microsoft.nchwc": NCHWC,
    }
    return {(domain, name): row for domain, rows in by_domain.items() for name, row in rows.items()}


def domain_rows(domain: str) -> dict[str, OnnxRow]:
    return {name: row for (owner, name), row in table().items() if owner == domain}
