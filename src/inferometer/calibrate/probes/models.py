"""Probe models: the networks and workloads of probes.toml, and files of them that engines open."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.workload import Precision, Workload
from inferometer.errors import FormatError, InferometerError
from inferometer.version import __version__

if TYPE_CHECKING:
    from inferometer.core.graph import Graph

PROBES = Path(__file__).with_name("probes.toml")
ROLES = ("ceiling", "overhead", "shape")
SEES, READS, WRITES = "image", "encoder", "decoder"
_SUFFIXES = {"onnx": ".onnx", "gguf": ".gguf", "tflite": ".tflite"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeRun:
    """One workload of a probe. `context` tokens stand in a decoder's cache when it takes single steps."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A network that is run to learn how fast an engine is. `kind`: it sees images, reads texts, or writes them."""

    name: str
    kind: str
    config: Mapping[str, Any] = field(hash=False)
    runs: tuple[ProbeRun, ...]
    role: str = "shape"


def read_probes(path: Path = PROBES) -> tuple[Probe, ...]:
    """Every probe of a file. A family that is not there, or a run of the wrong length, is an error that names it."""
    try:
        found = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, tomllib.TOMLDecodeError) as error:
        raise FormatError(f"{path} cannot be read as a table of probes: {error}.") from None
    families = found.get("families", {})
    return tuple(_probe(name, row, families) for name, row in found.get("probes", {}).items())


def _probe(name: str, row: Mapping[str, Any], families: Mapping[str, Any]) -> Probe:
    family = str(row.get("family"))
    if family not in families:
        raise FormatError(f"The probe {name} is of the family {family!r}.", remedy=f"Known: {', '.join(families)}.")
    role = row.get("role", "shape")
    if role not in ROLES:
        raise FormatError(f"The probe {name} has the role {role!r}.", remedy=f"Known: {', '.join(ROLES)}.")
    config = {**families[family], **row["config"]}
    kind = SEES if "image_size" in config else WRITES if config["architectures"][0].endswith("CausalLM") else READS
    return Probe(
        name=f"probe-{name}", kind=kind, config=config, role=role, runs=tuple(_run(name, kind, r) for r in row["runs"])
    )


def _run(name: str, kind: str, sizes: list[int]) -> ProbeRun:
    wanted = 3 if kind == WRITES else 2
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
    from inferometer.readers.huggingface import graph_from_config  # noqa: PLC0415 - only who measures needs a reader

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
    """A file with random weights, made once: its name tells the probe, the format and what made it.

    An image's side is fixed in it, as exporters fix it.
    """
    if format == "config":
        return _config_folder(probe, run, folder)
    from inferometer.synth import synthesise  # noqa: PLC0415 - brings what writes files, only where one is written

    sizes = {} if run.image is None else {"image": run.image}
    told = {"config": dict(probe.config), "weights": weights, "seed": seed, "sizes": sizes, "by": __version__}
    mark = hashlib.sha256(json.dumps(told, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{probe.name}-{weights}-{mark}{_SUFFIXES[format]}"
    if not path.exists():
        _made(folder)
        partial = path.with_name(f"part-{path.name}")
        synthesise(dict(probe.config), partial, format=format, weights=weights, seed=seed, sizes=sizes, overwrite=True)
        partial.replace(path)  # one that was interrupted is never taken for a whole one
    return path


def _config_folder(probe: Probe, run: ProbeRun, folder: Path) -> Path:
    """A config says how large images are, so that another size is another config."""
    sized = {} if run.image is None else {"image_size": run.image}
    place = folder / "-".join(str(part) for part in (probe.name, *sized.values()))
    _made(place)
    (place / "config.json").write_text(json.dumps({**probe.config, **sized}, indent=1), encoding="utf-8")
    return place


def _made(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InferometerError(
            f"The folder {str(folder)!r} for probe models cannot be made: {error.strerror}.",
            remedy="Set INFEROMETER_CACHE to a folder you may write to.",
        ) from None
