"""Probe models: the networks and workloads of probes.toml, and the files that engines open."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from inferometer.core.cache import is_kept
from inferometer.core.errors import FormatError
from inferometer.core.frozen import frozen
from inferometer.core.workload import Precision, Workload
from inferometer.measure.run.model_file import SUFFIXES, make_folder
from inferometer.version import __version__

if TYPE_CHECKING:
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
    from inferometer.formats.huggingface import graph_from_config  # noqa: PLC0415 - only who measures needs a reader

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
    from inferometer.formats.synth import synthesise  # noqa: PLC0415 - brings what writes files, only where one is written

    sizes = {} if run.image is None else {"image": run.image}
    recipe = {"config": dict(probe.config), "weights": weights, "seed": seed, "sizes": sizes, "by": __version__}
    mark = hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()[:12]
    path = folder / f"{probe.name}-{weights}-{mark}{SUFFIXES[format]}"
    if not is_kept(path):
        make_folder(folder)
        synthesise(dict(probe.config), path, format=format, weights=weights, seed=seed, sizes=sizes)
    return path
