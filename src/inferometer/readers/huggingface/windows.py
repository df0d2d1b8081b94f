"""Which layers look at a sliding window only."""

from inferometer.readers.huggingface.config import Config
from inferometer.readers.huggingface.family import Family

__all__ = ["windows_of"]


def windows_of(family: Family, config: Config, count: int) -> list[int | None]:
    """The window of each layer, or None where it attends to everything. A window counts the token itself.

    Where attention is not causal the config's window is split over both sides, and the token itself comes on top.
    `layer_types` in a config says it layer by layer; without it the family's pattern holds.
    """
    window = config.whole("sliding_window", 0, least=0)
    if not window or not family.window:
        return [None] * count
    if not family.causal:
        window = 2 * (window // 2) + 1
    types = config.get("layer_types")
    if types is not None:
        said = config.texts("layer_types")
        if len(said) != count:
            raise config.error("layer_types", f"has {len(said)} entries for {count} layers")
        return [window if entry == "sliding_attention" else None for entry in said]
    full = _full_layers(family, config, count)
    return [None if index in full else window for index in range(count)]


def _full_layers(family: Family, config: Config, count: int) -> frozenset[int]:
    match family.window:
        case "all":
            return frozenset()
        case "after":
            return frozenset(range(min(config.whole("max_window_layers", count, least=0), count)))
        case "first":
            return frozenset(range(0, count, _period(family, config)))
        case _:
            period = _period(family, config)
            return frozenset(range(period - 1, count, period))


def _period(family: Family, config: Config) -> int:
    period: int = config.whole("window_period", family.window_period)
    return period
