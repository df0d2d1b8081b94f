from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.formats.stored import (
    Companion,
    Stored,
    all_stacked,
    fit,
    joined,
    listed,
    tensors_graph,
    with_others,
    with_stored,
)


def weight(name, *shape):
    return Tensor(name=name, shape=shape, role="weight")


def stored(name, shape, dtype="f32", nbytes=None):
    size = 4 if dtype == "f32" else 2
    total = size
    for side in shape:
        total *= side
    return Stored(names=(name,), shape=shape, dtype=dtype, nbytes=total if nbytes is None else nbytes)


LAYER = Op(name="l.{}.up", kind="linear", weights=(weight("l.{}.up.weight", 4, 8),))
GRAPH = Graph(
    name="g",
    blocks=(
        Block(name="embed", ops=(Op(name="e", kind="embedding", weights=(weight("e.weight", 10, 8),)),)),
        Block(name="decoder", ops=(LAYER,), count=4, first=2),
    ),
)


def test_layers_stored_alike_stay_one_block():
    entries = {name: stored(name, (4, 8), "f16") for name in (f"l.{layer}.up.weight" for layer in range(2, 6))}
    graph = with_stored(GRAPH, entries)
    assert [(b.name, b.first, b.count) for b in graph.blocks] == [("embed", 0, 1), ("decoder", 2, 4)]
    assert graph.blocks[1].ops[0].weights[0].dtype == "f16"
    assert graph.parameters == GRAPH.parameters


def test_runs_of_layers_keep_their_order_and_their_numbers():
    formats = {2: "f16", 3: "f32", 4: "f32", 5: "f16"}
    graph = with_stored(GRAPH, {f"l.{n}.up.weight": stored("x", (4, 8), kind) for n, kind in formats.items()})
    assert [(b.first, b.count, b.ops[0].weights[0].dtype) for b in graph.blocks[1:]] == [
        (2, 1, "f16"), (3, 2, "f32"), (5, 1, "f16"),
    ]  # fmt: skip
    assert graph.parameters == GRAPH.parameters


def test_what_the_file_does_not_name_stays_as_it_is():
    assert with_stored(GRAPH, {}).blocks == GRAPH.blocks


def test_scales_are_further_weights_and_no_parameters():
    scales = Companion(suffix=".scales", shape=(4, 1), dtype="f16", nbytes=8)
    entry = Stored(names=("x",), shape=(4, 8), dtype="i4", nbytes=16, companions=(scales,))
    graph = with_stored(GRAPH, {f"l.{n}.up.weight": entry for n in range(2, 6)})
    weights = graph.blocks[1].ops[0].weights
    assert [(w.name, w.role, w.nbytes) for w in weights] == [
        ("l.{}.up.weight", "weight", 16), ("l.{}.up.scales", "constant", 8),
    ]  # fmt: skip
    assert graph.parameters == GRAPH.parameters


def test_what_does_not_fit_is_named():
    tensors = {"e.weight": stored("e.weight", (10, 8)), "l.2.up.weight": stored("l.2.up.weight", (4, 9))}
    found, problems = fit(GRAPH, lambda name, _: tensors.get(name))
    assert list(found) == ["e.weight"]
    assert problems[0] == "l.2.up.weight has 36 numbers where the architecture has 32"
    assert problems[1:] == [f"l.{n}.up.weight is not in the file" for n in (3, 4, 5)]


def test_several_tensors_joined_have_the_format_most_numbers_have():
    whole = joined([stored("a", (4, 4), "f32"), stored("b", (8, 4), "f16"), stored("c", (1,), "f32")])
    assert (whole.names, whole.elements, whole.dtype, whole.nbytes) == (("a", "b", "c"), 49, "f16", 64 + 64 + 4)


def test_equal_tensors_stack():
    assert all_stacked([stored("a", (2, 3)), stored("b", (2, 3))]).shape == (2, 2, 3)
    assert all_stacked([stored("a", (2, 3)), None]) is None


def test_a_stack_has_the_scales_of_all_its_parts():
    scales = Companion(suffix=".scales", shape=(4, 1), dtype="f16", nbytes=8)
    parts = [Stored(names=(name,), shape=(4, 8), dtype="i4", nbytes=16, companions=(scales,)) for name in "abc"]
    (stacked,) = all_stacked(parts).companions
    assert (stacked.shape, stacked.nbytes) == ((3, 4, 1), sum(part.companions[0].nbytes for part in parts))
    assert (stacked.suffix, stacked.dtype, all_stacked(parts).nbytes) == (".scales", "f16", 48)


def test_of_many_entries_the_first_are_shown_and_the_rest_are_counted():
    for count in range(9):
        shown, _, more = listed([str(number) for number in range(count)]).partition("; and ")
        assert shown.split("; ") == [str(number) for number in range(min(count, 5))] or not count
        assert more == (f"{count - 5} more" if count > 5 else "")


def test_stored_tensors_without_an_op_take_room_and_no_time():
    tensors = {name: stored(name, (3,)) for name in ("used", "mask", "copy", "w")}
    used = {"e.weight": tensors["used"]}
    graph, notes = with_others(
        GRAPH, tensors, used, lambda entry: entry.names[0] in {"mask", "copy"}, lambda entry: entry.names[0] == "copy"
    )
    roles = [(op.kind, op.weights[0].role) for op in graph.blocks[-1].ops]
    assert roles == [("view", "constant"), ("view", "constant"), ("view", "weight")]
    assert notes == ["Tensors that no op uses: copy; w."]


def test_a_graph_of_tensors_tells_kinds_by_shape():
    tensors = [
        stored("model.embed.weight", (100, 8)), stored("lm.weight", (100, 8)), stored("lm.bias", (100,)),
        *(stored(f"layers.{n}.norm.weight", (8,)) for n in (0, 1, 10)),
        *(stored(f"layers.{n}.experts.{e}.up.weight", (4, 8)) for n in (0, 1, 10) for e in range(3)),
        stored("conv.weight", (4, 3, 3, 3)),
    ]  # fmt: skip
    graph = tensors_graph("t", tensors)
    kinds = {op.name: op.kind for _, op in graph.ops()}
    assert kinds == {
        "model.embed": "embedding", "lm": "linear", "layers.{}.norm": "norm", "layers.{}.experts.*.up": "custom",
        "conv": "custom",
    }  # fmt: skip
    assert [(b.first, b.count) for b in graph.blocks if b.name == "layers"] == [(0, 2), (10, 1)]
    assert graph.parameters == sum(entry.elements for entry in tensors)
    assert (graph.metadata["coverage"]["nodes"], graph.metadata["coverage"]["covered"]) == (9, 5)


def test_a_name_with_braces_does_not_become_a_layer():
    graph = tensors_graph("t", [stored("odd{}name", (2, 2)), stored("odd0name", (2, 2))])
    assert graph.parameters == 8
