"""Probe models: the networks and workloads of probes.toml, and the files that engines open."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from functools import cache
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.cache import is_kept
from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.workload import Precision, Workload
from inferometer.engines.order import ToolOrder
from inferometer.formats.huggingface import graph_from_config
from inferometer.formats.synth import synthesise
from inferometer.measure.prepare.carrying_out import Tools, carry_out
from inferometer.measure.prepare.steps import STEPS, PrepareStep
from inferometer.measure.run.model_file import SUFFIXES, make_folder
from inferometer.version import __version__

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.graph import Graph

PROBES = Path(__file__).with_name("probes.toml")
ROLES = ("ceiling", "overhead", "shape")
SEES, READS, WRITES = "image", "encoder", "decoder"


@frozen
class ProbeRun:
    """One workload of a probe. `context`: tokens in a decoder's cache before its decode steps."""

    batch: int = 1
    image: int | None = None
    prompt: int | None = None
    context: int | None = None

    @property
    def words(self) -> str:
        size = f"image {self.image}" if self.image is not None else f"{self.prompt} tokens"
        return f"{self.batch} x {size}" + (f" + {self.context}" if self.context else "")

    def workload(self, precision: Precision | None = None) -> Workload:
        given = Precision() if precision is None else precision
        return Workload(batch=self.batch, prompt=self.prompt, image=self.image, precision=given)


@frozen
class Probe:
    """A network that is run to find out how fast an engine is. `kind`: it sees images, reads texts, or writes them."""

    name: str
    kind: str
    config: Mapping[str, Any] = field(hash=False)
    runs: tuple[ProbeRun, ...]
    role: str = "shape"


def read_probes(path: Path = PROBES) -> tuple[Probe, ...]:
    """Every probe of a file. An unknown family, or a run of the wrong length, is an error that names it."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path} cannot be read as a table of probes: {error}.") from None
    families = document.get("families", {})
    return tuple(_probe(name, row, families) for name, row in document.get("probes", {}).items())


def _probe(name: str, row: Mapping[str, Any], families: Mapping[str, Any]) -> Probe:
    family = str(row.get("family"))
    if family not in families:
        known = ", ".join(families)
        raise FormatError(f"The probe {name} has the unknown family {family!r}.", remedy=f"Known: {known}.")
    role = row.get("role", "shape")
    if role not in ROLES:
        raise FormatError(f"The probe {name} has the unknown role {role!r}.", remedy=f"Known: {', '.join(ROLES)}.")
    config = {**families[family], **row["config"]}
    kind = SEES if "image_size" in config else WRITES if config["architectures"][0].endswith("CausalLM") else READS
    return Probe(
        name=f"probe-{name}", kind=kind, config=config, role=role, runs=tuple(_run(name, kind, r) for r in row["runs"])
    )


def _run(name: str, kind: str, sizes: list[int]) -> ProbeRun:
    wanted = 3 if kind == WRITES else 2  # a decoder's runs also say how much is cached
    if len(sizes) != wanted:
        raise FormatError(f"A run of the probe {name} has {len(sizes)} sizes, and {wanted} are needed: {sizes}.")
    if kind == SEES:
        return ProbeRun(batch=sizes[0], image=sizes[1])
    return ProbeRun(batch=sizes[0], prompt=sizes[1], context=sizes[2] if kind == WRITES else None)


def graph_of(probe: Probe) -> Graph:
    """The probe as the readers see it; read once, because what pricing prepares is kept with the graph itself."""
    return _graph(probe.name, json.dumps(probe.config, sort_keys=True))


@cache
def _graph(name: str, config: str) -> Graph:
    return graph_from_config(json.loads(config), name=name)


def file_of(  # noqa: PLR0913 - what a file is made of, and where
    probe: Probe,
    run: ProbeRun,
    *,
    format: str,  # noqa: A002 - the word users have for it
    weights: str,
    folder: Path,
    seed: int = 0,
) -> Path:
    """A file with random weights, made once. Its name holds the probe, the format and a hash of everything else.

    The image size is fixed in it, as exporters do.
    """
    if format == "config":
        # A config states the image size, so another size is another config.
        sized = {} if run.image is None else {"image_size": run.image}
        place = folder / "-".join(str(part) for part in (probe.name, *sized.values()))
        make_folder(place)
        (place / "config.json").write_text(json.dumps({**probe.config, **sized}, indent=1), encoding="utf-8")
        return place
    sizes = {} if run.image is None else {"image": run.image}
    recipe = {"config": dict(probe.config), "weights": weights, "seed": seed, "sizes": sizes, "by": __version__}
    mark = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{probe.name}-{weights}-{mark}{SUFFIXES[format]}"
    if not is_kept(path):
        make_folder(folder)
        synthesise(dict(probe.config), path, format=format, weights=weights, seed=seed, sizes=sizes)
    return path


# Decoders for engines that open folders of their own: checkpoints with random weights, converted by `prepare`'s tools.
#
# Some of these engines make a whole generation in one call, so nothing can be put between two of its steps to evict
# the weights of a small probe from the caches. Their probes therefore have more layers, until a step reads more than a
# cache holds, as a real model's does.

SOURCE = "safetensors"
_PLAIN = "f32"  # of a checkpoint, and of what is converted without another format
# Bytes of weights that a step reads, at least and at most: the checkpoint that they are made of is four times as large.
_LEAST_READ, _MOST_READ = 64_000_000, 256_000_000
_BEYOND = 1.5  # times the largest cache: of a stream in circles that is longer than a cache little stays in it
_MOST_LAYERS = 24  # for the least, and as many more for more
_LONGEST_S = 300.0  # for a tool to convert a probe: one that takes longer hangs
# Seconds to make a probe, the second one of a run and later: the builder of ONNX Runtime GenAI is a program of its own.
_MAKING_S = 6.0  # for the least, and as many more for more


def steps_to(formats: Collection[str]) -> dict[str, PrepareStep]:
    """The tools that make folders of these formats of a checkpoint, by the format of the weights they write."""
    ours = [step for step in STEPS if SOURCE in step.takes and step.gives in formats]
    return {step.changes.get("weights", _PLAIN): step for step in ours}


def largest_cache(device: Device) -> float:
    """Bytes; 0 where no cache is known."""
    caches = [float(memory.capacity_bytes or 0.0) for memory in device.memories if memory.level.startswith("l")]
    return max(caches, default=0.0)


def beyond_caches(device: Device) -> int:
    """Bytes of weights that a step has to read so that they come from memory, as a model's do."""
    return int(min(_MOST_READ, max(_LEAST_READ, _BEYOND * largest_cache(device))))


def making_s(read: int) -> float:
    """Seconds to make a probe, by the bytes that its step reads."""
    return _MAKING_S * read / _LEAST_READ


def deepened(probe: Probe, weights: str, read: int) -> Probe:
    """A probe with enough layers for a step to read the bytes wanted; a probe of overheads stays small."""
    if probe.role == "overhead":
        return probe
    had = int(probe.config["num_hidden_layers"])
    vocabulary = int(probe.config["vocab_size"]) * int(probe.config["hidden_size"])
    a_byte = 8 / float(dtype(weights).bits)
    inside = (graph_of(probe).parameters - 2 * vocabulary) / had
    layers = min(_MOST_LAYERS * read // _LEAST_READ, ceil((read * a_byte - vocabulary) / inside))
    if layers <= had:
        return probe
    return replace(
        probe, name=f"{probe.name}-{layers}-layers", config={**probe.config, "num_hidden_layers": layers}
    )  # fmt: skip


def converted_checkpoint(step: PrepareStep, probe: Probe, run: ProbeRun, *, folder: Path, tools: Tools) -> Path:
    """The probe's folder, made once and kept by what went in."""
    source = file_of(probe, run, format=SOURCE, weights=_PLAIN, folder=folder)
    order = ToolOrder(source=source, target=source, format=step.gives, options=step.options)
    return carry_out(step, order, folder, seconds_at_most=_LONGEST_S, tools=tools).path
