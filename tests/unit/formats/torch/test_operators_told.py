"""What each operator of PyTorch becomes at arguments that are not the usual ones.

`operators_told.txt` has a case in a line: the operator without `aten.`, its tensors by the names of its arguments
(`input=x[3,5]`, stored `weight=w*[7,5]`, buffers `self=c!:i64[2]`, several `params=a*[2]+b*[3]`), `->` its results, `;`
its other arguments; `|` stands between calls. `python tests/unit/formats/torch/test_operators_told.py` writes the lines
below the cases anew (with src and tests on the path).
"""

import re
from pathlib import Path

from inferometer.core.dims import Symbol
from inferometer.formats.torch.convert import program_graph
from inferometer.formats.torch.program import Ref
from unit.formats.listing import call_of, dims_of, graph_lines, holds, rewrite
from unit.formats.torch.programs import call, program, value

TOLD = Path(__file__).parent / "operators_told.txt"
TENSOR = re.compile(r"(?P<name>\w+)(?P<held>[*!])?(:(?P<format>\w+))?(\[(?P<dims>[^]]*)\])?$")


class Calls:
    def __init__(self):
        self.values, self.given, self.weights, self.buffers, self.made = {}, [], [], [], []

    def ref(self, word):
        found = TENSOR.match(word)
        name = found["name"]
        if name not in self.values:
            dims = (dim if isinstance(dim, int) else Symbol(dim) for dim in dims_of(found["dims"]))
            self.values[name] = value(*dims, dtype=found["format"] or "f32")
            {"*": self.weights, "!": self.buffers, None: self.given}[found["held"]].append(name)
        return Ref(name)

    def add(self, text):
        target, inputs, results, arguments = call_of(text)
        refs = {}
        for word in inputs.split():
            key, _, names = word.partition("=")
            many = [self.ref(name) for name in names.split("+")]
            refs[key] = tuple(many) if "+" in names or key in {"params", "tensors", "weights"} else many[0]
        outputs = []
        for word in results.split():
            found = TENSOR.match(word)
            dims = (dim if isinstance(dim, int) else Symbol(dim) for dim in dims_of(found["dims"]))
            self.values[found["name"]] = value(*dims, dtype=found["format"] or "f32")
            outputs.append(found["name"])
        self.made = outputs
        return call(target, " ".join(outputs), **refs, **arguments)


def read(case):
    calls = Calls()
    steps = [calls.add(text) for text in case.split(" | ")]
    graph = program_graph(program(
        steps, calls.values, inputs=" ".join(calls.given), outputs=" ".join(calls.made),
        weights=" ".join(calls.weights), buffers=" ".join(calls.buffers),
    ))  # fmt: skip
    yield from graph_lines(graph)


test_every_operator_becomes_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
