"""Trace the networks that published tables measured, and pack their graphs for the package.

`python -m workshop.networks.named trace CACHE [--only TEXT,…]` builds each network on the meta device, so that it
needs no weights, traces it with torch.export, checks its parameters against what was published, and keeps the graph in
CACHE; what is there stays. It needs torch, torchvision, timm, transformers and diffusers. `… write CACHE` puts what is
there into the package, one file a family; `… unpack CACHE` puts what the package has into CACHE, so that only new
networks need to be traced; and `… list` prints every name.
"""

import argparse
import gc
import gzip
import json
import pickle
import re
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from inferometer.core.graph import Block, Graph
from inferometer.formats.networks.archive import graph_in, read_tables
from inferometer.formats.networks.named import DATA, ENDING, INDEX
from inferometer.formats.torch.pretrained import read_module, read_pretrained_config
from inferometer.known.atlas.names import DATA as ATLAS
from workshop.networks.archive import write_archive
from workshop.networks.marks import BATCH, CELLS, Opening

ATLAS_NAMES = ATLAS / "nets.txt"


def traced(name, net) -> tuple[Graph, int]:
    import torch  # noqa: PLC0415 - writing needs none

    from workshop.networks.nets.net import Config, examples  # noqa: PLC0415 - as above

    if isinstance(net, Config):
        fewer = {"num_hidden_layers": net.head + max(net.period, 2)} if net.layers else {}
        graph = read_pretrained_config({**net.config, **fewer}, name=name)
        graph = repeated(graph, net) if net.layers else graph
        return Opening(graph.precision, 0).graph(graph), graph.parameters
    with torch.device("meta"):
        module = net.make().eval().to("meta")  # some parameters name a device of their own
    counted = sum(parameter.numel() for parameter in module.parameters())
    graph = read_module(module, examples(net, BATCH, CELLS), name=name)
    graph = Opening(graph.precision, net.step).graph(graph)
    return replace(graph, name=name, metadata=_defaults(net)), counted


def repeated(graph: Graph, net) -> Graph:
    """The graph with all of its layers, from one with a single period of them."""
    layers = [_numbered(block) for block in graph.blocks if _LAYER.match(block.name)]
    others = [block for block in graph.blocks if not _LAYER.match(block.name)]
    place = next(i for i, block in enumerate(graph.blocks) if _LAYER.match(block.name))
    head = [block for block in layers if block.first < net.head]
    period = [block for block in layers if block.first >= net.head]
    if net.period == 1:
        made = [replace(period[0], count=net.layers - net.head, first=net.head)]
    else:
        starts = range(0, net.layers - net.head, net.period)
        made = [replace(block, first=block.first + start) for start in starts for block in period]
    return replace(graph, blocks=(*others[:place], *head, *made, *others[place:]))


_LAYER = re.compile(r"model\.layers(?:\.(\d+))?$")


def _numbered(block: Block) -> Block:
    """A layer that stands alone has its number in its names; here it gets the place of a number, as layers in a row."""
    found = _LAYER.match(block.name)
    if found is None or found[1] is None:
        return block
    own, open_ = f"model.layers.{found[1]}.", "model.layers.{}."

    def named(tensor):
        return replace(tensor, name=tensor.name.replace(own, open_))

    ops = tuple(
        replace(
            op,
            name=op.name.replace(own, open_),
            inputs=tuple(map(named, op.inputs)),
            outputs=tuple(map(named, op.outputs)),
            weights=tuple(map(named, op.weights)),
        )
        for op in block.ops
    )
    return replace(block, name="model.layers", ops=ops, first=int(found[1]))


def _defaults(net):
    return {"default_sizes": {"image": net.inputs[0][2]}} if net.step else {}


def agrees(counted: int, published: str | None) -> bool:
    """Whether a count rounds to what was published: `9.1M`, `878K`, or every digit.

    `~` stands before a count that was taken after norms were folded into convolutions: it may be a percent off.
    """
    if published is None:
        return True
    scale = {"K": 1e3, "M": 1e6, "B": 1e9}.get(published[-1])
    if scale is None:
        return counted == int(published)
    digits = published[:-1].removeprefix("~")
    places = len(digits.partition(".")[2])
    near = abs(counted / scale - float(digits)) <= 1.01 * 10**-places
    return near or (published.startswith("~") and abs(counted / scale / float(digits) - 1) < 0.01)


def trace(cache: Path, chosen: Callable[[str], bool]) -> None:
    from workshop.networks.nets import registry  # noqa: PLC0415 - writing needs no packages

    cache.mkdir(parents=True, exist_ok=True)
    for name, net in registry.nets().items():
        path = cache / f"{name.replace('/', '~')}.pkl.gz"
        if path.exists() or not chosen(name):
            continue
        started = time.monotonic()
        try:
            graph, counted = traced(name, net)
        except Exception as error:  # noqa: BLE001 - one network that cannot be traced must not stop the others
            print(f"{name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
            continue
        if not agrees(counted, net.published):
            print(f"{name}: {counted} parameters, and {net.published} were published", flush=True)
            continue
        with gzip.open(path, "wb", compresslevel=5) as file:
            pickle.dump(graph, file)
        print(f"{name}: {counted} parameters, {time.monotonic() - started:.1f} s", flush=True)
        del graph
        gc.collect()


def unpack(cache: Path) -> None:
    """The package's graphs, as if they had just been traced."""
    cache.mkdir(parents=True, exist_ok=True)
    for file in DATA.glob(f"*{ENDING}"):
        tables = read_tables(file)
        for name in tables.graphs:
            graph, image = graph_in(tables, name)
            sizes = {"default_sizes": {"image": image}} if image else {}
            with gzip.open(cache / f"{name.replace('/', '~')}.pkl.gz", "wb", compresslevel=1) as packed:
                pickle.dump(replace(graph, metadata=sizes), packed)


def write(cache: Path) -> str:
    """The package's files from what was traced, and the names that the atlas maps to."""
    families = defaultdict(dict)
    for path in sorted(cache.glob("*.pkl.gz")):
        name = path.name.removesuffix(".pkl.gz").replace("~", "/")
        with gzip.open(path, "rb") as file:
            graph = pickle.load(file)  # noqa: S301 - our own cache
        image = graph.metadata.get("default_sizes", {}).get("image", 0) or _side(graph)
        families[_family(name)][name] = (replace(graph, metadata={}), image)
    for old in DATA.glob(f"*{ENDING}"):
        old.unlink()
    for family, graphs in families.items():
        write_archive(DATA / f"{family}{ENDING}", graphs)
    index = {name: family for family, graphs in sorted(families.items()) for name in graphs}
    INDEX.write_text(json.dumps(index, indent=0), encoding="utf-8")
    ATLAS_NAMES.write_text("\n".join(sorted(index)) + "\n", encoding="utf-8")
    size = sum(path.stat().st_size for path in (*DATA.glob(f"*{ENDING}"), INDEX))
    return f"{len(index)} graphs in {len(families)} files, {size / 1e3:.0f} kB"


def _side(graph: Graph) -> int:
    """The side of a square image that the graph was traced at, else 0."""
    shape = graph.inputs[0].shape if graph.inputs else ()
    square = len(shape) == 4 and isinstance(shape[2], int) and shape[2] == shape[3]
    return shape[2] if square else 0


def _family(name: str) -> str:
    """Letters up to the first digit, and a generation of YOLO by itself: small files are quick to open."""
    known = re.match(r"yolov?\d\d?(?=[a-z-]|$)|[a-z]+", name)
    return known[0] if known else "others"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("trace", "unpack", "write", "list"))
    parser.add_argument("cache", nargs="?", type=Path)
    parser.add_argument("--only", default="", help="names that have one of these in them")
    parser.add_argument("--exact", default="", help="these names")
    chosen = parser.parse_args(arguments)
    if chosen.what == "list":
        from workshop.networks.nets import registry  # noqa: PLC0415 - writing needs no packages

        print("\n".join(registry.nets()))
    elif chosen.what == "unpack":
        unpack(chosen.cache)
    elif chosen.what == "write":
        print(write(chosen.cache))
    else:
        exact, parts = chosen.exact.split(","), chosen.only.split(",")
        trace(chosen.cache, lambda name: name in exact if chosen.exact else any(part in name for part in parts))


if __name__ == "__main__":
    main(sys.argv[1:])
