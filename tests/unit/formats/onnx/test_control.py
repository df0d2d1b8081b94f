"""Graphs within graphs: branches, loops, scans, functions."""

from pathlib import Path

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Symbol
from inferometer.formats.onnx import read_bytes, walk
from inferometer.formats.onnx.faults import Fault
from inferometer.predict import coverage, graph_work
from unit.formats.onnx.onnx_bytes import (
    BOOL,
    FLOAT,
    INT64,
    field,
    function,
    graph,
    ints,
    model,
    node,
    only,
    ops,
    read,
    scalar,
    shapes,
    tensor,
    value,
)

X = value("x", ("batch", 8))


def branch(*nodes, output="r", stored=()):
    return graph(nodes, (), [output], stored)


def test_a_branch_that_cannot_be_told_becomes_both():
    then = branch(node("MatMul", "x w", "r"), stored=[tensor("w", (8, 4))])
    other = branch(node("MatMul", "x w", "r"), stored=[tensor("w", (8, 4))])
    nodes = [node("If", "c", "y", name="choice", then_branch=then, else_branch=other)]
    result = read(nodes, [X, value("c", (), BOOL)], ["y"])
    op = only(result)
    assert (op.kind, op["function"], len(op["bodies"]), op["trips"]) == ("control", "if", 2, None)
    assert [body[0].name for body in op["bodies"]] == ["choice/then/r", "choice/else/r"]
    assert op.outputs[0].shape == (Symbol("batch"), 4)
    assert result.parameters == 2 * 32, "the branches' weights have one name and are two"


def test_branches_of_different_shapes_leave_the_difference_open():
    nodes = [
        node("If", "c", "y", then_branch=branch(node("Identity", "x", "r")),
             else_branch=branch(node("Slice", "x zero two axis", "r"))),
    ]  # fmt: skip
    stored = [ints("zero", 0), ints("two", 2), ints("axis", 1)]
    result = read(nodes, [X, value("c", (), BOOL)], ["y"], stored)
    assert only(result).outputs[0].shape == (Symbol("batch"), Symbol("y.1"))


def test_a_branch_that_is_certain_stands_in_place_of_the_choice():
    nodes = [
        node("Shape", "x", "s"), node("Size", "s", "rank"), node("Equal", "rank two", "c"),
        node("If", "c", "y", name="choice", then_branch=branch(node("Relu", "x", "r")),
             else_branch=branch(node("Tanh", "x", "r"))),
        node("Neg", "y", "z"),
    ]  # fmt: skip
    result = read(nodes, [X], ["z"], [scalar("two", 2)])
    assert [op.source_type for op in ops(result)] == ["Shape", "Size", "Equal", "Relu", "Neg"]
    relu = ops(result)[3]
    assert (relu.name, relu.outputs[0].name) == ("choice/r", "y")
    assert result.metadata["branches_taken"]["first"] == {"choice": "then"}


def test_a_branch_for_other_shapes_is_never_taken():
    nodes = [
        node("If", "c", "y", then_branch=branch(node("Relu", "x", "r")),
             else_branch=branch(node("Unsqueeze", "x", "r", axes=(9,)))),
    ]  # fmt: skip
    result = read(nodes, [X, value("c", (), BOOL)], ["y"])
    assert [op.source_type for op in ops(result)] == ["Relu"]


def test_a_choice_neither_of_whose_branches_fits_is_not_known_and_the_file_is_read():
    misfit = branch(node("Unsqueeze", "x", "r", axes=(9,)))
    nodes = [node("If", "c", "y", then_branch=misfit, else_branch=misfit), node("Relu", "x", "z")]
    result = read(nodes, [X, value("c", (), BOOL)], ["y", "z"])
    assert [(op.kind, op.source_type) for op in ops(result)] == [("custom", "If"), ("activation", "Relu")]
    assert "axis 9" in ops(result)[0]["reason"]


def test_what_a_search_or_an_unknown_op_holds_inside_is_the_models():
    """It is not walked, and its weights lie in the file all the same, also those of a graph within a graph."""
    choice = node("If", "c", "r", then_branch=branch(node("MatMul", "x w", "r"), stored=[tensor("w", (8, 4))]),
                  else_branch=branch(node("Relu", "x", "r")))  # fmt: skip
    decoder = branch(node("MatMul", "x v", "q"), choice, stored=[tensor("v", (8, 8))])
    for kind, domain in (("BeamSearch", "com.microsoft"), ("Odd", "acme")):
        found = read([node(kind, "x", "y", decoder=decoder, domain=domain)], [X], ["y"], domains=[domain])
        assert (only(found).kind, found.parameters) == ("custom", 8 * 8 + 8 * 4)


def test_a_squeeze_written_as_a_choice_is_a_squeeze():
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s one", "n"), node("Equal", "n one", "c"),
        node("If", "c", "y", then_branch=branch(node("Squeeze", "x axis", "r")),
             else_branch=branch(node("Identity", "x", "r"))),
    ]  # fmt: skip
    result = read(nodes, [value("x", ("batch", "time"))], ["y"], [scalar("one", 1), ints("axis", 1)])
    assert shapes(result)["y"] == ("batch",)
    assert "1" in next(iter(result.metadata["assumptions"]["first"].values()))


def body(*nodes, carried=("h",), results=("cond", "h2")):
    return graph(
        nodes, [value("i", (), INT64), value("cond", (), BOOL), *(value(name) for name in carried)], list(results)
    )


def test_a_loop_of_a_known_number_of_trips_is_its_body_so_often():
    step = body(node("MatMul", "h w", "h2"))
    nodes = [node("Loop", "five _ x", "y", name="loop", body=step)]
    result = read(nodes, [X], ["y"], [scalar("five", 5), tensor("w", (8, 8))])
    op = only(result)
    assert (op["trips"], op["function"]) == (5, "loop")
    assert op["bodies"][0][0].kind == "linear"
    assert result.parameters == 64
    work = graph_work(result, Binding(sizes={"batch": 3}))
    assert work.flops["f32"] == 5 * 2 * 3 * 8 * 8


def test_sizes_that_fit_in_no_first_trip_are_our_inferences_and_not_the_files():
    """What is carried has one size before the first trip and another after it: engines run such loops."""
    step = body(node("Squeeze", "h axis", "s"), node("Unsqueeze", "s axis", "h2"), node("MatMul", "x w", "o"),
                results=("cond", "h2", "o"))  # fmt: skip
    nodes = [node("Loop", "five _ x", "y ys", name="loop", body=step)]
    result = read(nodes, [X], ["ys"], [scalar("five", 5), tensor("w", (8, 8)), ints("axis", 1)])
    squeezed, *_, product = only(result)["bodies"][0]
    assert (squeezed.kind, product.kind) == ("view", "linear")


def test_sizes_that_fit_in_no_trip_are_not_counted_and_the_file_is_read():
    step = body(node("Squeeze", "x axis", "h2"), node("MatMul", "x w", "o"), results=("cond", "h2", "o"))
    nodes = [node("Loop", "five _ x", "y ys", name="loop", body=step)]
    result = read(nodes, [X], ["ys"], [scalar("five", 5), tensor("w", (8, 8)), ints("axis", 1)])
    squeezed, product = only(result)["bodies"][0]
    assert (squeezed.kind, product.kind) == ("custom", "linear")
    assert squeezed["reason"].startswith("its shapes could not be inferred: squeezes sizes that are not 1")
    assert result.metadata["shapes_not_inferred"]["count"] == 1


def test_a_loop_over_a_sequence_has_as_many_trips():
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "n", axis=0),
        node("Loop", "n _ h0", "hn ys", name="loop",
             body=body(node("Add", "h row", "h2"), node("Gather", "x i", "row", axis=0), node("Relu", "h2", "out"),
                       results=("cond", "h2", "out"))),
    ]  # fmt: skip
    inputs = [value("x", ("steps", "batch", 8)), value("h0", ("batch", 8))]
    result = read(nodes, inputs, ["ys"], [scalar("zero", 0)])
    loop = ops(result)[-1]
    assert loop["trips"] == Symbol("steps")
    assert loop.outputs[1].shape == (Symbol("steps"), Symbol("batch"), 8)


def test_a_loop_that_counts_to_a_limit_itself():
    """As TensorFlow writes `while counter < limit`, with its weights carried around unchanged."""
    step = graph(
        [
            node("Add", "count one", "count2"), node("Less", "count2 limit", "goes"),
            node("MatMul", "h weight", "h2"),
        ],
        [value("i", (), INT64), value("go", (), BOOL), value("count", (), INT64), value("limit", (), INT64), value("h"),
         value("weight")],
        ["goes", "count2", "limit", "h2", "weight"],
    )  # fmt: skip
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s first", "n", axis=0),
        node("Loop", "_ true start n h0 w", "a b y c", body=step),
    ]  # fmt: skip
    stored = [
        scalar("one", 1),
        scalar("first", 0),
        scalar("start", 0),
        tensor("true", (), BOOL, (1,)),
        tensor("w", (8, 8)),
    ]
    inputs = [value("x", ("steps", 8)), value("h0", ("batch", 8))]
    result = read(nodes, inputs, ["y"], stored)
    loop = ops(result)[-1]
    assert loop["trips"] == Symbol("steps")
    assert "linear" in {op.kind for op in loop["bodies"][0]}
    assert result.parameters == 64


def trips_by_running(start, step, limit, most):
    """The loop below, run: the first trip always, another while the counter is below the limit."""
    trips, count = 0, start
    while most is None or trips < most:
        trips, count = trips + 1, count + step
        if count >= limit:
            return trips
    return trips


@pytest.mark.parametrize(
    ("start", "step", "limit", "most"),
    [(0, 1, 5, None), (2, 3, 11, None), (2, 3, 12, None), (1, 4, 6, 100), (0, 1, 9, 4), (0, 1, 4, 9), (0, 2, 9, 5)],
)
@pytest.mark.parametrize("compare", ["Less", "Greater"])
@pytest.mark.parametrize("also", [False, True])
def test_trips_are_as_many_as_running_the_loop_takes(compare, also, start, step, limit, most):  # noqa: PLR0917
    order = "count2 limit" if compare == "Less" else "limit count2"
    ends = [node(compare, order, "first")]
    ends += (
        [node("And", "first second", "goes"), node(compare, order, "second")]
        if also
        else [node("Identity", "first", "goes")]
    )
    inner = graph(
        [node("Add", "count step", "count2"), *ends, node("Relu", "h", "h2")],
        [value("i", (), INT64), value("go", (), BOOL), value("count", (), INT64), value("h")],
        ["goes", "count2", "h2"],
    )  # fmt: skip
    stored = [scalar("step", step), scalar("start", start), scalar("limit", limit), tensor("true", (), BOOL, (1,))]
    stored += [] if most is None else [scalar("most", most)]
    loop = node("Loop", f"{'_' if most is None else 'most'} true start x", "a y", body=inner)
    assert only(read([loop], [X], ["y"], stored))["trips"] == trips_by_running(start, step, limit, most)


@pytest.mark.parametrize(("deep", "known"), [(4, True), (80, False)])
def test_a_condition_that_doubles_with_every_and_is_not_followed_for_ever(deep, known):
    doubled = [node("And", f"c{level + 1} c{level + 1}", f"c{level}") for level in range(deep)]
    inner = graph(
        [node("Add", "count one", "count2"), *doubled, node("Less", "count2 limit", f"c{deep}"),
         node("Relu", "h", "h2")],
        [value("i", (), INT64), value("go", (), BOOL), value("count", (), INT64), value("h")],
        ["c0", "count2", "h2"],
    )  # fmt: skip
    stored = [scalar("one", 1), scalar("start", 0), scalar("limit", 5), tensor("true", (), BOOL, (1,))]
    loop = node("Loop", "_ true start x", "a y", body=inner)
    assert only(read([loop], [X], ["y"], stored))["trips"] == (5 if known else None)


def test_a_loop_that_only_the_data_ends_is_uncovered():
    step = body(node("Relu", "h", "h2"), node("ReduceMax", "h2", "m", keepdims=0), node("Less", "m big", "go"),
                results=("go", "h2"))  # fmt: skip
    result = read([node("Loop", "_ _ x", "y", body=step)], [X], ["y"], [scalar("big", 9.0, FLOAT)])
    assert only(result)["trips"] is None
    assert result.metadata["coverage"]["uncovered"]["Loop"]["count"] == 1
    assert coverage(result).covered == 0


def test_a_value_that_grows_in_a_loop_has_no_fixed_size():
    step = body(node("Concat", "h x", "h2", axis=0))
    result = read([node("Loop", "five _ x", "y", body=step)], [X], ["y"], [scalar("five", 5)])
    rows, columns = only(result).outputs[0].shape
    assert columns == 8
    assert rows not in {Symbol("batch"), 8}


def test_a_scan_has_as_many_trips_as_its_axis_is_long():
    step = graph([node("Add", "h row", "h2"), node("Identity", "h2", "o")], [value("h"), value("row")], ["h2", "o"])
    nodes = [node("Scan", "h0 x", "hn ys", num_scan_inputs=1, body=step)]
    result = read(nodes, [value("h0", ("batch", 8)), value("x", ("steps", "batch", 8))], ["ys"])
    op = only(result)
    assert op["trips"] == Symbol("steps")
    assert op.outputs[1].shape == (Symbol("steps"), Symbol("batch"), 8)


def test_a_function_of_the_files_own_is_put_in_place():
    silu = function("Silu", "a", "b", [node("Sigmoid", "a", "s"), node("Mul", "a s", "b")])
    nodes = [node("Silu", "x", "h", name="one", domain="own"), node("Silu", "h", "y", name="two", domain="own")]
    result = read(nodes, [X], ["y"], functions=[silu], domains=["own"])
    assert [(op.name, op.outputs[0].name) for op in ops(result)] == [
        ("one/s", "one/s"), ("one/b", "h"), ("two/s", "two/s"), ("two/b", "y"),
    ]  # fmt: skip
    assert result.metadata["inlined_functions"]["first"] == {"own.Silu": ""}


def test_a_function_takes_its_callers_attributes():
    """Field 21 of an attribute names the caller's."""
    turn = node("Transpose", "a", "b") + field(5, field(1, "perm") + field(20, 7) + field(21, "order"))
    own = function("Turn", "a", "b", [turn], attributes=["order"])
    nodes = [node("Turn", "x", "y", domain="own", order=(1, 0))]
    result = read(nodes, [X], ["y"], functions=[own], domains=["own"])
    assert only(result).outputs[0].shape == (8, Symbol("batch"))


def test_a_functions_own_attributes_stand_beside_its_callers_and_its_defaults():
    def taken(name, outer):
        return field(5, field(1, name) + field(20, 2) + field(21, outer))

    product = node("Gemm", "a w", "b", transA=1) + taken("transB", "turned")
    normed = node("ReduceSum", "b", "c", noop_with_empty_axes=0) + taken("keepdims", "kept")
    own = function("Act", "a w", "c", [product, normed], attributes=["turned"])
    own += field(11, field(1, "kept") + field(3, 0) + field(20, 2))
    given = [value("x", (8, 3)), value("w", (5, 8))]
    for more, shape in (({}, ()), ({"kept": 1}, (1, 1))):
        nodes = [node("Act", "x w", "y", domain="own", turned=1, **more)]
        result = read(nodes, given, ["y"], functions=[own], domains=["own"])
        assert [op.outputs[0].shape for op in ops(result)] == [(3, 5), shape]
    nodes = [node("Act", "x w", "y", domain="own")]
    wrong = [value("x", (8, 3)), value("w", (8, 5))]
    assert ops(read(nodes, wrong, ["y"], functions=[own], domains=["own"]))[0].outputs[0].shape == (3, 5)


def test_an_input_that_a_caller_leaves_out_is_left_out():
    own = function("Act", "a lo hi", "b", [node("Clip", "a lo hi", "b")])
    result = read([node("Act", "x", "y", domain="own")], [X], ["y"], functions=[own], domains=["own"])
    assert only(result)["function"] == "clip"


def test_a_function_that_calls_itself_is_refused():
    own = function("Again", "a", "b", [node("Again", "a", "b", domain="own")])
    with pytest.raises(Fault, match="nested more than"):
        read([node("Again", "x", "y", domain="own")], [X], ["y"], functions=[own], domains=["own"])


def test_functions_that_multiply_are_refused_in_time(monkeypatch):
    """Each calls the next ten times: a thousand million nodes in a few hundred bytes."""
    monkeypatch.setattr(walk, "MAX_NODES", 2000)
    tower = [
        function(f"F{level}", "a", "b", [
            node(f"F{level + 1}", "a" if turn == 0 else f"t{turn - 1}", f"t{turn}" if turn < 9 else "b", domain="own")
            for turn in range(10)
        ])
        for level in range(9)
    ]  # fmt: skip
    tower.append(function("F9", "a", "b", [node("Relu", "a", "b")]))
    with pytest.raises(Fault, match="more than 2,000 nodes"):
        read([node("F0", "x", "y", domain="own")], [X], ["y"], functions=tower, domains=["own"])


def test_a_body_sees_what_is_outside_and_nothing_more():
    with pytest.raises(Fault, match="made by nothing"):
        read([node("If", "c", "y", then_branch=branch(node("Relu", "nowhere", "r")),
                   else_branch=branch(node("Relu", "nowhere", "r")))], [value("c", (), BOOL)], ["y"])  # fmt: skip


def test_nodes_in_any_order_are_sorted():
    nodes = [node("Relu", "h", "y"), node("Tanh", "x", "h")]
    assert [op.source_type for op in ops(read(nodes, [X], ["y"]))] == ["Tanh", "Relu"]


def test_a_cycle_is_refused_by_the_name_of_a_node_in_it():
    nodes = [node("Add", "x b", "a", name="first"), node("Relu", "a", "b", name="second")]
    with pytest.raises(Fault, match="cyclic") as caught:
        read_bytes(Path("m.onnx"), model(graph(nodes, [X], ["b"])))
    assert "first" in caught.value.where


# What goes through the bodies, at shapes and axes that are not the usual ones


def scanned(body_outputs, *, inputs, stored=(), nodes, **attributes):
    body = graph(nodes, [value(name, None) for name in ("s", "u", "v")], body_outputs)
    version = attributes.pop("version", 17)
    call = node("Scan", "a x z" if version > 8 else "_ a x z", "last stacked other", name="scan", body=body,
                num_scan_inputs=2, **attributes)  # fmt: skip
    return only(read([call], inputs, ["last", "stacked", "other"], stored, version=version))


ADDED = [node("Add", "s u", "t"), node("Concat", "u v", "both", axis=0), node("Neg", "v", "w")]


def test_a_scan_takes_slices_along_its_axes_and_stacks_along_others():
    inputs = [value("a", (3,)), value("x", (3, 5)), value("z", (5, 4))]
    op = scanned(["t", "both", "w"], inputs=inputs, nodes=ADDED, scan_input_axes=(1, 0), scan_output_axes=(1, -1))
    assert op["trips"] == 5
    assert [out.shape for out in op.outputs] == [(3,), (7, 5), (4, 5)]
    assert [inner.outputs[0].shape for inner in op["bodies"][0]] == [(3,), (7,), (4,)]
    plain = scanned(["t", "both", "w"], inputs=[value("a", (3,)), value("x", (5, 3)), value("z", (5, 4))], nodes=ADDED)
    assert [out.shape for out in plain.outputs] == [(3,), (5, 7), (5, 4)]


def test_a_scan_of_operator_set_eight_has_a_batch_before_everything():
    inputs = [value("a", (2, 3)), value("x", (2, 5, 3)), value("z", (2, 5, 4))]
    op = scanned(["t", "both", "w"], inputs=inputs, nodes=ADDED, version=8)
    assert op["trips"] == 10, "each trip of each of the batch"
    assert [out.shape for out in op.outputs] == [(2, 3), (2, 5, 7), (2, 5, 4)]


def test_a_scan_whose_body_takes_other_inputs_is_refused():
    body = graph([node("Identity", "s", "t")], [value("s", None)], ["t"])
    with pytest.raises(Fault, match="a scan over 1 of 2 inputs with a body of 1"):
        read([node("Scan", "a x", "y", body=body, num_scan_inputs=1)], [value("a", (3,)), value("x", (5, 3))], ["y"])


def test_the_body_of_a_sequence_map_runs_once_for_each_element():
    body = graph([node("MatMul", "e w", "r")], [value("e", None), value("w", None)], ["r"])
    nodes = [
        node("SequenceConstruct", "x x x", "s"), node("SequenceMap", "s k", "t", name="each", body=body),
        node("SequenceLength", "t", "n"), node("Unsqueeze", "n zero", "m"), node("ConstantOfShape", "m", "filled"),
        node("SequenceAt", "t first", "y"),
    ]  # fmt: skip
    found = read(
        nodes, [value("x", (2, 5)), value("k", (5, 7))], ["y", "filled"], [ints("zero", 0), scalar("first", 0)]
    )
    op = next(op for op in ops(found) if op.kind == "control")
    assert (op["trips"], op.outputs[0].shape) == (3, (2, 7))
    assert [inner.name for inner in op["bodies"][0]] == ["each/body/r"]
    assert (shapes(found)["y"], shapes(found)["filled"]) == (("2", "7"), ("3",))


def looped(results, *, carried, nodes, trips="most", stored=()):
    names = [f"c{place}" for place in range(len(carried))]
    formals = [value("i", (), INT64), value("go", (), BOOL), *(value(name, None) for name in names)]
    body = graph(nodes, formals, ["go", *results])
    outputs = " ".join(f"y{place}" for place in range(len(results)))
    call = node("Loop", f"{trips} _ {' '.join(carried)}", outputs, name="loop", body=body)
    given = [value("a", (2, 3)), value("b", (4,))]
    return only(read([call], given, outputs.split(), [scalar("most", 6), *stored]))


def test_what_a_loop_changes_is_open_and_what_it_leaves_alone_is_not():
    op = looped(["grown", "c1", "each"], carried=["a", "b"], nodes=[
        node("Concat", "c0 c0", "grown", axis=1), node("Neg", "c1", "each"),
    ])  # fmt: skip
    grown, kept, each = op.outputs
    assert (op["trips"], kept.shape, each.shape) == (6, (4,), (6, 4))
    assert (grown.shape[0], isinstance(grown.shape[1], int)) == (2, False)
    assert [inner.inputs[0].name for inner in op["bodies"][0]] == ["loop/body/c0", "b"], "b is the same in every trip"


def test_a_loop_may_carry_nothing_and_stack_what_it_makes():
    op = looped(["made"], carried=["a"], nodes=[node("Relu", "c0", "made")])
    assert (op["trips"], op.outputs[0].shape) == (6, (2, 3))
    absent = looped(["made", "each"], carried=["_"], nodes=[node("Relu", "b", "made"), node("Relu", "b", "each")])
    assert [out.shape for out in absent.outputs] == [(4,), (6, 4)]


@pytest.mark.parametrize("results", [[], ["c0"]])
def test_a_loop_that_carries_other_than_its_body_takes_is_refused(results):
    with pytest.raises(Fault, match="a loop that carries"):
        looped(results, carried=["a", "b"] if results else ["a"], nodes=[])
