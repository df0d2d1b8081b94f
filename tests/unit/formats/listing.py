"""What a reader made of a file as lines of text, one an op, and files of cases with the lines that they become.

A file of cases has a case in a line and below it, indented, what came of it; `#` begins a remark. The cases are written
by hand; `rewrite` fills in the rest, and every line is read before it is committed: the sizes are those of the format's
own specification, worked out from the case.

A case names an operator, its inputs (`x[1,3,8]`, `x:u8[2]`, stored `w*[4,3]`, stored numbers `k*=5` or `s*=(2,3)`, `_`
for none), `->` its results where they are to be told, and `;` its attributes: `Conv x[1,3,9] w*[4,3,2] ; pads=(1,0)`.
"""

import ast
import re

from fakes.every import every

INDENT = "    "
INPUT = re.compile(r"(?P<name>[\w.]+)(:(?P<format>\w+))?(?P<stored>\*)?(\[(?P<dims>[^]]*)\]|=(?P<numbers>.+))?$")


def dims_of(text):
    return tuple(int(dim) if dim.isdecimal() else dim or None for dim in text.split(",")) if text else ()


def call_of(text):
    """The operator of a case, its inputs and results as text, and its attributes."""
    call, _, settings = text.partition(" ; ")
    call, _, results = call.partition(" -> ")
    operator, _, inputs = call.partition(" ")
    pairs = (word.partition("=") for word in settings.split())
    return operator, inputs, results, {key: ast.literal_eval(number) for key, _, number in pairs}


def size(dim):
    return str(dim).replace(" ", "")


def tensor_text(tensor):
    role = "" if tensor.role == "activation" else f"{tensor.role} "
    stored = f"={tensor.stored_bytes}B" if tensor.stored_bytes is not None else ""
    return f"{role}{tensor.name} {tensor.dtype}[{','.join(map(size, tensor.shape))}]{stored}"


def value_text(value):
    if isinstance(value, tuple | list):
        return f"({','.join(map(value_text, value))})"
    return repr(value) if isinstance(value, str) and " " in value else size(value)


def op_lines(op, indent=""):
    """Two lines at most: what goes in, is stored and comes out; then the attributes. Bodies follow, deeper."""
    reads = ", ".join(map(tensor_text, (*op.inputs, *op.weights)))
    makes = ", ".join(map(tensor_text, op.outputs))
    plain = {key: value for key, value in op.attributes.items() if key != "bodies"}
    words = " ".join(f"{key}={value_text(value)}" for key, value in sorted(plain.items()))
    yield f"{indent}{op.kind} {op.name}: {reads} -> {makes}{f' | {words}' if words else ''}"
    for body in op.get("bodies", ()):
        yield f"{indent}{INDENT}body"
        for inner in body:
            yield from op_lines(inner, indent + INDENT)


def graph_lines(graph):
    for block in graph.blocks:
        if len(graph.blocks) > 1:
            yield f"block {block.name} {block.count} times, the first after {block.first}"
        for op in block.ops:
            yield from op_lines(op)
    kept = [tensor for tensor in graph.outputs if tensor.role == "constant"]
    yield from (f"gives {tensor_text(tensor)}" for tensor in kept)


def outcome(read, case):
    """The lines of the case's graph, or the one that says why there is none."""
    try:
        return list(read(case))
    except Exception as error:  # noqa: BLE001 - what was said of a bad case is an outcome too
        return [f"{type(error).__name__}: {str(error).splitlines()[0]}"]


def cases_in(path):
    """{case: the lines that it became}."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(INDENT):
            found[list(found)[-1]].append(line.removeprefix(INDENT))
        elif line.strip() and not line.startswith("#"):
            assert line not in found, line
            found[line] = []
    return found


def holds(path, read):
    """A test that every case of the file becomes what the file says."""
    expected = cases_in(path)

    @every(expected)
    def test_every_case_becomes_what_is_written_below_it(case):
        assert outcome(read, case) == expected[case]

    return test_every_case_becomes_what_is_written_below_it


def rewrite(path, read):
    kept = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith(INDENT):
            continue
        kept.append(line)
        if line.strip() and not line.startswith("#"):
            kept += [INDENT + told for told in outcome(read, line)]
    path.write_text("\n".join(kept) + "\n", encoding="utf-8")
