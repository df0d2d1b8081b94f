"""The published measurement nearest to a question: same model, device and sizes, and as near an engine as there is.

Only what can be compared counts. Two times can be compared if the model, the device, the batch and the other sizes are
the same, the weights take about as many bits and the products are computed in the same kind of number.
"""

from dataclasses import field

from inferometer.core.dtypes import dtype
from inferometer.core.frozen import frozen
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.names import same_models
from inferometer.known.atlas.shipped import tables_with

_SIZE = 0.05  # prompts of 1,023 and 1,024 tokens are one size
_BITS = 0.15  # q4_0 and q4_k are one size too
_CONTEXT = 512  # tokens in the cache that hardly change a decode step
_KINDS = {"bf16": "f16", "tf32": "f32", "i16": "f16"}  # formats that the same units compute at about the same speed


@frozen
class AtlasComparison:
    """What a published measurement is to be compared with: one phase of a question."""

    model: str
    device: str
    quantity: str
    engine: str | None = None
    weights: str | None = None
    activations: str | None = None
    computed: frozenset[str] = field(default_factory=frozenset)  # formats of products; none if it is not known
    count: int = 1
    batch: int = 1
    image: int | None = None
    prompt: int | None = None
    generate: int | None = None
    context: float | None = None  # in the cache, mean over the measured steps


def nearest_published(asked: AtlasComparison) -> PublishedMeasurement | None:
    """The best of those that can be compared: the same engine first, then the same formats, then the newest."""
    rows = _with_all_cores(_rows(asked.model, asked.device, quantity=asked.quantity, count=asked.count))
    comparable = [row for row in rows if _same_sizes(row, asked) and _same_formats(row, asked)]
    return min(comparable, key=lambda row: _distance(row, asked)) if comparable else None


def count_published(model: str, device: str) -> int:
    """How many figures of a model on a device there are, under whatever conditions."""
    return len(_rows(model, device))


def _rows(model: str, device: str, **wanted: str | int) -> tuple[PublishedMeasurement, ...]:
    names = same_models(model)
    parts = (table.where(model=names, device=device, part=None, **wanted) for table in tables_with(names, device))
    return tuple(row for part in parts for row in part.rows())


def _with_all_cores(rows: tuple[PublishedMeasurement, ...]) -> list[PublishedMeasurement]:
    """Rows that had the most of a device that anybody gave a model: all cores of an NPU, all threads of a CPU."""
    most: dict[str, float] = {}
    for row in rows:
        most[row.device_published] = max(most.get(row.device_published, 0), _share(row))
    return [row for row in rows if _share(row) == most[row.device_published]]


def _share(row: PublishedMeasurement) -> float:
    """What tells rows of one device apart: threads on a CPU; else cores, which are all of them where none are said."""
    stated = row.settings.get("threads", "0") if row.unit == "cpu" else row.settings.get("cores", "inf")
    return float(stated) if stated == "inf" or stated.isdecimal() else 0


def _same_sizes(row: PublishedMeasurement, asked: AtlasComparison) -> bool:
    if row.batch != asked.batch or row.input is not None:
        return False
    if row.quantity == "forward":
        return row.image == asked.image and (asked.image is not None or _near(row.prompt, asked.prompt))
    if row.quantity == "prefill":
        return _near(row.prompt, asked.prompt) and not row.context
    if row.quantity in {"request", "ttft", "tpot"}:
        return _near(row.prompt, asked.prompt) and _near(row.generate, asked.generate)
    return row.quantity == "decode" and _near_context(row, asked.context)


def _near(one: float | None, other: float | None) -> bool:
    return one is not None and other is not None and abs(one / other - 1) <= _SIZE


def _near_context(row: PublishedMeasurement, asked: float | None) -> bool:
    """A context that was not stated is taken as short, which benchmarks of a single request mostly are."""
    mean = (row.context or 0) + (row.generate or 0) / 2
    return asked is None or abs(mean - asked) <= max(_CONTEXT, 0.25 * asked)


def _same_formats(row: PublishedMeasurement, asked: AtlasComparison) -> bool:
    if row.weights is None or asked.weights is None:
        return False
    computed = {_KINDS.get(name, name) for name in asked.computed}
    if row.activations is not None and computed and _KINDS.get(row.activations, row.activations) not in computed:
        return False
    if "autocast" in row.settings:
        return True  # stored in one format and computed in another: only the second decides
    ratio = float(dtype(row.weights).bits / dtype(asked.weights).bits)
    if row.quantity == "forward" and ratio < 1 and (row.engine, row.weights in asked.computed) == (asked.engine, True):
        return True  # an engine that computes in fewer bits than a model states has converted its weights
    return abs(ratio - 1) <= _BITS


def _distance(row: PublishedMeasurement, asked: AtlasComparison) -> tuple[object, ...]:
    family = (asked.engine or "").partition("-")[0]
    engine = 0 if row.engine == asked.engine else 1 if family and (row.engine or "").startswith(family) else 2
    newest = tuple(-part for part in _numbers(row.date)), tuple(-part for part in _numbers(row.version))
    stored = asked.activations is not None and row.activations != asked.activations
    return engine, row.weights != asked.weights, stored, *newest


def _numbers(text: str | None) -> tuple[int, ...]:
    """Dates and versions as numbers, so that 2.10 is later than 2.9; none at all is the oldest."""
    parts = (text or "").replace("-", ".").split(".")
    return tuple(int("".join(filter(str.isdecimal, part)) or 0) for part in parts) if text else (0,)
