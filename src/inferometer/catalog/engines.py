"""Engine rows → `EngineDescriptor`, and the one rule for which engine answers where none is named.

Ours are `data/engines/NAME.toml`; a user's catalog folder may have more. A plug-in of the group `inferometer.runtimes`
brings its own: the object behind its entry point has an attribute `engine`, a descriptor or the path of such a file.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, get_args

from inferometer import settings
from inferometer.catalog.files import row_named, rows_of
from inferometer.catalog.load import CatalogRow, read_rows
from inferometer.core.device import UNITS
from inferometer.core.dtype import dtype
from inferometer.core.engine import (
    AttentionPath,
    CachePath,
    EngineDescriptor,
    Execution,
    Fusion,
    LogitsPath,
    Overheads,
    Probing,
    RuntimeEffects,
    SmallFormats,
    Use,
)
from inferometer.core.graph import is_generative
from inferometer.core.workload import Precision
from inferometer.errors import DomainError, PluginError, UnknownNameError, same_but_for_case
from inferometer.plugins import Listed, listed, load_listed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from inferometer.core.device import Device
    from inferometer.core.graph import Graph

_GROUP = "inferometer.runtimes"
_LAST = 1000  # behind every engine that has a rank
_BIG = frozenset({"server", "workstation", "desktop"})  # kinds of machine whose GPU has CUDA graphs, if not Apple's
_EFFECTS = (
    "title", "execution", "fusion", "fused", "attention", "cache", "cache_moves", "repeat_moves", "passes",
    "arithmetic", "instead", "expanded", "logits", "first_run", "notes", *UNITS,
)  # fmt: skip
_KEYS = (
    "opens", "packages", "module", "extra", "rank", "first_for", "small", "calibrated", "compiled_by", *_EFFECTS,
)  # fmt: skip


def engine(name: str) -> EngineDescriptor:
    """The engine of that name, in any case of letters: ours, or a plug-in's."""
    known = known_engine(name)
    if known is not None:
        return known
    plugins = [plugin.name for plugin in listed(_GROUP)]
    same = same_but_for_case(name, (*rows_of("engines").by_name, *plugins))
    if same is not None and same != name:
        return engine(same)
    if name in plugins:
        listing = f"The plug-in {name} has no attribute `engine`: it can be run, and not predicted."
        raise UnknownNameError("engine descriptor", name, (), listing=listing)
    names = tuple(dict.fromkeys((*rows_of("engines").by_name, *plugins)))
    raise UnknownNameError("runtime", name, names, listing=f"Known: {', '.join(names)}.")


def known_engine(name: str) -> EngineDescriptor | None:
    """As `engine`, and None for a name that nobody describes."""
    return _known(name, settings.catalog_folders())


def engine_or_ideal(name: str | None) -> EngineDescriptor:
    """For advice on a run: an engine that nobody describes counts as one that adds nothing."""
    return (known_engine(name) if name else None) or engine("ideal")


def engines() -> Mapping[str, EngineDescriptor]:
    """Every engine by name, plug-ins last. One that cannot be loaded, or has no descriptor, is left out."""
    return _every(settings.catalog_folders())


# Cached by the folders the user names, which may have rows; what is installed does not change while we run.


@cache
def _known(name: str, folders: tuple[Path, ...]) -> EngineDescriptor | None:  # noqa: ARG001 - they decide on the rows
    row = row_named("engines", name)
    if row is not None:
        return _descriptor(row)  # ours are found without a look at what is installed
    return next((_of_plugin(plugin) for plugin in listed(_GROUP) if plugin.name == name), None)


@cache
def _every(folders: tuple[Path, ...]) -> Mapping[str, EngineDescriptor]:  # noqa: ARG001 - as above
    described: dict[str, EngineDescriptor] = {name: engine(name) for name in rows_of("engines").by_name}
    for plugin in listed(_GROUP):
        with suppress(PluginError):  # `inferometer runtimes` says what is wrong with it
            known = known_engine(plugin.name)
            if known is not None:
                described[plugin.name] = known
    return MappingProxyType(described)


def _of_plugin(plugin: Listed) -> EngineDescriptor | None:
    given = getattr(load_listed(plugin), "engine", None)
    described = read_engine(Path(given), plugin.name) if isinstance(given, str | Path) else given
    if described is not None and getattr(described, "name", None) != plugin.name:
        raise PluginError(
            f"The plug-in {plugin.name!r} of package {plugin.package} has an `engine` that does not describe it: "
            f"{described!r}.",
            remedy="Make it an EngineDescriptor of the same name, or the path of a TOML file with one.",
        )
    return described


def read_engine(file: Path, name: str) -> EngineDescriptor:
    """The row `[engines.NAME]` of a file."""
    rows = read_rows([file], "engines").by_name
    if name not in rows:
        raise UnknownNameError(f"engine in {file.name}", name, rows, listing=f"It has: {', '.join(rows) or 'none'}.")
    return _descriptor(rows[name])


# which engine answers where none is named


def ranked_engines(device: Device, *, makes_tokens: bool, format: str | None = None) -> tuple[str, ...]:  # noqa: A002 - what formats are called everywhere
    """The engines for such a model on such a device, the likeliest first.

    Compiled PyTorch on a data centre's or a desk's GPU, but not on Apple's, which has no CUDA graphs. Elsewhere
    llama.cpp for models that make tokens and ONNX Runtime for others; an NPU or TPU, whose software has no row, is
    taken as ideal. Engines that open the `format` of a file come before those that do not; a bare config is no file,
    since its weights are made up in whatever format an engine opens.
    """
    use = _use(device, makes_tokens=makes_tokens)
    file = None if format == "config" or use == "accelerator" else format
    return _ranked(use, file, settings.catalog_folders())


@cache
def _ranked(use: Use, file: str | None, folders: tuple[Path, ...]) -> tuple[str, ...]:  # noqa: ARG001 - as above
    """Without a file no plug-in is looked for: listing what is installed takes longer than a prediction."""

    def order(each: EngineDescriptor) -> tuple[bool, bool, int, int]:
        place = each.opens.index(file) if file in each.opens else 0
        return (file not in each.opens, use not in each.first_for, place, _LAST if each.rank is None else each.rank)

    candidates = [engine(name) for name in rows_of("engines").by_name] if file is None else engines().values()
    able = (each for each in candidates if each.rank is not None or use in each.first_for or file in each.opens)
    return tuple(each.name for each in sorted(able, key=order))


def _use(device: Device, *, makes_tokens: bool) -> Use:
    if device.unit == "gpu" and device.vendor != "Apple" and device.kind in _BIG:
        return "gpu"
    if device.unit not in {"cpu", "gpu"}:
        return "accelerator"
    return "tokens" if makes_tokens else "arrays"


def default_runtime(device: Device, graph: Graph | None = None, *, format: str | None = None) -> str:  # noqa: A002 - as above
    """What such a model mostly runs in on such a device. A graph that was read from a file says its format."""
    if graph is None:
        return ranked_engines(device, makes_tokens=True)[0]
    stored = format or graph.metadata.get("format")
    return ranked_engines(device, makes_tokens=is_generative(graph), format=stored)[0]


# what a runtime does to a graph


def runtime_effects(name: str) -> RuntimeEffects:
    """The effects of the runtime of that name, matched exactly."""
    return engine(name).effects


def require_effects(runtime: RuntimeEffects | str) -> RuntimeEffects:
    if isinstance(runtime, RuntimeEffects):
        return runtime
    if not isinstance(runtime, str):
        raise DomainError(f"A runtime is a name or a RuntimeEffects, and {runtime!r} is neither.")
    return runtime_effects(runtime)


# rows → values


def _descriptor(row: CatalogRow) -> EngineDescriptor:
    row.allow(*_KEYS)
    small, probing = row.inner("small"), row.inner("calibrated")
    small.allow("narrow", "byte", "kv")
    probing.allow("format", "by_weights", *UNITS)
    stated = {key: dtype(small.required_text(key)).name for key in ("narrow", "byte", "kv") if key in small.fields}
    uses = row.names("first_for")
    return EngineDescriptor(
        effects=_effects(row),
        opens=row.names("opens"),
        packages=row.names("packages"),
        module=row.text("module"),
        extra=row.text("extra"),
        rank=row.whole("rank"),
        first_for=frozenset(_one_of(row, "first_for", Use, use) for use in uses),
        small=SmallFormats(**stated),
        calibrated={unit: _one_of(probing, unit, Probing) for unit in UNITS if unit in probing.fields},
        calibrated_in=probing.text("format"),
        by_weights=_by_weights(probing),
        compiled_by=row.text("compiled_by"),
    )


def _by_weights(row: CatalogRow) -> Precision | None:
    if "by_weights" not in row.fields:
        return None
    formats = row.inner("by_weights")
    formats.allow("activations", "kv")
    return Precision(activations=formats.required_text("activations"), kv=formats.required_text("kv"))


def _effects(row: CatalogRow) -> RuntimeEffects:
    return RuntimeEffects(
        name=row.name,
        title=row.required_text("title"),
        execution=_one_of(row, "execution", Execution),
        fusion=_one_of(row, "fusion", Fusion),
        fused=frozenset(row.names("fused")),
        attention=_one_of(row, "attention", AttentionPath),
        cache=_one_of(row, "cache", CachePath),
        cache_moves=row.number("cache_moves", "1"),
        repeat_moves=row.number("repeat_moves", "1"),
        passes=_passes(row.inner("passes")),
        arithmetic=_arithmetic(row.inner("arithmetic")),
        instead=_arithmetic(row.inner("instead")),
        expanded=frozenset(dtype(name).name for name in row.names("expanded")),
        logits=_one_of(row, "logits", LogitsPath),
        overheads={unit: _overheads(row.inner(unit)) for unit in UNITS if unit in row.fields},
        first_run=row.number("first_run", "s"),
        notes=row.text("notes"),
    )


def _one_of(row: CatalogRow, key: str, allowed: object, stated: str | None = None) -> Any:
    """What the row states under the key, one of a Literal's words; without a word the first of them."""
    words = get_args(allowed)
    chosen = stated or row.text(key) or words[0]
    if chosen not in words:
        raise row.place.at(key).error(f"is {chosen!r}.", remedy=f"Known: {', '.join(words)}.")
    return chosen


def _passes(row: CatalogRow) -> dict[str, int]:
    return {key: row.whole(key) or 1 for key in row.fields if key != "source"}


def _arithmetic(row: CatalogRow) -> dict[str, tuple[str, ...]]:
    formats = {}
    for key in row.fields:
        if key == "source":
            continue
        kind, _, name = key.rpartition(":")
        full = f"{kind}:{dtype(name).name}" if kind else dtype(name).name
        formats[full] = tuple(dtype(entry).name for entry in row.names(key))
    return formats


def _overheads(row: CatalogRow) -> Overheads:
    row.allow("kernel", "host", "step", "captured", "reserve")
    return Overheads(
        kernel_s=row.number("kernel", "s"),
        host_s=row.number("host", "s"),
        step_s=row.number("step", "s"),
        captured=frozenset(row.names("captured")),
        reserve_bytes=row.number("reserve", "B"),
    )
