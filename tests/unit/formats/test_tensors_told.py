"""What stored tensors become where no architecture is known, and how quantised weights are found among them.

`tensors_told.txt` has a case in a line: tensors as `name:format[sizes]`; those that begin with `WEIGHT[sizes]` ask for
a weight `m.weight` of these sizes among the tensors after it. `python tests/unit/formats/test_tensors_told.py` writes
the lines below the cases anew (with src and tests on the path).
"""

import re
from math import ceil, prod
from pathlib import Path

from inferometer.core.dtypes import dtype
from inferometer.formats.safetensors import quantised
from inferometer.formats.stored import Stored, tensors_graph
from unit.formats.listing import dims_of, graph_lines, holds, rewrite

TOLD = Path(__file__).parent / "tensors_told.txt"
TENSOR = re.compile(r"(?P<name>[^:]+):(?P<format>\w+)\[(?P<dims>[^]]*)\]$")


def stored_of(word):
    found = TENSOR.match(word)
    shape, form = dims_of(found["dims"]), found["format"]
    return Stored(names=(found["name"],), shape=shape, dtype=form, nbytes=ceil(prod(shape) * dtype(form).bits / 8))


def read(case):
    first, *rest = case.split()
    if first.startswith("WEIGHT"):
        tensors = {entry.names[0]: entry for entry in map(stored_of, rest)}
        found = quantised("m.weight", dims_of(first[7:-1]), tensors)
        yield (
            "none" if found is None else f"{found.dtype}{list(found.shape)}={found.nbytes}B of {', '.join(found.names)}"
        )
        for beside in () if found is None else found.companions:
            yield f"beside {beside.suffix} {beside.dtype}{list(beside.shape)}={beside.nbytes}B"
        return
    graph = tensors_graph("g", [stored_of(word) for word in (first, *rest)], norm="rms")
    yield from graph_lines(graph)
    yield f"{graph.parameters} parameters, {graph.metadata['coverage']}"


test_every_case_becomes_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
