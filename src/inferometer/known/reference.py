"""Reference rows that describe rather than price: the memory hierarchy, and what number formats are for."""

from collections.abc import Mapping

from inferometer.core.device import Sourced
from inferometer.core.frozen import frozen
from inferometer.known.files import all_of, one_named
from inferometer.known.load import CatalogRow


@frozen
class MemoryLevel:
    """A typical level of the memory hierarchy: ranges, not a device's figures."""

    name: str
    title: str
    latency_low_s: Sourced | None = None
    latency_high_s: Sourced | None = None
    bandwidth_low_bytes_per_s: Sourced | None = None
    bandwidth_high_bytes_per_s: Sourced | None = None


@frozen
class DTypeFacts:
    """`perplexity_lost` is what one named model loses with its weights so: it orders formats."""

    name: str
    title: str
    use: str | None = None
    exponent_bits: int | None = None
    mantissa_bits: int | None = None
    largest: Sourced | None = None
    smallest_normal: Sourced | None = None
    stored: str | None = None
    perplexity_lost: Sourced | None = None


def memory_levels() -> Mapping[str, MemoryLevel]:
    return all_of("levels", _level)


def memory_level(name: str) -> MemoryLevel:
    return one_named("levels", name, _level, what="memory level")


def dtype_facts() -> Mapping[str, DTypeFacts]:
    return all_of("dtypes", _facts)


def _level(row: CatalogRow) -> MemoryLevel:
    return row.value(MemoryLevel)


def _facts(row: CatalogRow) -> DTypeFacts:
    return row.value(DTypeFacts, "max", largest=row.number("max", "1"))
