"""Make the shipped graphs: `python -m workshop.networks.packages FOLDER [--part K/N]`, then with `--write`.

The first traces every network of the installed packages into FOLDER, one file a network and size, and goes on where
it was stopped; several parts may run side by side. The second puts what is there into the files that are shipped. With
`--unpack` FOLDER gets what is shipped, so that only what is new needs to be traced. A network that cannot be traced
leaves its reason in FOLDER.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from inferometer.core.errors import InferometerError
from inferometer.core.graph import Graph
from inferometer.formats.networks import read
from inferometer.formats.networks.archive import graph_in, read_tables
from inferometer.formats.networks.read import MARK, NetworkPackage, built, traced, usual_image
from inferometer.formats.networks.shipped import DATA, ENDING, INDEX, Packages, ShippedNetwork, key_of
from inferometer.formats.networks.shipped import index as shipped_packages
from inferometer.formats.torch.pretrained import import_torch
from workshop.networks.archive import write_archive
from workshop.networks.recording import recorded


def _benchmarked(prefix: str) -> NetworkPackage:
    """Networks that are defined here: of benchmarks whose own definitions are no module of Python."""

    def networks() -> Mapping[str, tuple[Callable[[], Any], tuple[int, int]]]:
        from workshop.networks.benchmarked import NETWORKS  # noqa: PLC0415 - brings torch

        return NETWORKS

    return NetworkPackage(
        name=prefix,
        needs=("torch",),
        names=lambda: tuple(name.partition(":")[2] for name in networks() if name.startswith(f"{prefix}:")),
        build=lambda name, _image: networks()[f"{prefix}:{name}"][0](),
        usual=lambda name: (3, *networks()[f"{prefix}:{name}"][1]),
    )


PACKAGES = {**read.PACKAGES, "ncnn": _benchmarked("ncnn"), "openvino": _benchmarked("openvino")}
_FAILED = ".failed"


def trace_all(folder: Path, packages: Iterable[str], *, part: int, parts: int, more: Mapping[str, set[int]]) -> None:
    """Every network at its usual image, and at the images in `more`, of which the tables of measurements have some."""
    folder.mkdir(parents=True, exist_ok=True)
    for package in filter(_installed, packages):
        wanted = list(_wanted(package, more))
        for name, image in wanted[part::parts]:
            _trace(folder, package, name, image)


def _installed(package: str) -> bool:
    return all(find_spec(module) is not None for module in PACKAGES[package].needs)


def _wanted(package: str, more: Mapping[str, set[int]]) -> Iterator[tuple[str, int]]:
    """Networks of the tables first."""
    names = sorted(
        (name for name in PACKAGES[package].names() if package != "timm" or "." not in name),  # no tags of weights
        key=lambda name: (f"{package}:{name}" not in more, name),
    )
    for name in names:
        usual = usual_image(PACKAGES[package], name)
        yield from ((name, image) for image in sorted({usual, *more.get(f"{package}:{name}", ())}))


def _trace(folder: Path, package: str, name: str, image: int) -> None:
    stem = f"{package}~{key_of(name, image)}"
    target, failed = folder / f"{stem}{ENDING}", folder / f"{stem}{_FAILED}"
    if target.exists() or failed.exists():
        return
    try:
        module, shape = built(PACKAGES[package], name, image)
        pixels = import_torch().empty(MARK, *shape, device="meta")
        graph = traced(module, (pixels,), name=f"{package}:{name}", trace=recorded)
    except (InferometerError, RuntimeError, TypeError, ValueError) as error:  # what a network's own code may raise
        failed.write_text(str(error), encoding="utf-8")
        sys.stdout.write(f"{stem}: {error}\n")
        return
    unfinished = folder / f"{stem}.unfinished"
    write_archive(unfinished, {key_of(name, image): (graph, image)})
    unfinished.rename(target)
    sys.stdout.write(f"{stem}: {graph.parameters:,} parameters\n")


def unpack(folder: Path) -> None:
    """Every shipped graph, as if it had just been traced."""
    folder.mkdir(parents=True, exist_ok=True)
    tables_of = cache(lambda file: read_tables(DATA / f"{file}{ENDING}"))
    for package, known in shipped_packages().networks.items():
        for name, entry in known.items():
            tables = tables_of(entry.file)
            for image in entry.images:
                key = key_of(name, image)
                write_archive(folder / f"{package}~{key}{ENDING}", {key: graph_in(tables, key)})


def write(folder: Path) -> str:
    """One file a family and the index, from what was traced."""
    found: dict[str, dict[str, dict[int, Graph]]] = defaultdict(lambda: defaultdict(dict))
    for path in sorted(folder.glob(f"*{ENDING}")):
        package, _, rest = path.name.removesuffix(ENDING).partition("~")
        name = rest.partition("@")[0]
        tables = read_tables(path)
        graph, image = graph_in(tables, next(iter(tables.graphs)))
        found[package][name][image] = graph
    for old in DATA.glob(f"*{ENDING}"):
        old.unlink()
    index = Packages(releases={package: _release(package) for package in found}, networks={})
    for package, networks in found.items():
        index.networks[package] = _written(package, networks)
    INDEX.write_bytes(msgspec.json.encode(index, order="sorted"))
    size = sum(path.stat().st_size for path in (*DATA.glob(f"*{ENDING}"), INDEX))
    graphs = sum(len(images) for networks in found.values() for images in networks.values())
    return f"{graphs} graphs of {sum(map(len, found.values()))} networks, {size / 1e3:.0f} kB"


def _written(package: str, networks: Mapping[str, dict[int, Graph]]) -> dict[str, ShippedNetwork]:
    families: dict[str, dict[str, tuple[Graph, int]]] = defaultdict(dict)
    entries: dict[str, ShippedNetwork] = {}
    for name, graphs in sorted(networks.items()):
        file = _file(package, name)
        families[file] |= {key_of(name, image): (graph, image) for image, graph in sorted(graphs.items())}
        usual = usual_image(PACKAGES[package], name)
        image = usual if usual in graphs else min(graphs)
        entries[name] = ShippedNetwork(
            file=file, image=image, images=tuple(sorted(graphs)), parameters=graphs[image].parameters
        )
    for file, members in families.items():
        write_archive(DATA / f"{file}{ENDING}", members)
    return entries


def _file(package: str, name: str) -> str:
    """One file a module of the package that networks are defined in; one for those that are defined here."""
    if package == "timm":
        module = import_module("timm.models").model_entrypoint(name).__module__
    elif package == "torchvision":
        module = import_module("torchvision.models").get_model_builder(name).__module__
    else:
        return package
    return f"{package}-{module.rpartition('.')[2]}"


def _release(package: str) -> str:
    return version(package) if package in PACKAGES[package].needs else "as defined in Inferometer"


def _images(path: Path | None) -> defaultdict[str, set[int]]:
    """`timm:resnet50 288` a line."""
    more: defaultdict[str, set[int]] = defaultdict(set)
    for line in path.read_text(encoding="utf-8").splitlines() if path else ():
        name, image = line.split()
        more[name].add(int(image))
    return more


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m workshop.networks.packages", description=__doc__)
    parser.add_argument("folder", type=Path, help="where traced graphs are kept until they are written")
    parser.add_argument("--write", action="store_true", help="put what was traced into the package")
    parser.add_argument("--package", action="append", choices=tuple(PACKAGES), help="trace only this one's networks")
    parser.add_argument("--part", default="0/1", metavar="K/N", help="trace only every Nth network, from K on")
    parser.add_argument(
        "--images",
        type=Path,
        metavar="FILE",
        help="sizes beside those that are shipped: a name and a size in each line",
    )
    parser.add_argument("--unpack", action="store_true", help="put what is shipped into the folder")
    chosen = parser.parse_args(arguments)
    if chosen.unpack:
        unpack(chosen.folder)
        return
    if chosen.write:
        sys.stdout.write(write(chosen.folder) + "\n")
        return
    part, parts = map(int, chosen.part.split("/"))
    packages = chosen.package or PACKAGES
    more = _images(chosen.images)
    for package, known in shipped_packages().networks.items():
        for name, entry in known.items():
            more[f"{package}:{name}"] |= set(entry.images)
    trace_all(chosen.folder, packages, part=part, parts=parts, more=more)


if __name__ == "__main__":
    main(sys.argv[1:])
