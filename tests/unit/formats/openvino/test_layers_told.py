"""What each layer of an OpenVINO IR becomes. The files leave all results open, so that the sizes are the reader's own.

`layers_told.txt` has the cases, in the words of `listing.py`; a result has its rank behind it (`y/4`) or its sizes, and
attributes are IR's own, as text. `python tests/unit/formats/openvino/test_layers_told.py` writes the lines below the
cases anew (with src and tests on the path).
"""

import ast
import tempfile
from pathlib import Path

from inferometer.formats.openvino import reader
from unit.formats.listing import INPUT, call_of, dims_of, graph_lines, holds, rewrite
from unit.formats.openvino.ir_text import Ir

TOLD = Path(__file__).parent / "layers_told.txt"


def sides(text):
    return tuple(side if isinstance(side, int) else -1 for side in dims_of(text))


def input_of(ir, word, made):
    """(address, sizes, format) of an input that is given, stored, or made before."""
    found = INPUT.match(word)
    name, form = found["name"], found["format"] or "f32"
    if name in made:
        return made[name]
    if found["numbers"] is not None:
        numbers = ast.literal_eval(found["numbers"])
        listed = numbers if isinstance(numbers, tuple) else (numbers,)
        shape, form = (len(listed),) if isinstance(numbers, tuple) else (), found["format"] or "i64"
        made[name] = ir.const(shape, form, listed, name=name), shape, form
    elif found["stored"]:
        made[name] = ir.const(sides(found["dims"]), form, name=name), sides(found["dims"]), form
    else:
        made[name] = ir.parameter(name, sides(found["dims"]), form), sides(found["dims"]), form
    return made[name]


def ir_of(case):
    ir, made = Ir(), {}
    for text in case.split(" | "):
        kind, inputs, results, attributes = call_of(text)
        read = [input_of(ir, word, made) for word in inputs.split()]
        outputs = []
        for word in (results or "y/0").split():
            result, _, rank = word.partition("/")
            found = INPUT.match(result)
            shape = (-1,) * int(rank) if rank else sides(found["dims"])
            outputs.append((found["name"], shape, found["format"] or "f32"))
        number, port = ir.layer(
            kind, [(address, shape) for address, shape, _ in read], [(shape, form) for _, shape, form in outputs],
            name=outputs[0][0], kinds=[form for _, _, form in read], **attributes,
        )  # fmt: skip
        made |= {name: ((number, port + place), shape, form) for place, (name, shape, form) in enumerate(outputs)}
    for name, shape, _ in outputs:
        ir.result(made[name][0], shape)
    return ir


def read(case):
    ir = ir_of(case)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "m.xml")
        path.write_text(ir.text(), encoding="utf-8")
        path.with_suffix(".bin").write_bytes(ir.data)
        found = reader.read(path)
    yield from graph_lines(found)
    yield from (f"{key} {found.metadata[key]['first']}" for key in ("disagreements",) if key in found.metadata)


test_every_layer_becomes_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
