"""What each operator of MNN becomes, from tables that are written by hand.

`operators_told.txt` has the cases, in the words of `listing.py`; a result is a name. Attributes are fields of the
operator's own table by their number: `f3=(1,2)` a list of whole numbers, `f3=2` a whole number, `b3=1` one of a byte,
`t3=True` a flag, `r3=0.5` a float, `w1=24` a list of so many floats, `c2=1` a field of the sizes of a convolution (`C`
for its lists and flags). `python tests/unit/formats/mnn/test_operators_told.py` writes the lines below the cases anew
(with src and tests on the path).
"""

import ast
import tempfile
from pathlib import Path

from inferometer.formats.mnn import reader
from inferometer.formats.mnn.layers import OPERATORS
from unit.formats.listing import INPUT, call_of, dims_of, graph_lines, holds, rewrite
from unit.formats.tflite.tflite_bytes import Numbers, Table, ints, serialised

TOLD = Path(__file__).parent / "operators_told.txt"
NUMBERS = {name: number for number, name in OPERATORS.items()}
LETTERS = {"f": "i", "b": "b", "t": "?", "r": "f", "c": "i"}


def field_of(letter, value):
    if letter == "w":
        return Numbers("f", (0.5,) * value)
    if isinstance(value, tuple):
        return ints(*value)
    return "?" if isinstance(value, bool) else LETTERS[letter.casefold()], value


def main_of(attributes):
    """The operator's table; fields of a convolution's sizes are a table of their own in its first place."""
    fields, common, packed = {}, {}, {}
    for key, value in attributes.items():
        letter, place = key[0], int(key[1:])
        if letter in "cC":
            common[place] = field_of(letter, value)
        elif letter == "p":  # packed weights: so many bytes, or the type
            packed[place] = Numbers("b", (0,) * value) if place == 0 else ("i", value)
        else:
            fields[place] = field_of(letter, value)
    if common:
        fields[0] = Table(common)
    if packed:
        fields[3] = Table(packed)
    return Table(fields)


class Net:
    def __init__(self):
        self.names, self.ops = [], []

    def place(self, name):
        if name not in self.names:
            self.names.append(name)
        return self.names.index(name)

    def op(self, kind, inputs, outputs, main, name=None):
        places = [self.place(name) for name in inputs], [self.place(name) for name in outputs]
        fields = {0: ints(*places[0]), 3: name, 4: ints(*places[1]), 5: ("i", NUMBERS[kind])}
        self.ops.append(Table({**fields, 1: ("B", 1), 2: main} if main is not None else fields))

    def given(self, word):
        """An input of the network, a constant, or what an earlier operator made."""
        found = INPUT.match(word)
        name = found["name"]
        if name in self.names:
            return name
        if found["numbers"] is not None:
            numbers = ast.literal_eval(found["numbers"])
            listed = numbers if isinstance(numbers, tuple) else (numbers,)
            shape = (len(listed),) if isinstance(numbers, tuple) else ()
            self.op("Const", (), (name,), Table({0: ints(*shape), 5: ints(*listed)}))
        elif found["stored"]:
            dims = dims_of(found["dims"])
            count = 1
            for dim in dims:
                count *= dim
            self.op("Const", (), (name,), Table({0: ints(*dims), 7: Numbers("f", (0.5,) * count)}))
        else:
            sides = tuple(side if isinstance(side, int) else -1 for side in dims_of(found["dims"]))
            self.op("Input", (), (name,), Table({0: ints(*sides), 1: ("i", 1)}))
        return name


def read(case):
    net = Net()
    for text in case.split(" | "):
        kind, inputs, results, attributes = call_of(text)
        outputs = (results or "y").split()
        net.op(kind, [net.given(word) for word in inputs.split()], outputs, main_of(attributes), name=outputs[0])
    raw = serialised(Table({3: net.ops, 4: outputs, 7: net.names}), identifier=b"\0\0\0\0")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.mnn")
        path.write_bytes(raw)
        yield from graph_lines(reader.read(path))


test_every_operator_becomes_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
