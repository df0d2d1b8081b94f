"""Each op of a graph as a torch module: what it computes, and what it may overwrite."""

from dataclasses import replace

import pytest

from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.measure.calibrate.torch.graphs import _MAKERS, module_of

torch = pytest.importorskip("torch", reason="torch is not installed: no module can be made")


def op(kind, inputs, output, *weights, name="o", **attributes):
    sides = tuple(Tensor(name=f"x{n}", shape=shape) for n, shape in enumerate(inputs))
    kept = tuple(Tensor(name=f"w{n}", shape=shape, role="weight") for n, shape in enumerate(weights))
    return Op(name=name, kind=kind, inputs=sides, outputs=(Tensor(name="y", shape=output),), weights=kept,
              attributes=attributes)  # fmt: skip


def ran(made, *given):
    with torch.inference_mode():
        return _MAKERS[made.kind](torch, made, {}).eval()(*given)


def numbers(*shape):
    size = 1
    for side in shape:
        size *= side
    return (torch.arange(size, dtype=torch.float32).reshape(shape) % 11 - 5) / 3


PLANE = (2, 6, 4, 5)


def test_norms_are_over_the_channels():
    x = numbers(*PLANE)
    layered = ran(op("norm", [PLANE], PLANE, norm="layer", features=6), x)
    wanted = torch.nn.functional.layer_norm(x.permute(0, 2, 3, 1), (6,)).permute(0, 3, 1, 2)
    assert torch.allclose(layered, wanted, atol=1e-5)
    rows = numbers(2, 7, 6)
    assert torch.allclose(ran(op("norm", [(2, 7, 6)], (2, 7, 6), norm="layer", features=6), rows),
                          torch.nn.functional.layer_norm(rows, (6,)), atol=1e-5)  # fmt: skip
    assert torch.allclose(ran(op("norm", [PLANE], PLANE, norm="batch", features=6), x), x, atol=1e-4)


def test_pools_are_of_a_window_or_of_all():
    x = numbers(*PLANE)
    window = {"kernel": (2, 2), "strides": (2, 2), "padding": (0, 0)}
    functional = torch.nn.functional
    assert torch.equal(ran(op("pool", [PLANE], (2, 6, 2, 2), function="max", **window), x), functional.max_pool2d(x, 2))
    average = ran(op("pool", [PLANE], (2, 6, 2, 3), function="average", ceil=True, **window), x)
    assert torch.allclose(average, functional.avg_pool2d(x, 2, ceil_mode=True))
    mean = x.mean((2, 3))
    assert torch.allclose(ran(op("pool", [PLANE], (2, 6), function="global", **window), x), mean, atol=1e-6)
    assert torch.allclose(ran(op("pool", [PLANE], (2, 6, 1, 1), function="average"), x)[:, :, 0, 0], mean, atol=1e-6)


def test_products_have_a_bias_where_it_is_stored():
    kernel = {"in_channels": 6, "out_channels": 4, "kernel": (3, 1), "strides": (2, 1), "padding": (1, 0),
              "dilations": (1, 1), "groups": 2}  # fmt: skip
    bare = _MAKERS["convolution"](torch, op("convolution", [PLANE], PLANE, (4, 3, 3, 1), **kernel), {})
    assert (bare.bias, bare.kernel_size, bare.stride, bare.padding, bare.groups) == (None, (3, 1), (2, 1), (1, 0), 2)
    biased = _MAKERS["convolution"](torch, op("convolution", [PLANE], PLANE, (4, 3, 3, 1), (4,), **kernel), {})
    assert biased.bias is not None
    features = {"in_features": 6, "out_features": 3}
    assert _MAKERS["linear"](torch, op("linear", [(2, 6)], (2, 3), (3, 6), **features), {}).bias is None
    linear = _MAKERS["linear"](torch, op("linear", [(2, 6)], (2, 3), (3, 6), (3,), **features), {})
    assert (linear.bias is not None, linear.weight.shape) == (True, (3, 6))


def test_two_sides_are_added_or_multiplied():
    x, y = numbers(2, 3), numbers(2, 3) + 1
    sides = [(2, 3), (2, 3)]
    assert torch.equal(ran(op("elementwise", sides, (2, 3), function="add"), x, y), x + y)
    assert torch.equal(ran(op("elementwise", sides, (2, 3), function="multiply"), x, y), x * y)
    assert torch.equal(ran(op("elementwise", sides[:1], (2, 3), (3,), function="multiply"), x), x)
    assert torch.equal(ran(op("elementwise", sides[:1], (2, 3), (3,), function="add"), x), x + 1)
    for over, changed in (((True, False), 0), ((False, True), 1), ((True, True), 0)):
        module = _MAKERS["elementwise"](torch, op("elementwise", sides, (2, 3), function="add"), {})
        module.over = over
        given = (x.clone(), y.clone())
        assert module(*given) is given[changed]
        assert torch.equal(given[changed], x + y)


def test_rows_and_planes_are_moved_about():
    x = numbers(*PLANE)
    last = ran(op("copy", [PLANE], (2, 4, 5, 6), function="transpose"), x)
    assert torch.equal(last, x.permute(0, 2, 3, 1))
    assert torch.equal(ran(op("copy", [(2, 4, 5, 6)], PLANE, function="transpose"), last), x)
    joined = ran(op("copy", [PLANE, PLANE], (2, 12, 4, 5), function="concat"), x, x)
    assert torch.equal(joined, torch.cat((x, x), 1))
    rows = numbers(2, 3, 6)
    token = ran(op("copy", [(2, 3, 6)], (2, 4, 6), (1, 1, 6), function="concat"), rows)
    assert torch.equal(token[:, 1:], rows)
    assert not token[:, 0].any()
    assert torch.equal(ran(op("view", [PLANE], (2, 20, 6)), x), x.flatten(2).transpose(1, 2))
    assert torch.equal(ran(op("view", [(2, 3, 6)], (2, 6)), rows), rows[:, 0])
    assert ran(op("view", [PLANE], (2, 120)), x).shape == (2, 120)


def test_heads_attend_apart():
    q, k, v = (numbers(2, 3, 8) + shift for shift in (0.0, 0.3, 0.7))
    found = ran(op("attention", [(2, 3, 8)] * 3, (2, 3, 8), heads=2), q, k, v)
    for head in (slice(0, 4), slice(4, 8)):
        alone = torch.nn.functional.scaled_dot_product_attention(q[..., head], k[..., head], v[..., head])
        assert torch.allclose(found[..., head], alone, atol=1e-5)


def test_only_what_nothing_reads_later_is_overwritten():
    def step(name, kind, inputs, output, **attributes):
        sides = tuple(Tensor(name=each, shape=(2, 3)) for each in inputs)
        return Op(
            name=name, kind=kind, inputs=sides, outputs=(Tensor(name=output, shape=(2, 3)),), attributes=attributes
        )

    features = {"in_features": 3, "out_features": 3}
    weight = (Tensor(name="w", shape=(3, 3), role="weight"),)
    ops = (
        step("first", "activation", ["x"], "a", function="relu"),
        replace(step("fc", "linear", ["a"], "b", **features), weights=weight),
        step("then", "activation", ["b"], "c", function="relu"),
        step("soft", "activation", ["c"], "d", function="gelu"),
        step("sum", "elementwise", ["a", "d"], "y", function="add"),
    )
    x = Tensor(name="x", shape=(2, 3))
    graph = Graph(name="g", blocks=(Block(name="b", ops=ops),), inputs=(x,), outputs=(Tensor(name="y", shape=(2, 3)),))
    model = module_of(torch, graph, {}).eval()
    flags = {name: getattr(module, "inplace", None) for name, module in model.named_modules()}
    assert (flags["first"], flags["then"]) == (False, True), "the input is not ours"
    assert model.get_submodule("sum").over == (True, True)
    given = numbers(2, 3)
    kept = given.clone()
    with torch.inference_mode():
        found = model(given)
        a = torch.relu(kept)
        wanted = a + torch.nn.functional.gelu(torch.relu(model.get_submodule("fc")(a)))
    assert torch.allclose(found, wanted, atol=1e-6)
    assert torch.equal(given, kept)
