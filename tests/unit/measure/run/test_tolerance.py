"""Limits by the formats of both sides: real int8 models of ONNX Runtime pass, wrong ones fail at the same limits."""

from dataclasses import replace

import numpy as np
import pytest

from inferometer.core.errors import DomainError
from inferometer.formats.resolve import read
from inferometer.measure.run.tolerance import (
    Formats,
    Noise,
    Tolerance,
    formats_of_side,
    noise_between,
    product_count,
    rounding,
    summed_terms,
)
from inferometer.measure.run.verify import compare_arrays, compare_text

CHANNELS, LAYERS = 16, 6


def normal(shape, seed, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(np.float32)


def write_network(path, *, skip=None):
    """Convolutions with ReLU, every other one around a residual path, and a linear layer; `skip` leaves one out."""
    onnx = pytest.importorskip("onnx")
    helper, weights, nodes, at = onnx.helper, [], [], "x"

    def weight(name, values):
        weights.append(onnx.numpy_helper.from_array(values, name))
        return name

    for layer in range(LAYERS):
        if layer == skip:
            continue
        kernel = normal((CHANNELS, CHANNELS, 3, 3), layer, scale=(2 / (9 * CHANNELS)) ** 0.5)
        nodes += [
            helper.make_node("Conv", [at, weight(f"w{layer}", kernel)], [f"c{layer}"], f"conv{layer}", pads=[1] * 4),
            helper.make_node("Relu", [f"c{layer}"], [f"r{layer}"], f"relu{layer}"),
        ]
        if layer % 2:
            nodes.append(helper.make_node("Add", [f"r{layer}", at], [f"a{layer}"], f"add{layer}"))
        at = f"a{layer}" if layer % 2 else f"r{layer}"
    head = weight("head", normal((CHANNELS, 50), 99, scale=0.25))
    nodes += [
        helper.make_node("GlobalAveragePool", [at], ["pooled"], "pool"),
        helper.make_node("Flatten", ["pooled"], ["flat"], "flat"),
        helper.make_node("MatMul", ["flat", head], ["y"], "head"),
    ]
    ends = [helper.make_tensor_value_info(*end) for end in (("x", 1, [1, CHANNELS, 12, 12]), ("y", 1, [1, 50]))]
    graph = helper.make_graph(nodes, "network", ends[:1], ends[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


class Inputs:
    """What ONNX Runtime calibrates its scales with."""

    def __init__(self):
        self.left = [{"x": normal((1, CHANNELS, 12, 12), seed)} for seed in range(4)]

    def get_next(self):
        return self.left.pop() if self.left else None


def quantised(source, path, kind):
    pytest.importorskip("onnxruntime")
    from onnxruntime.quantization import QuantFormat, QuantType, quantize_dynamic, quantize_static

    if kind == "dynamic":
        quantize_dynamic(source, path)
    else:
        form = QuantFormat.QDQ if kind == "qdq" else QuantFormat.QOperator
        quantize_static(source, path, Inputs(), quant_format=form, weight_type=QuantType.QInt8)
    return path


def outputs(path):
    import onnxruntime

    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(
        None, {"x": normal((1, CHANNELS, 12, 12), 7)}
    )[0]


@pytest.fixture(scope="module")
def exact(tmp_path_factory):
    return write_network(tmp_path_factory.mktemp("models") / "exact.onnx")


@pytest.fixture(scope="module", params=["qdq", "operators", "dynamic"])
def int8(request, exact):
    return quantised(exact, exact.with_name(f"{request.param}.onnx"), request.param)


def noise_of(path, reference):
    mine, right = (formats_of_side(read(str(each)), None, None) for each in (path, reference))
    return noise_between(mine, right, products=product_count(read(str(path))))


def test_int8_by_onnx_runtime_is_verified_and_would_not_be_by_the_limits_of_f32(exact, int8):
    ours, theirs, noise = {"y": outputs(int8)}, {"y": outputs(exact)}, noise_of(int8, exact)
    found = compare_arrays(ours, theirs, against="r", noise=noise)
    assert found.status == "verified", found.reason
    assert found.rms_rel < noise.of_arrays / 2  # with room
    assert "i8" in found.tolerance
    assert f"{LAYERS + 1} products" in found.tolerance
    assert compare_arrays(ours, theirs, against="r").status == "failed"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda y: np.roll(y, 1),
        lambda y: y[..., ::-1],
        lambda y: 1.1 * y,
        lambda y: 0.5 * y,
        lambda y: -y,
        lambda y: y + 0.2 * np.abs(y).max(),
        lambda y: np.where(np.arange(y.size) % 10 == 3, 0.0, y),  # every tenth channel is dropped
    ],
)
def test_a_wrong_answer_fails_in_int8(exact, int8, wrong):
    noise = noise_of(int8, exact)
    found = compare_arrays({"y": wrong(outputs(int8))}, {"y": outputs(exact)}, against="r", noise=noise)
    assert found.status == "failed"


@pytest.mark.parametrize("layer", range(LAYERS))
def test_a_dropped_layer_fails_in_int8(exact, tmp_path, layer):
    short = quantised(write_network(tmp_path / "short.onnx", skip=layer), tmp_path / "q.onnx", "dynamic")
    found = compare_arrays({"y": outputs(short)}, {"y": outputs(exact)}, against="r", noise=noise_of(short, exact))
    assert found.status == "failed"


def test_formats_are_read_from_the_files(exact, int8):
    assert formats_of_side(read(str(exact)), None, None) == Formats()
    found = formats_of_side(read(str(int8)), None, None)
    assert found.weights in {"i8", "u8"}
    assert found.activations in {"i8", "u8"}
    assert formats_of_side(read(str(exact)), None, "bf16").activations == "bf16"
    assert formats_of_side(read(str(exact)), "q4_0", "f32") == Formats(weights="q4_0", activations="q8_0")


@pytest.mark.parametrize(
    ("name", "share"),
    [("f32", 3.4e-8), ("f16", 2.8e-4), ("bf16", 2.3e-3), ("f8e4m3", 0.036), ("f8e5m2", 0.072), ("i8", 9e-3),
     ("q8_0", 5e-3), ("q4_0", 0.079), ("i4", 0.144)],
)  # fmt: skip
def test_what_a_format_rounds(name, share):
    """Against numbers that were really rounded: floats by their significant bits, blocks by their largest."""
    assert rounding(name) == pytest.approx(share, rel=0.06)
    x = np.random.default_rng(0).standard_normal((400, 32))
    if name in {"q8_0", "q4_0"}:
        steps = np.abs(x).max(-1, keepdims=True) / (127 if name == "q8_0" else 8)
        assert np.std(np.round(x / steps) * steps - x) == pytest.approx(share, rel=0.15)
    elif name == "f16":
        assert np.sqrt(np.mean((x.astype(np.float16) / x - 1) ** 2)) == pytest.approx(share, rel=0.5)
    elif name == "i8":
        steps = np.abs(x).max() / 127
        assert np.std(np.round(x / steps) * steps - x) == pytest.approx(share, rel=0.15)


def test_limits_grow_with_depth_and_coarseness_and_end():
    exact = Formats()
    limits = [
        noise_between(Formats(weights=name), exact, products=50).of_arrays for name in ("f32", "f16", "bf16", "i8")
    ]
    assert limits == sorted(limits)
    assert limits[0] == 1e-3
    deep = noise_between(Formats(weights="i8", activations="i8"), exact, products=10_000)
    assert (deep.of_arrays, deep.of_text) == (0.25, 0.5)
    assert noise_between(Formats(weights="i8"), Formats(weights="i8"), products=9, same_weights=True).rms < 1e-6


def test_sums_in_f16_are_allowed_what_they_err():
    """A product of normal numbers, added up in f16 one after the other."""
    random, terms = np.random.default_rng(0), 512
    left, right = (random.standard_normal((400, terms)).astype(np.float16) for _ in range(2))
    total = np.zeros(400, np.float16)
    for column in range(terms):
        total = (left[:, column].astype(np.float32) * right[:, column] + total).astype(np.float16)
    exact = (left.astype(np.float64) * right).sum(1)
    error = np.linalg.norm(total - exact) / np.linalg.norm(exact)
    half = Formats(weights="f16", activations="f16", sums="f16")
    allowed = noise_between(half, Formats(), products=1, terms=terms).rms
    assert 0.5 * allowed < error < allowed
    assert noise_between(replace(half, sums="f32"), Formats(), products=1, terms=terms).rms < 0.2 * error
    assert "added up in f16" in str(half)


def test_terms_are_what_a_convolution_adds_up(tmp_path):
    # Six convolutions of 3 × 3 × 16, and a linear layer of 16.
    path = tmp_path / "network.onnx"
    write_network(path)
    assert summed_terms(read(str(path))) == LAYERS * 9 * CHANNELS + CHANNELS


def test_a_user_sets_limits_of_their_own():
    x, noise = np.linspace(-1, 1, 50), Noise(rms=0.06)
    off = {"y": 1.02 * x}
    assert compare_arrays(off, {"y": x}, against="r", noise=noise).status == "verified"
    strict = compare_arrays(off, {"y": x}, against="r", noise=noise, tolerance=Tolerance(relative=0.01))
    assert (strict.status, "0.01 of an output's largest" in strict.tolerance) == ("failed", True)


def logits(seed, lead=0.0):
    rows = normal((40, 100), seed)
    rows[np.arange(40), np.arange(40) % 100] += lead
    return rows


def text(rows):
    return {"ids": np.arange(40) % 100, "made": np.array([1]), "logits": rows}


def test_near_ties_may_fall_either_way_and_settled_tokens_may_not():
    """Random logits have near ties at most positions; rounding in 8 bits turns some of them over."""
    noise = Noise(rms=0.1, bits=8.5)
    noisy = logits(0) + normal((40, 100), 1, scale=0.05)
    tied = compare_text(text(noisy), text(logits(0)), against="r", noise=noise)
    assert (tied.status, tied.top_1 < 1) == ("verified", True)
    led = logits(0, lead=8.0)
    other = led.copy()
    other[:6, 50] += 20.0  # six settled positions choose another token
    assert compare_text(text(led), text(led), against="r", noise=noise).status == "verified"
    assert compare_text(text(other), text(led), against="r", noise=noise).status == "failed"


@pytest.mark.parametrize("wrong", [lambda z: np.roll(z, 1, axis=-1), lambda z: 0.5 * z, lambda z: z[::-1]])
def test_wrong_logits_fail_in_four_bits(wrong):
    noise = noise_between(Formats(weights="q4_0", activations="q8_0"), Formats(), products=240)
    led = logits(0, lead=8.0)
    assert compare_text(text(wrong(led)), text(led), against="r", noise=noise).status == "failed"


def test_the_likelihood_that_may_be_lost_follows_the_bits():
    found = [
        noise_between(Formats(weights=name), Formats(), products=9).nll for name in ("f16", "q8_0", "q4_0", "q2_k")
    ]
    assert found == pytest.approx([0.05, 0.05, 0.216, 0.51])


def test_the_command_takes_only_what_a_verification_uses():
    from inferometer.cli.commands.profile import _OF_OUTPUTS, command

    assert {"runtime", "unit", "seed", "prompt", "relative"} <= _OF_OUTPUTS
    others = {option.name: option for option in command.params if option.name not in _OF_OUTPUTS}
    assert {"runs", "seconds", "warmup", "no_shape", "no_guard", "strict", "depth", "project", "against"} <= {*others}
    for name in ("no_shape", "no_guard", "strict", "no_store", "dataflow"):
        given = others[name].opts[-1]
        with pytest.raises(DomainError, match=f"{given} is of a measurement"):
            command.main(["m.onnx", "--outputs-only", "--verify", "onnxruntime", given], standalone_mode=False)


def test_limits_are_for_a_verification_by_itself():
    from inferometer.cli.commands.profile import command

    with pytest.raises(DomainError, match="--cosine is a limit for --outputs-only"):
        command.main(["m.onnx", "--verify", "onnxruntime", "--cosine", "0.9"], standalone_mode=False)


def test_the_unit_is_not_asked_of_the_reference(monkeypatch):
    """`--unit npu` is where the model in question runs; a reference on the CPU was refused for it."""
    from inferometer.measure.run import model as run

    asked = []
    monkeypatch.setattr(run, "_compared", lambda mine, right, *_: asked.append((mine.unit, right.unit)) or VERIFIED)
    run.verify_against(run.MeasureRequest(model="m.onnx", runtime="onnxruntime", unit="npu"), "onnxruntime")
    assert asked == [("npu", None)]


VERIFIED = compare_arrays({"y": np.ones(2)}, {"y": np.ones(2)}, against="r")
