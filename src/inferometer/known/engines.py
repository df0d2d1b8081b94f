"""Engine rows → `EngineDescriptor`, and the one rule for which engine answers where none is named.

Ours are `engines/*/NAME.engine.toml`, and `data/engines/NAME.toml` where nothing here runs them; a user's catalog
folder may have more. A plug-in of the group `inferometer.runtimes` brings its own: the object behind its entry point
has an attribute `engine`, a descriptor or the path of such a file.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import field, fields, replace
from functools import cache
from math import hypot
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeVar

from inferometer.core import settings
from inferometer.core.device import ENGINE_SETS, UNITS, Device
from inferometer.core.dtypes import dtype
from inferometer.core.engine import (
    DYNAMIC,
    EngineDescriptor,
    MemoryRules,
    Overheads,
    Probing,
    RuntimeEffects,
    SchedulerRules,
    ServingRules,
    SmallFormats,
    StepCosts,
    Use,
    is_like,
    is_one_of,
)
from inferometer.core.errors import DomainError, PluginError, UnknownNameError, same_but_for_case
from inferometer.core.frozen import frozen
from inferometer.core.graph import Graph, is_generative
from inferometer.core.kept import Kept
from inferometer.core.plugins import Listed, listed, load_listed
from inferometer.core.workload import Precision
from inferometer.known.files import all_of, of_catalog, own_texts, row_named, rows_of, rows_of_users
from inferometer.known.load import CatalogRow, read_rows
from inferometer.known.serving_costs import fitted_costs, fitted_on

_Rules = TypeVar("_Rules", StepCosts, MemoryRules)
_GROUP = "inferometer.runtimes"
_LAST = 1000  # behind every engine that has a rank
_HEADS = re.compile(r"^\[engines\.\"?([^\]\".]+)\"?\]\n(.*?)(?=^\[|\Z)", re.MULTILINE | re.DOTALL)
_RANKING = re.compile(r"^(?:opens|rank|first_for|usual_on|not_on|lacks) *=.*$", re.MULTILINE)
_MADE = ("tokens", "arrays", "speech")
_BIG = frozenset({"server", "workstation", "desktop"})  # kinds of machine whose GPU has CUDA graphs, if not Apple's
_costs = Kept(1024)
_defaults: dict[tuple[Any, ...], str] = {}  # by all that decides on it: a sweep asks for each of its rows
_EFFECTS = (
    *(entry.name for entry in fields(RuntimeEffects) if entry.name not in {"name", "overheads", "sets"}),
    *UNITS, *ENGINE_SETS,
)  # fmt: skip
_PROBING = ("by_weights", "beyond_peaks", "one_build")  # a row has them in its table `calibrated`
_KEYS = (
    *_EFFECTS,
    *(entry.name for entry in fields(EngineDescriptor) if entry.name not in {"effects", "calibrated_in", *_PROBING}),
)


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


@of_catalog
def known_engine(name: str) -> EngineDescriptor | None:
    """As `engine`, and None for a name that nobody describes."""
    row = row_named("engines", name)
    if row is not None:
        return _descriptor(row)  # ours are found without a look at what is installed
    return next((_of_plugin(plugin) for plugin in listed(_GROUP) if plugin.name == name), None)


def engine_or_ideal(name: str | None) -> EngineDescriptor:
    """For advice on a run: an engine that nobody describes counts as one that adds nothing."""
    return (known_engine(name) if name else None) or engine("ideal")


@of_catalog  # what is installed does not change while we run
def engines() -> Mapping[str, EngineDescriptor]:
    """Every engine by name, plug-ins last. One that cannot be loaded, or has no descriptor, is left out."""
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

    The engine that the device's owners run, where one is known (`usual_on`), for anything but files that its converter
    does not read: all of them read ONNX. vLLM for models that make tokens on a data centre's GPU. Compiled PyTorch for
    others, and on a desk's GPU, but not on Apple's, which has no CUDA graphs. Elsewhere llama.cpp for models that make
    tokens and ONNX Runtime for others; an NPU or TPU whose software has no row is taken as ideal. Engines that open the
    `format` of a file come before the others; a bare config is no file, since its weights are made up in
    whatever format an engine opens.
    """
    use = _use(device, makes_tokens=makes_tokens)
    unfit = {each.name for each in engine_ranks() if is_one_of(device, each.not_on)}
    if use in {"served", "gpu"} and _ranked(use, None)[0] in unfit:  # a GPU that is too old for what others run
        use = "tokens" if makes_tokens else "arrays"
    file = None if format == "config" or use == "accelerator" else format
    ranked, made = _ranked(use, file), "tokens" if makes_tokens else "arrays"
    if file not in {None, "onnx"}:
        return ranked
    usual = [name for name, patterns in _usual(made) if is_one_of(device, patterns)]
    return tuple(name for name in dict.fromkeys((*usual, *ranked)) if name not in unfit)


@of_catalog
def _usual(made: str) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Engines with the devices whose owners run them, for models that make tokens or arrays, or that hear speech."""
    return tuple((each.name, each.usual_on[made]) for each in engine_ranks() if made in each.usual_on)


@of_catalog
def _ranked(use: Use, file: str | None) -> tuple[str, ...]:
    """Without a file no plug-in is looked for: listing what is installed takes longer than a prediction."""
    uses: tuple[Use, ...] = ("served", "gpu") if use == "served" else (use,)  # what serves need not run here

    def order(each: EngineDescriptor | EngineRank) -> tuple[bool, int, int, int]:
        index = each.opens.index(file) if file in each.opens else 0
        first = next((number for number, wanted in enumerate(uses) if wanted in each.first_for), len(uses))
        return (file not in each.opens, first, index, _LAST if each.rank is None else each.rank)

    candidates = engine_ranks() if file is None else engines().values()
    able = (
        each
        for each in candidates
        if each.rank is not None or not each.first_for.isdisjoint(uses) or file in each.opens
    )
    return tuple(each.name for each in sorted(able, key=order))


@frozen
class EngineRank:
    """As much of an engine as says whether it comes first."""

    name: str
    opens: tuple[str, ...] = ()
    rank: int | None = None
    first_for: frozenset[str] = frozenset()
    usual_on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    not_on: tuple[str, ...] = ()


@of_catalog
def engine_ranks() -> tuple[EngineRank, ...]:
    """Every engine of the catalog. Of our own files only the lines that matter are parsed: there are many."""
    own = [
        EngineRank(name=name, opens=tuple(stated.get("opens", ())), rank=stated.get("rank"),
                   first_for=frozenset(stated.get("first_for", ())),
                   usual_on={made: tuple(patterns) for made, patterns in stated.get("usual_on", {}).items()},
                   lacks=tuple(stated.get("lacks", ())), not_on=tuple(stated.get("not_on", ())))
        for text in own_texts("engines")
        for name, lines in _HEADS.findall(text)
        for stated in [tomllib.loads("\n".join(_RANKING.findall(lines)))]
    ]  # fmt: skip
    theirs = [
        EngineRank(
            name=each.name,
            opens=each.opens,
            rank=each.rank,
            first_for=frozenset(each.first_for),
            usual_on=each.usual_on,
            lacks=each.lacks,
            not_on=each.not_on,
        )
        for each in (engine(row.name) for row in rows_of_users("engines"))
    ]
    named = {each.name for each in theirs}
    return (*(each for each in own if each.name not in named), *theirs)


def serving_engine() -> str:
    """The engine that serves where nobody names one."""
    return next(each.name for each in engine_ranks() if "served" in each.first_for)


def _use(device: Device, *, makes_tokens: bool) -> Use:
    if device.unit == "gpu" and device.vendor != "Apple" and device.kind in _BIG:
        return "served" if makes_tokens and device.kind == "server" else "gpu"
    if device.unit not in {"cpu", "gpu"} or device.is_bare:
        return "accelerator"
    return "tokens" if makes_tokens else "arrays"


def default_runtime(device: Device, graph: Graph | None = None, *, format: str | None = None) -> str:  # noqa: A002 - as above
    """What such a model mostly runs in on such a device. A graph that was read from a file says its format."""
    if graph is None:
        return ranked_engines(device, makes_tokens=True)[0]
    stored = format or graph.metadata.get("format")
    hears = "frames" in graph.symbols and stored in {None, "config"}
    makes_tokens, folders = is_generative(graph), settings.catalog_folders()
    what = (device.unit, device.vendor, device.name, device.kind, makes_tokens, hears, stored, graph.architecture)
    if (what, folders) not in _defaults:
        of_speech = [name for name, on in _usual("speech") if is_one_of(device, on)] if hears else []
        if device.is_bare:  # what hears speech on any CPU needs a system
            of_speech = [name for name in of_speech if engine(name).runs_on(device)]
        lacking = {each.name for each in engine_ranks() if graph.architecture in each.lacks}
        ranked = ranked_engines(device, makes_tokens=makes_tokens, format=stored)
        able = (*of_speech, *(name for name in ranked if name not in lacking), ranked[0])
        _defaults[what, folders] = able[0]
    return _defaults[what, folders]


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
    small, probing, usual = row.inner("small"), row.inner("calibrated"), row.inner("usual_on")
    small.allow("narrow", "byte", "kv")
    usual.allow(*_MADE)
    probing.allow("format", *_PROBING, *UNITS)
    stated = {key: dtype(small.required_text(key)).name for key in ("narrow", "byte", "kv") if key in small.fields}
    return row.value(
        EngineDescriptor, *_KEYS,
        effects=_effects(row),
        first_for=frozenset(row.one_of("first_for", Use, use) for use in row.names("first_for")),
        usual_on={made: usual.names(made) for made in _MADE if made in usual.fields},
        small=SmallFormats(**stated),
        calibrated={unit: probing.one_of(unit, Probing) for unit in UNITS if unit in probing.fields},
        calibrated_in=probing.text("format"),
        by_weights=_by_weights(probing),
        beyond_peaks=probing.text("beyond_peaks") == "yes",
        one_build=probing.text("one_build") == "yes",
        tuned={key: row.inner("tuned").names(key) for key in _keys(row, "tuned")},
        serving=_serving(row.name, row.inner("serving")) if "serving" in row.fields else None,
    )  # fmt: skip


def _serving(name: str, row: CatalogRow) -> ServingRules:
    """Costs stand in the row; costs fitted to published figures lie in a file of their own."""
    stated = tuple(part.value(StepCosts) for part in row.inners("costs"))
    costs = sorted((*fitted_costs(name), *stated), key=lambda each: version_numbers(each.since))
    memory = sorted(map(_memory_rules, row.inners("memory")), key=lambda each: version_numbers(each.since))
    if not memory:
        raise row.place.at("memory").error("is missing.")
    return row.value(ServingRules, "memory", "costs", memory=tuple(memory), costs=tuple(costs))


def _memory_rules(row: CatalogRow) -> MemoryRules:
    return row.value(
        MemoryRules, "switched_add", "padded_input", "padded_inner",
        switched_bytes=row.required("switched_add", "B"),
        padded_to=(row.whole("padded_input") or 1, row.whole("padded_inner") or 1),
    )  # fmt: skip


@cache
def version_numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version in order, to compare two: 1.3.0rc20 → (1, 3, 0, 20). None come first."""
    return tuple(int(number) for number in re.findall(r"\d+", version)[:4])


# What costs are off by beyond their spreads, as a deviation of the logarithm, on a device that no figure was of. Costs
# that were fitted without AMD were off by a factor of 2.2 in the middle on an MI300X, eight in ten within 3.4 (Argonne,
# vLLM), and without Intel by 2.0 and 3.4 on a Max 1550. Where few devices of a maker were, one differs from the others
# by less: MLPerf's few rows of an MI325X and an MI355X are off by 1.3 and 3, though they were fitted with the MI300X.
_WELL_KNOWN = 4  # devices of a maker, from which on the fit's own spread tells of the next one
_OF_OTHER_MAKERS, _OF_FEW = 0.9, 0.5


def costs_of(rules: ServingRules, version: str | None = None, device: str = "", maker: str | None = None) -> StepCosts:
    """What holds from the newest version on that is not newer than the one asked for; of an older one the oldest.

    Costs that name the device come before those of every device. Their spreads are wider where hardly a figure that
    they were fitted to is of its `maker`, by default the word that the device's name begins with.
    """

    def choose() -> StepCosts:
        asked = version_numbers(version or rules.version)
        named = [costs for costs in rules.costs if any(is_like(device, pattern) for pattern in costs.devices)]
        fitting = named or [costs for costs in rules.costs if not costs.devices]
        return _with_doubt(
            _newest(fitting, asked), rules.tables, device, (maker or device.partition("-")[0]).casefold()
        )

    return _costs.get_or_make((version, device, maker), (rules,), choose)


def _with_doubt(costs: StepCosts, engine: str, device: str, maker: str) -> StepCosts:
    devices, _ = fitted_on(engine)
    siblings = sum(each.startswith(f"{maker}-") for each in devices)
    if not device or device in devices or siblings >= _WELL_KNOWN:
        return costs
    doubt = _OF_FEW if siblings else _OF_OTHER_MAKERS
    return replace(
        costs,
        ttft_spread=replace(costs.ttft_spread, value=hypot(costs.ttft_spread.value, doubt)),
        tpot_spread=replace(costs.tpot_spread, value=hypot(costs.tpot_spread.value, doubt)),
        batch_spread=replace(costs.batch_spread, value=hypot(costs.batch_spread.value, doubt)),
    )


def memory_of(rules: ServingRules, version: str | None = None) -> MemoryRules:
    """What holds from the newest version on that is not newer than the one asked for; of an older one the oldest."""
    return _newest(rules.memory, version_numbers(version or rules.version))


def _newest(rows: Sequence[_Rules], asked: tuple[int, ...]) -> _Rules:
    older = [row for row in rows if version_numbers(row.since) <= asked]
    return older[-1] if older else rows[0]


def _by_weights(row: CatalogRow) -> Precision | None:
    if "by_weights" not in row.fields:
        return None
    formats = row.inner("by_weights")
    formats.allow("activations", "kv")
    return Precision(activations=formats.required_text("activations"), kv=formats.required_text("kv"))


def _effects(row: CatalogRow) -> RuntimeEffects:
    plain = {key: value for key, value in row.fields.items() if key not in ENGINE_SETS}
    sets = {}
    for name in ENGINE_SETS:
        if name in row.fields:
            other = row.inner(name)
            other.allow(*_EFFECTS)
            # The fields with those of a table in their place; units and arithmetic keep what it does not name.
            inside = {
                key: {**plain[key], **value}
                for key, value in other.fields.items()
                if isinstance(value, dict)
                and isinstance(plain.get(key), dict)
                and (key in UNITS or key == "arithmetic")
            }
            sets[name] = _alike(replace(row, fields={**plain, **other.fields, **inside}))
    return replace(_alike(row), sets=sets)


def _alike(row: CatalogRow) -> RuntimeEffects:
    """What a row says of every device."""
    return row.value(
        RuntimeEffects, *_KEYS,
        passes=_passes(row.inner("passes")),
        calls=_reference(row.inner("calls")),
        lone=_reference(row.inner("lone")),
        tokenwise=_reference(row.inner("tokenwise")),
        scores=_reference(row.inner("scores")),
        arithmetic=_arithmetic(row.inner("arithmetic")),
        instead=_arithmetic(row.inner("instead")),
        expanded=frozenset(_format_of(name) for name in row.names("expanded")),
        widened=_wider(row, "widened"),
        emulated=_wider(row, "emulated"),
        held={unit: dtype(row.inner("held").required_text(unit)).name for unit in _keys(row, "held")},
        stored=dtype(row.required_text("stored")).name if "stored" in row.fields else None,
        whole=frozenset(dtype(name).name for name in row.names("whole")),
        merged=tuple(tuple(group.split("+")) for group in row.names("merged")),
        reference=_reference(row.inner("reference")),
        overheads={unit: _overheads(row.inner(unit)) for unit in UNITS if unit in row.fields},
        first_run=row.number("first_run", "s"),
        sets={},
    )  # fmt: skip


def _wider(row: CatalogRow, table: str) -> dict[str, str]:
    """By a format, or by one after what a model makes: `arrays:f16`."""
    wider = {}
    for key in _keys(row, table):
        made, of, name = key.rpartition(":")
        wider[f"{made}{of}{dtype(name).name}"] = dtype(row.inner(table).required_text(key)).name
    return wider


def _keys(row: CatalogRow, table: str) -> list[str]:
    return [key for key in row.inner(table).fields if key != "source"]


def _passes(row: CatalogRow) -> dict[str, int]:
    return {key: row.whole(key) or 1 for key in row.fields if key != "source"}


def _reference(row: CatalogRow) -> dict[str, float]:
    stated = {key: row.number(key, "1") for key in row.fields if key != "source"}
    return {key: number.value for key, number in stated.items() if number is not None}


def _arithmetic(row: CatalogRow) -> dict[str, tuple[str, ...]]:
    formats = {}
    for key in row.fields:
        if key == "source":
            continue
        formats[_format_of(key)] = tuple(dtype(entry).name for entry in row.names(key))
    return formats


def _format_of(key: str) -> str:
    """A table's key with our own names of its formats: `gpu:q4_0`, `arm:convolution:i8/f32`."""
    where, colon, names = key.rpartition(":")
    if names == DYNAMIC:
        return key
    return where + colon + "/".join(dtype(name).name for name in names.split("/"))


def _overheads(row: CatalogRow) -> Overheads:
    loop = row.inner("loop")
    return row.value(
        Overheads, "loop",
        apart={},
        loop={name: known for name in _keys(row, "loop") if (known := loop.number(name, "s")) is not None},
    )  # fmt: skip


def schedulers() -> Mapping[str, SchedulerRules]:
    return all_of("schedulers", _scheduler_rules)


def scheduler_of(engine: str, version: str | None = None) -> SchedulerRules:
    """The rules of an engine from the newest version on that is not newer than the one asked for."""
    known = sorted(
        (rules for rules in schedulers().values() if rules.engine == engine), key=lambda r: version_numbers(r.since)
    )
    if not known:
        engines = ", ".join(sorted({rules.engine for rules in schedulers().values()}))
        raise DomainError(f"The scheduler of {engine} is not known.", remedy=f"Ask for --runtime {engines}.")
    if version is None:
        return known[-1]
    older = [rules for rules in known if version_numbers(rules.since) <= version_numbers(version)]
    return older[-1] if older else known[0]


def _scheduler_rules(row: CatalogRow) -> SchedulerRules:
    source = row.sources.get(row.text("source") or "", {})
    return row.value(SchedulerRules, source=source.get("title", ""), url=source.get("url", ""))
