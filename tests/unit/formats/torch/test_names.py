"""Names of modules, of sizes, and of layers that are folded."""

from dataclasses import replace
from itertools import product, zip_longest

import pytest

from inferometer.core.binding import Binding
from inferometer.core.dims import Expression, Symbol, evaluate
from inferometer.formats.torch.body import module_path, name_symbols, parse_size
from inferometer.formats.torch.convert import program_graph
from inferometer.formats.torch.program import Ref
from inferometer.formats.torch.scope import is_in_place
from inferometer.predict import footprint
from unit.formats.torch.programs import call, program, value

S, T = Symbol("s0"), Symbol("s1")


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("7", 7),
        ("s0", 5),
        ("2*s0 + 1", 11),
        ("(s0 - 1)//2 + 1", 3),
        ("s0**2", 25),
        ("-s0 + 6", 1),
        ("s0*s1", 15),
        ("Mod(s0, 2)", 1),
        ("Symbol('s0', positive=True, integer=True)", 5),
        ("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(-1))", 9),
        ("FloorDiv(Symbol('s0'), Integer(2))", 2),
        ("Pow(Symbol('s0'), Integer(3))", 125),
        ("Mod(7, s0)", 2),
    ],
)
def test_an_expression_is_a_size(text, size):
    assert evaluate(parse_size(text, {}), {"s0": 5, "s1": 3}) == size


@pytest.mark.parametrize(
    "text",
    ["Max(1, u0)", "__import__('os').system('true')", "s0//0", "s0 if s1 else 2", "", "s0**s1", "(" * 5000, "'a'*9",
     "s0" + " + s0" * 900, "9" * 4000, "True", "((((s0**8)**8)**8)**8)"],
)  # fmt: skip
def test_what_is_no_size_arithmetic_stays_unknown_under_its_own_name(text):
    assert parse_size(text, {}) == Symbol(text[:80])


def test_symbols_get_the_names_we_give_them():
    assert parse_size("2*s77", {"s77": Symbol("batch")}) == Expression("*", 2, Symbol("batch"))


def test_custom_names_the_axes_of_inputs():
    ids, image = value(S, T, dtype="i64"), value(Symbol("s2"), 3, Symbol("s3"), Symbol("s4"))
    ours, told = name_symbols([("ids", ids), ("image", image)])
    names = {theirs: str(symbol) for theirs, symbol in ours.items()}
    assert names == {"s0": "batch", "s1": "query", "s2": "image.0", "s3": "height", "s4": "width"}
    assert told["image.0"] == "axis 0 of input 'image', s2 in the program"


def test_names_that_are_given_come_first():
    ours, _ = name_symbols([("x", value(S, 4)), ("z", value(T, 4))], {("z", 0): "batch"})
    assert ours == {"s1": Symbol("batch"), "s0": Symbol("x.0")}


@pytest.mark.parametrize(
    ("stack", "path"),
    [
        (None, ""),
        ("L__self__,,main.M", ""),
        ("L__self__,,main.M;L__self__h.0,h.0,torch.nn.Linear", "h.0"),
        ("a,h.0@1,torch.nn.Linear", "h.0"),
        ("a,L['self'].layers[0].fc,torch.nn.Linear", "layers.0.fc"),
        ("nonsense", ""),
        ("a," + "[" * 10_000 + ",b", "[" * 4096),
    ],
)
def test_a_modules_path_is_the_last_of_its_stack(stack, path):
    assert module_path(stack) == path


def chain(paths, extra=(), functions=(), also=""):
    """One relu, or what `functions` say, after another, each in its module."""
    values = {"x": value(4), **{f"t{n}": value(4) for n in range(len(paths))}}
    calls = [
        call(f"{function}.default", f"t{n}", path=path, self=Ref("x" if n == 0 else f"t{n - 1}"))
        for n, (path, function) in enumerate(zip_longest(paths, functions, fillvalue="relu"))
    ]
    for _, output in extra:
        values[output] = value(4)
    calls += [call("add.Tensor", output, self=Ref(first), other=Ref(f"t{len(paths) - 1}")) for first, output in extra]
    last = extra[-1][1] if extra else f"t{len(paths) - 1}"
    return program_graph(program(calls, values, outputs=f"{also} {last}"))


def shape_of(graph):
    return [(block.name, block.count, block.first, len(block.ops)) for block in graph.blocks]


def test_layers_that_differ_in_their_index_only_are_one_block():
    graph = chain([f"layers.{n}.act" for n in range(4)])
    assert shape_of(graph) == [("layers", 4, 0, 1)]
    assert graph.blocks[0].ops[0].name == "layers.{}.act"
    assert graph.outputs[0].name == "x"  # written again by every layer


def test_layers_that_do_something_else_are_blocks_of_their_own():
    made = chain([f"a.{n}.f" for n in range(5)], functions=("relu", "gelu", "gelu", "gelu", "relu"))
    assert shape_of(made) == [("a.0", 1, 0, 1), ("a", 3, 1, 1), ("a.4", 1, 0, 1)]


def test_blocks_repeated_as_often_as_they_say_are_the_program_again():
    """All programs of up to six layers that do one of two things."""
    for functions in (word for size in range(1, 7) for word in product(("relu", "gelu"), repeat=size)):
        made = chain([f"a.{n}.f" for n in range(len(functions))], functions=functions)
        unfolded = [
            (block.full_name(op.name, repetition), op["function"])
            for block in made.blocks
            for repetition in range(block.count)
            for op in block.ops
        ]
        assert unfolded == [(f"a.{n}.f", function) for n, function in enumerate(functions)]


def test_what_the_program_gives_from_its_midst_is_not_written_again():
    made = chain([f"a.{n}.f" for n in range(5)], also="t1")
    assert {block.count for block in made.blocks} == {1}, "a run of the others would begin with what is given"
    first, last = (tensor.name for tensor in made.outputs)
    assert [op.name for _, op in made.ops() for tensor in op.outputs if tensor.name == first] == ["a.1.f"]
    assert first != last


def test_a_gap_in_the_indices_ends_a_run():
    assert shape_of(chain(["a.0.f", "a.1.f", "a.3.f", "a.4.f"])) == [("a", 2, 0, 1), ("a", 2, 3, 1)]


def test_the_first_layer_of_a_run_may_be_unlike_the_others():
    graph = chain(["a.0.f", "a.0.g", "a.1.f", "a.2.f", "a.3.f"])
    assert shape_of(graph) == [("a.0", 1, 0, 2), ("a", 3, 1, 1)]


def test_layers_within_layers_that_differ_are_folded():
    graph = chain(["s.0.f", "s.1.b.0.f", "s.1.b.1.f", "s.1.b.2.f"])
    assert ("s.1.b", 3, 0, 1) in shape_of(graph)


def test_what_others_read_too_is_not_folded():
    graph = chain([f"a.{n}.f" for n in range(5)], extra=[("t0", "y")])
    assert [block.count for block in graph.blocks if block.name.startswith("a")] == [1, 1, 3]


def test_the_input_of_a_run_may_not_be_needed_after_it():
    graph = chain(["a.0.f", "a.1.f", "a.2.f"], extra=[("x", "y")])
    assert shape_of(graph)[:2] == [("a.0", 1, 0, 1), ("a", 2, 1, 1)]


def test_leaf_modules_of_a_sequence_are_not_blocks_of_their_own():
    assert shape_of(chain(["net.0", "net.2", "net.5", ""])) == [("main", 1, 0, 4)]


def test_a_folded_graph_needs_as_much_memory_as_the_unfolded_one():
    folded, plain = chain([f"a.{n}.f" for n in range(5)]), chain([f"a{n}.f" for n in range(5)])
    assert [block.count for block in plain.blocks] == [1]
    assert footprint(folded, Binding()).activations_bytes == footprint(plain, Binding()).activations_bytes == 32


def test_ops_of_one_name_in_a_module_are_numbered():
    values = {"x": value(4), "t": value(4), "y": value(4)}
    calls = [call("relu.default", "t", path="a", self=Ref("x")), call("relu.default", "y", path="a", self=Ref("t"))]
    assert [op.name for _, op in program_graph(program(calls, values)).ops()] == ["a.relu", "a.relu_1"]


def test_a_module_that_computes_one_thing_gives_its_name():
    values = {"x": value(4), "t": value(4), "y": value(4)}
    calls = [call("relu.default", "t", path="a.b", self=Ref("x")), call("neg.default", "y", path="a", self=Ref("t"))]
    assert [op.name for _, op in program_graph(program(calls, values)).ops()] == ["a.b", "a.neg"]


@pytest.mark.parametrize(
    ("target", "changes"),
    [("aten.add_.Tensor", True), ("aten.add.Tensor", False), ("aten.__and__.Tensor", False), ("add_", False),
     ("aten.__iand__.Tensor", False), ("aten._softmax.default", False), ("aten._foreach_add_.List", True),
     ("aten.__odd_.Tensor", True)],
)  # fmt: skip
def test_a_call_that_changes_what_it_is_given_ends_in_one_underscore(target, changes):
    assert is_in_place(call("relu", "y")) is False
    assert is_in_place(replace(call("relu", "y"), target=target)) is changes
