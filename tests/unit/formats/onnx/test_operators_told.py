"""What each ONNX operator becomes at attributes that are not the usual ones: sizes, formats, roles, bytes.

`operators_told.txt` has the cases, in the words of `listing.py`. One that begins with `ms.` is ONNX Runtime's own; `|`
stands between nodes, and a bare name is a result of an earlier one. `python
tests/unit/formats/onnx/test_operators_told.py` writes the lines below the cases anew (with src and tests on the path).
"""

import ast
from pathlib import Path

from inferometer.formats.onnx import read_bytes
from unit.formats.listing import INPUT, call_of, dims_of, graph_lines, holds, rewrite
from unit.formats.onnx.onnx_bytes import (
    BOOL,
    FLOAT,
    HALF,
    INT4,
    INT8,
    INT32,
    INT64,
    UINT8,
    graph,
    ints,
    model,
    node,
    scalar,
    tensor,
    value,
)

TOLD = Path(__file__).parent / "operators_told.txt"
FORMATS = {
    "f32": FLOAT, "f16": HALF, "u8": UINT8, "i8": INT8, "i32": INT32, "i64": INT64, "bool": BOOL, "i4": INT4,
}  # fmt: skip


def stored_numbers(name, form, numbers):
    if form is None:
        return ints(name, *numbers) if isinstance(numbers, tuple) else scalar(name, numbers)
    return (
        tensor(name, (len(numbers),), FORMATS[form], numbers)
        if isinstance(numbers, tuple)
        else scalar(name, numbers, FORMATS[form])
    )


def parts_of(text, made):
    """The inputs of a node: what is given, what is stored, and their names."""
    given, stored, names = [], [], []
    for word in text.split():
        found = INPUT.match(word)
        names.append(found["name"])
        kind = FORMATS[found["format"] or "f32"]
        if word == "_" or found["name"] in made:
            continue
        made.add(found["name"])
        if found["numbers"] is not None:
            stored.append(stored_numbers(names[-1], found["format"], ast.literal_eval(found["numbers"])))
        elif found["stored"]:
            stored.append(tensor(names[-1], dims_of(found["dims"]), kind))
        else:
            given.append(value(names[-1], None if found["dims"] is None else dims_of(found["dims"]), kind))
    return given, stored, names


def raw_of(case):
    """The nodes of a case as a model; its results are those of the last one."""
    nodes, given, stored, made, domains, version = [], [], [], set(), [], 23
    for text in case.split(" | "):
        operator, inputs, results, attributes = call_of(text)
        more = parts_of(inputs, made)
        given, stored, names = given + more[0], stored + more[1], more[2]
        version = attributes.pop("opset", version)
        domain = "com.microsoft" if operator.startswith("ms.") else attributes.pop("domain", "")
        domains += [domain] if domain else []
        outputs = results or "y"
        made.update(outputs.split())
        nodes.append(node(operator.removeprefix("ms."), names, outputs, domain=domain, **attributes))
    return model(graph(nodes, given, outputs.split(), stored), version=version, domains=dict.fromkeys(domains))


def read(case):
    found = read_bytes(Path("m.onnx"), raw_of(case))
    yield from graph_lines(found)
    notes = ("assumptions", "unknown_shapes", "disagreements")
    yield from (f"{key} {found.metadata[key]['first']}" for key in notes if key in found.metadata)


test_every_operator_becomes_what_is_written_below_it = holds(TOLD, read)

if __name__ == "__main__":
    rewrite(TOLD, read)
