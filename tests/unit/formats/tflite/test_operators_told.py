"""What each TFLite operator becomes at options that are not the usual ones. All results are left open in the file.

`operators_told.txt` has the cases, in the words of `listing.py`; a result has its rank behind it (`y/4`) or sizes, what
is no number among sizes is left open in the file, and `options` is the number of the union's member. `python
tests/unit/formats/tflite/test_operators_told.py` writes the lines below the cases anew (src and tests on the path).
"""

import ast
import struct
from math import prod
from pathlib import Path

from inferometer.formats.tflite.graph import tflite_graph
from inferometer.formats.tflite.model import parse_model
from inferometer.formats.tflite.schema import OPERATORS, OPTIONS, OPTIONS_2
from unit.formats.listing import INPUT, call_of, dims_of, graph_lines, holds, rewrite
from unit.formats.tflite.tflite_bytes import Numbers, model, operator, quantised, subgraph, tensor

TOLD = Path(__file__).parent / "operators_told.txt"
FORMATS = {"f32": 0, "f16": 1, "i32": 2, "u8": 3, "i64": 4, "bool": 6, "i8": 9}
WIDTHS = {"f32": 4, "f16": 2, "i32": 4, "u8": 1, "i64": 8, "bool": 1, "i8": 1}
CODES = {row.name: number for number, row in OPERATORS.items()}


class Network:
    def __init__(self):
        self.places, self.tensors, self.buffers, self.inputs, self.steps, self.codes = {}, [], [], [], [], []

    def add(self, name, shape, form="f32", raw=None):
        open_sides = any(not isinstance(side, int) for side in shape)
        signature = tuple(side if isinstance(side, int) else -1 for side in shape) if open_sides else None
        if raw is not None:
            self.buffers.append(raw)
        more = {"quantization": quantised()} if raw is not None and form in {"i8", "u8"} else {}
        sides = tuple(side if isinstance(side, int) else 1 for side in shape)
        number = 0 if raw is None else len(self.buffers)
        self.tensors.append(tensor(name, sides, FORMATS[form], buffer=number, signature=signature, **more))
        self.places[name] = len(self.tensors) - 1
        return self.places[name]

    def place(self, word):
        """Where an input stands; −1 for none."""
        found = INPUT.match(word)
        name, form = found["name"], found["format"] or "f32"
        if word == "_" or name in self.places:
            return self.places.get(name, -1)
        if found["numbers"] is not None:
            numbers = ast.literal_eval(found["numbers"])
            listed = numbers if isinstance(numbers, tuple) else (numbers,)
            shape = (len(listed),) if isinstance(numbers, tuple) else ()
            return self.add(name, shape, "i32", struct.pack(f"<{len(listed)}i", *listed))
        shape = dims_of(found["dims"])
        if found["stored"]:
            return self.add(name, shape, form, bytes(prod(shape) * WIDTHS[form]))
        self.inputs.append(self.add(name, shape, form))
        return self.inputs[-1]

    def step(self, text):
        kind, inputs, results, settings = call_of(text)
        read = [self.place(word) for word in inputs.split()]
        made = []
        for word in results.split():
            text, _, rank = word.partition("/")
            found = INPUT.match(text)
            shape = (None,) * int(rank) if rank else dims_of(found["dims"])
            made.append(self.add(found["name"], shape, found["format"] or "f32"))
        self.codes.append(CODES.get(kind, (32, kind)))
        number, second = settings.pop("options", 0), settings.pop("options_2", 0)
        fields = {OPTIONS.get(number, {}).get(key) or OPTIONS_2[second][key]: value for key, value in settings.items()}
        table = {
            place: Numbers(letter[1], value) if letter[0] == "*" else (letter, value)
            for (place, letter, _), value in fields.items()
        }
        options, options_2 = (number, table) if number else None, (second, table) if second else None
        self.steps.append(operator(len(self.codes) - 1, read, made, options, options_2))
        return made


def read(case):
    network = Network()
    for text in case.split(" | "):
        made = network.step(text)
    main = subgraph(network.tensors, network.inputs, made, network.steps)
    raw = model(network.codes, [main], network.buffers)
    found = tflite_graph(parse_model(raw, Path("m.tflite")), name="m", label="m.tflite", signature=None)
    yield from graph_lines(found)
    yield f"{found.parameters} parameters{uncovered_text(found.metadata['coverage'])}"


def uncovered_text(coverage):
    return "" if coverage["share"] == 1.0 else f", {coverage}"


test_every_operator_becomes_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
