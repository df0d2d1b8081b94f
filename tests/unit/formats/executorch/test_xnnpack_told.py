"""What each node of a delegate's data becomes; and a program by hand, with every kind of value and instruction.

`xnnpack_told.txt` has the nodes, in the words of `unit/formats/listing.py`: `fields` are the node's own by number,
`limits` those of its results; a format that begins with `q` is quantised. `python
tests/unit/formats/executorch/test_xnnpack_told.py` writes the lines below the cases anew (with src and tests on the
path).
"""

import struct
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.errors import FormatError
from inferometer.core.graph import Tensor
from inferometer.formats.executorch.graph import (
    KINDS,
    XnnGraph,
    XnnNode,
    XnnSite,
    XnnValue,
    parse_xnnpack,
    pte_graph,
    xnnpack_ops,
)
from inferometer.formats.executorch.program import Delegate, Instruction, PteTensor, TensorList, parse_program
from unit.formats.listing import INPUT, call_of, dims_of, holds, op_lines, rewrite
from unit.formats.tflite.tflite_bytes import Numbers, Table, ints, serialised

TOLD = Path(__file__).parent / "xnnpack_told.txt"
ROWS = {row.name.removeprefix("XNN"): row for row in KINDS.values()}


def value_of(word):
    found = INPUT.match(word)
    form = found["format"] or "f32"
    shape = dims_of(found["dims"])
    stored = 1000 if found["stored"] else None
    return XnnValue(shape=shape, dtype=form.removeprefix("q"), stored_bytes=stored, quantised=form.startswith("q"))


def read(case):
    name, given, made, settings = call_of(case)
    fields, limits = settings.get("fields", {}), settings.get("limits")
    words = (*given.split(), *made.split())
    values = dict(enumerate(map(value_of, words)))
    count = len(given.split())
    node = XnnNode(
        kind=ROWS[name], table=SimpleNamespace(number=lambda field, _letter: fields.get(field, 0)),
        inputs=tuple(range(count)), outputs=tuple(range(count, len(words))),
        limits=None if limits is None else tuple(map(float, limits)),
    )  # fmt: skip
    for op in xnnpack_ops(XnnSite(graph=XnnGraph(values=values, nodes=(node,)), instruction=7, arguments=())):
        yield from op_lines(op)


test_every_node_becomes_what_is_written_below_it = holds(TOLD, read)


def test_a_value_of_the_call_is_its_argument_and_one_that_is_not_there_is_its_own():
    values = {
        0: XnnValue(shape=(2, 3), dtype="f32", external=1), 1: XnnValue(shape=(2, 3), dtype="f32", external=2),
        2: XnnValue(shape=(2, 3), dtype="f32", external=5),
    }  # fmt: skip
    given = Tensor(name="x", shape=(2, 3), dtype="f32")
    nodes = (XnnNode(kind=ROWS["Add"], table=None, inputs=(0, 1), outputs=(2,)),)
    site = XnnSite(graph=XnnGraph(values=values, nodes=nodes), instruction=4, arguments=(None, given, None))
    (op,) = xnnpack_ops(site)
    assert (op.name, [tensor.name for tensor in (*op.inputs, *op.outputs)]) == (
        "add_4.0",
        ["x", "value_4.1", "value_4.2"],
    )


# A program by hand


def value(kind, fields=None):
    return Table({0: ("B", kind), 1: Table(fields or {})})


def tensor(*shape, kind=6, **fields):
    return value(5, {0: ("b", kind), 2: ints(*shape), **{int(key[1:]): given for key, given in fields.items()}})


MEMORY = Table({0: ("I", 1)})
VALUES = (
    tensor(2, 3, f6=MEMORY), tensor(3, 4, f5=("I", 1), f9=Table({1: "fc.weight"})),
    tensor(2, 4, f6=MEMORY, f8=("b", 1)), tensor(4, kind=4, f5=("I", 2), f6=MEMORY),
    tensor(5, kind=15, f9=Table({2: ("b", 1)})), value(1), value(2, {0: ("q", -7)}), value(3, {0: ("?", True)}),
    value(4, {0: ("d", 0.5)}), value(6, {0: "word"}), value(7, {0: Numbers("q", (6, 5, 6))}),
    value(8, {0: Numbers("d", (0.5, 2.0))}), value(9, {0: Numbers("?", (True, False))}), value(10, {0: ints(0, 2)}),
    value(11, {0: ints(-1, 0)}), value(2), tensor(2, 4, f6=MEMORY),
)  # fmt: skip


def call(operator, *args):
    return Table({0: ("B", 1), 1: Table({0: ("i", operator), 1: ints(*args)})})


STEPS = (
    call(0, 0, 1, 2, 2), Table({0: ("B", 2), 1: Table({0: ("i", 0), 1: ints(2, 16)})}),
    Table({0: ("B", 3), 1: Table({0: ("i", 2), 1: ("i", 16)})}), Table({0: ("B", 4), 1: Table({})}),
    Table({0: ("B", 5), 1: Table({})}), call(1, 16, 2, 2),
)  # fmt: skip
OPERATORS = [Table({0: "aten::mm", 1: "out"}), Table({0: "aten::relu"})]
DELEGATES = [Table({0: "Some", 1: Table({0: ("b", 0), 1: ("I", 0)})})]


def file_of(*, steps=STEPS, values=VALUES, delegates=DELEGATES, methods=("forward",), segments=()):
    def plan(name):
        return Table({
            0: name, 2: list(values), 3: ints(0), 4: ints(16), 5: [Table({2: list(steps)})], 6: OPERATORS,
            7: list(delegates),
        })  # fmt: skip

    return serialised(
        Table({1: [plan(name) for name in methods], 3: [Table({0: b"abcde"})], 4: list(segments)}), b"ET12"
    )


def test_every_kind_of_value_and_instruction_comes_out_as_it_went_in():
    raw = file_of(methods=("other", "forward"))
    found = parse_program(raw, Path("m.pte"))
    assert (found.method, found.methods, found.inputs, found.outputs) == ("forward", ("other", "forward"), (0,), (16,))
    assert list(found.values.values()) == [
        PteTensor(shape=(2, 3), dtype="f32"), PteTensor(shape=(3, 4), dtype="f32", stored=True, name="fc.weight"),
        PteTensor(shape=(2, 4), dtype="f32", open=True), PteTensor(shape=(4,), dtype="i64", changing=True),
        PteTensor(shape=(5,), dtype="bf16", stored=True), None, -7, True, 0.5, "word", (-7, None, -7), (0.5, 2.0),
        (True, False), TensorList((0, 2)), TensorList((-1, 0)), 0, PteTensor(shape=(2, 4), dtype="f32"),
    ]  # fmt: skip
    given = Delegate(backend="Some", start=raw.rindex(b"abcde"), size=5)
    assert found.instructions == (
        Instruction(args=(0, 1, 2, 2), operator="aten::mm.out"), Instruction(args=(2, 16), delegate=given),
        Instruction(args=(2, 16)), Instruction(args=(), jumps=True), Instruction(args=()),
        Instruction(args=(16, 2, 2), operator="aten::relu"),
    )  # fmt: skip
    assert parse_program(file_of(methods=("b", "a")), Path("m.pte")).method == "b"


def test_a_value_that_is_moved_is_the_one_it_was_and_notes_say_what_is_not_seen():
    raw = file_of(methods=("other", "forward"))
    graph = pte_graph(parse_program(raw, Path("m.pte")), raw, Path("m.pte"))
    product, opaque, last = (op for _, op in graph.ops())
    assert (product.name, [t.name for t in product.inputs], [t.name for t in product.weights]) == (
        "mm_0", ["input_0"], ["fc.weight"],
    )  # fmt: skip
    assert (opaque.name, opaque["reason"].partition(" ")[2][:14], opaque.weights[0].nbytes) == (
        "some_1",
        "Some was given",
        5,
    )
    assert ([t.name for t in opaque.inputs], [t.name for t in opaque.outputs]) == (["value_2"], ["value_16"])
    assert ([t.name for t in last.inputs], [t.name for t in graph.outputs]) == (["value_2"], ["value_2"])
    assert graph.metadata["notes"] == (
        "The graph is that of the method forward; it also has other.",
        "Some sizes are open; the graph has the largest that the program takes.",
        "It has branches or loops; each instruction is counted once.",
    )
    assert (graph.metadata["backends"], graph.precision) == ({"Some": 1}, "f32")
    plain = file_of(steps=STEPS[:1], values=(VALUES[0], VALUES[1], VALUES[16], *VALUES[3:]))
    assert pte_graph(parse_program(plain, Path("m.pte")), plain, Path("m.pte")).metadata["notes"] == ()


def node(kind, reads, makes):
    return Table({0: ("B", kind), 1: Table({0: ("I", reads), 1: ("I", makes)})})


def delegated(*nodes, values=()):
    """The data of a delegate: a short header that says where the flatbuffer begins and how long it is."""
    body = serialised(Table({1: list(nodes), 2: list(values)}), b"XN01")
    return bytes(4) + b"XH00" + bytes(2) + struct.pack("<II", 30, len(body)) + bytes(12) + body


def test_a_node_of_a_later_version_and_one_without_its_values_are_refused():
    values = [
        Table(
            {0: ("B", 1), 1: Table({0: ("h", 1), 2: Numbers("I", (3, 4)), 4: ("I", 7), 5: ("I", 1), 6: ("I", number)})}
        )
        for number in (2, 4)
    ]
    made = parse_xnnpack(delegated(node(4, 2, 4), values=values), Path("m.pte"))
    assert [(value.shape, value.dtype, value.external) for value in made.values.values()] == [((3, 4), "f32", 7)] * 2
    assert [(one.kind.name, one.inputs, one.outputs) for one in made.nodes] == [("XNNSigmoid", (2,), (4,))]
    for wrong, why in ((node(48, 2, 4), "is of kind 48"), (Table({0: ("B", 4)}), "is of kind 4"),
                       (node(4, 2, 5), "speaks of value 5; there are 2")):  # fmt: skip
        with pytest.raises(FormatError, match=why):
            parse_xnnpack(delegated(wrong, values=values), Path("m.pte"))
    assert parse_xnnpack(b"\0" * 40, Path("m.pte")) is None


NO_DATA, OUT_OF_PLACE = [Table({0: "Some"})], [Table({0: "Some", 1: Table({1: ("I", 1)})})]
ELSEWHERE = [Table({0: "Some", 1: Table({0: ("b", 1)})})]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (file_of(methods=()), "it has no method"),
        (b"\x08\0\0\0XX12" + bytes(40), "identifier ET12 is missing"),
        (file_of(delegates=NO_DATA), "has no data"),
        (file_of(delegates=OUT_OF_PLACE), "has its data in part 1 of 1"),
        (file_of(delegates=ELSEWHERE), "has its data in part 0 of 0"),
        (
            file_of(delegates=ELSEWHERE, segments=[Table({1: ("Q", 5)})]),
            "the header that says where segments begin is missing",
        ),
        (file_of(steps=(Table({0: ("B", 1)}),)), "is empty"),
        (file_of(steps=(call(2, 0),)), "calls number 2 of 2"),
        (file_of(steps=(call(-1, 0),)), "calls number -1 of 2"),
        (file_of(steps=(call(0, 17),)), "speaks of value 17; there are 17"),
        (file_of(values=(*VALUES[:-1], tensor(2, -4))), "has a size of -4"),
        (file_of(values=(*VALUES[:-1], tensor(2, kind=99))), "numbers of type 99"),
        (file_of(values=(*VALUES[:-1], value(12))), "has the kind 12"),
    ],
)
def test_a_program_that_cannot_be_is_refused(raw, why):
    with pytest.raises(FormatError, match=why):
        parse_program(raw, Path("m.pte"))


if __name__ == "__main__":
    rewrite(TOLD, read)
