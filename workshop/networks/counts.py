"""The shipped graphs against the counts that timm publishes with its measurements: parameters and MACs.

    python -m workshop.networks.counts timm_infer.csv.gz

Prints how many networks agree, and those that do not. timm counts with fvcore, whose "MACs" are more than products: a
batch norm adds 2 an element, a layer or group norm 5, a global average pool 1. Fused attention it does not see: newer
tables lack its products. So a count agrees if it does with the attention's products or without them.

Networks with branches for training (MobileOne, FastViT, RepViT, …) are shipped folded, as timm's tables since torch
2.9 have them; older tables have them unfolded, and are listed here as different.
"""

import argparse
import csv
import gzip
from collections import Counter
from collections.abc import Iterator
from math import prod
from pathlib import Path

from inferometer.core.binding import Binding
from inferometer.core.dims import evaluate
from inferometer.core.graph import Graph, Op
from inferometer.core.sizes import bind
from inferometer.core.workload import Workload
from inferometer.formats.networks.shipped import networks, shipped_graph
from inferometer.known.atlas.sources.timm import current_name
from inferometer.predict.work.count import with_formats
from inferometer.predict.work.rules import work_of

_ROUNDED = 0.0051  # the table rounds to two decimals


def published(path: Path) -> Iterator[tuple[str, str, int, float, float]]:
    """Name as published, today's name, image, GMACs and millions of parameters; each combination once."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        rows = {
            (row["model"], int(row["img_size"]), float(row["gmacs"] or 0), float(row["params_m"] or 0))
            for row in csv.DictReader(file)
        }
    for name, image, gmacs, millions in sorted(rows):
        yield name, current_name(name), image, gmacs, millions


def macs(graph: Graph) -> tuple[float, float]:
    """fvcore's MACs at batch 1, with the products of attention and without."""
    bound = with_formats(graph, bind(graph, Workload()))
    total = attention = 0.0
    for block, op in graph.ops():
        if op.kind in {"convolution", "linear", "matmul"}:
            total += block.count * work_of(op, bound).total_flops / 2
        elif op.kind == "attention":
            attention += block.count * _attention(op, bound)
        elif op.kind == "norm":
            per_element = 2 if op["norm"] == "batch" else 5
            total += block.count * per_element * evaluate(op.outputs[0].elements, bound.sizes)
        elif op.kind == "pool" and "adaptive" in str(op.source_type):
            total += block.count * evaluate(op.inputs[0].elements, bound.sizes)
    return total + attention, total


def _attention(op: Op, bound: Binding) -> float:
    """The two products of attention; the rule of its work counts the softmax too."""
    query, key, value = (tuple(evaluate(dim, bound.sizes) for dim in op.inputs[n].shape) for n in range(3))
    return float(prod(query) * key[-2] + prod(query[:-1]) * key[-2] * value[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("table", type=Path)
    chosen = parser.parse_args()
    said, seen = Counter[str](), dict[tuple[str, int], tuple[int, tuple[float, float]]]()
    for published_name, name, image, gmacs, millions in published(chosen.table):
        shipped = networks("timm").get(name)
        if shipped is None or image not in shipped.images:
            said["not shipped"] += 1
            continue
        if (name, image) not in seen:
            graph = shipped_graph("timm", name, image)
            seen[name, image] = (graph.parameters, macs(graph))
        parameters, counts = seen[name, image]
        nearest = min(counts, key=lambda count: abs(count / 1e9 - gmacs))
        off = (nearest / 1e9 - gmacs) / gmacs if gmacs else 0.0
        exact = abs(parameters / 1e6 - millions) <= _ROUNDED
        near = abs(off) <= 0.01 or abs(nearest / 1e9 - gmacs) <= _ROUNDED
        said["parameters exact" if exact else "parameters differ"] += 1
        said["MACs within 1 %" if near else "MACs differ"] += 1
        if not (exact and near):
            print(f"{published_name:45} {image:4}  {parameters / 1e6:9.2f} M, published {millions:9.2f} M"
                  f"   {nearest / 1e9:8.2f} GMAC, published {gmacs:8.2f} ({off:+.1%})")  # fmt: skip
    print(dict(said))


if __name__ == "__main__":
    main()
