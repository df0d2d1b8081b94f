"""Our own form: one row a figure, the fields of `PublishedMeasurement` as columns.

`device`, `model`, `quantity`, `figure` and `figure_unit` are needed, and any other column may be there. It is what
`inferometer atlas --format csv` writes and `inferometer atlas add` reads.
"""

from collections.abc import Iterator
from typing import Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import nearest
from inferometer.known.atlas.form import CsvLine, LineError, catalog_device, published_form
from inferometer.known.atlas.measurement import QUANTITIES, PublishedMeasurement, unit_named
from inferometer.known.atlas.names import match_model
from inferometer.known.atlas.table import parse_settings

_WHOLE = ("count", "batch", "image", "prompt", "generate", "context", "concurrency")
_REAL = ("low", "high", "memory_bytes", "power_w", "energy_j", "parameters", "macs", "weight_bytes")
_TEXT = ("place", "date", "unit", "part", "engine_published", "engine", "version", "precision_published", "input",
         "spread")  # fmt: skip
COLUMNS = (
    "device", "model", "engine", "quantity", "figure", "figure_unit", "unit", "count", "batch", "image", "prompt",
    "generate", "context", "concurrency", "weights", "activations", "version", "settings", "date",
)  # fmt: skip
OWN = "own"


@published_form("tidy", "Inferometer's own", "device", "model", "quantity", "figure", "figure_unit")
def tidy(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, model = line.required("device"), line.required("model")
    quantity = line.required("quantity").casefold()
    if quantity not in QUANTITIES:
        near = nearest(quantity, QUANTITIES, count=1)
        hint = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(QUANTITIES)}."
        raise LineError(f"there is no quantity {quantity!r}.", remedy=hint)
    facts: dict[str, Any] = {name: line.whole(name) for name in _WHOLE}
    facts |= {name: line.value(name) for name in _REAL} | {name: line.text(name) for name in _TEXT}
    facts["count"] = facts["count"] or 1
    for name in ("weights", "activations"):
        stated = line.text(name)
        facts[name] = dtype(stated).name if stated else None  # an unknown format is an error with suggestions
    if quantity == "prefill" and not facts["prompt"]:
        raise LineError("a prefill needs `prompt`, the tokens that it reads.")
    yield PublishedMeasurement(
        dataset=line.text("dataset") or OWN,
        source=line.text("source") or OWN,
        file=line.file,
        line=line.number,
        device_published=line.text("device_published") or device,
        device_spelling=device if line.text("device_published") not in {None, device} else None,
        device=catalog_device(device, facts["unit"]),
        model_published=line.text("model_published") or model,
        model_spelling=model if line.text("model_published") not in {None, model} else None,
        model=match_model(model),
        settings=parse_settings(line.text("settings")),
        quantity=quantity,
        figure=line.positive("figure"),
        figure_unit=unit_named(line.required("figure_unit")),
        **facts,
    )


FORMS = (tidy,)
