"""MNN's converter and quantiser: fewer bits, rounded and not cut, and a Softmax that it would misread."""

import json
from contextlib import closing
from dataclasses import replace
from importlib.util import find_spec
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("onnx", reason="onnx is not installed: no file to convert")
if find_spec("_tools") is None:
    pytest.skip("MNN is not installed", allow_module_level=True)

from onnx import helper, numpy_helper, save

from inferometer.core.errors import DomainError, FormatError
from inferometer.engines.base import Target
from inferometer.engines.mnn import runtime
from inferometer.engines.mnn.convert import _write_sample
from inferometer.engines.order import ToolOrder
from inferometer.formats.mnn import reader
from inferometer.measure.calibrate.probes.workshop import Workshop
from inferometer.measure.prepare.steps import step_named

SHAPE = (1, 16, 4, 4)


@pytest.fixture(scope="module", name="carried_out")
def tools_in_a_process_of_their_own():
    with closing(Workshop()) as shop:

        def carried_out(name, order):
            folder = order.target.parents[1]
            (folder / "answer").unlink(missing_ok=True)
            answer = shop(step_named(name), order, folder, 60.0)
            if answer.error is not None:
                raise FormatError(answer.error, remedy=answer.remedy)
            return answer.notes

        yield carried_out


def written(folder, *, opset, op="Softmax"):
    """A convolution and a Softmax over all that follows axis 1, or over axis 1 alone, as the opset has it."""
    weight = np.random.default_rng(0).standard_normal((16, 16, 3, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        helper.make_node(op, ["c"], ["y"], **({"axis": 1} if op == "Softmax" else {"domain": "strange"})),
    ]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "n", [value("x", 1, SHAPE)], [value("y", 1, SHAPE)], [numpy_helper.from_array(weight, "w")]
    )
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("strange", 1)]
    path = folder / "network.onnx"
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


def ordered(source, folder, **options):
    made = folder / "made" / "network.mnn"
    made.parent.mkdir(exist_ok=True)
    shapes, dtypes = {"x": SHAPE}, {"x": "float32"}
    return ToolOrder(source=source, target=made, format="mnn", shapes=shapes, dtypes=dtypes, options=options)


def ran(path, given):
    session = runtime.open(Target(path=path, format="mnn", threads=1))
    session.feed({"x": given})
    session.step()
    (found,) = session.outputs().values()
    session.close()
    return found


@pytest.mark.parametrize(("weights", "stored"), [(None, "f32"), ("f16", "f16"), ("i8", "i8"), ("i4", "i4")])
def test_the_reader_tells_what_the_converter_stored(carried_out, tmp_path, weights, stored):
    order = ordered(written(tmp_path, opset=13), tmp_path, **({"weights": weights} if weights else {}))
    carried_out("mnn", order)
    convolution = next(op for _, op in reader.read(order.target).ops() if op.kind == "convolution")
    assert convolution.weights[0].dtype == stored
    assert convolution.weights[0].shape == (16, 16, 3, 3)


@pytest.mark.parametrize(("opset", "axes"), [(9, (1, 2, 3)), (13, (1,))])
def test_a_softmax_sums_to_one_where_its_opset_says(carried_out, tmp_path, opset, axes):
    order = ordered(written(tmp_path, opset=opset), tmp_path)
    carried_out("mnn", order)
    found = ran(order.target, np.random.default_rng(1).standard_normal(SHAPE).astype(np.float32))
    np.testing.assert_allclose(found.sum(axis=axes), 1.0, rtol=1e-4)


def chain(folder, products=8):
    """Products of positive numbers: what each weight lacks is missing in the end, as many times as there are."""
    weight = np.random.default_rng(0).uniform(0.5, 1.5, (16, 16, 1, 1)).astype(np.float32) / 16
    names = ["x", *(f"t{place}" for place in range(1, products)), "y"]
    nodes = [helper.make_node("Conv", [a, "w"], [b], kernel_shape=[1, 1]) for a, b in pairwise(names)]
    value = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "n", [value("x", 1, SHAPE)], [value("y", 1, SHAPE)], [numpy_helper.from_array(weight, "w")]
    )
    path = folder / "chain.onnx"
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    return path


def test_weights_in_f16_are_the_nearest_ones(carried_out, tmp_path):
    source, given = chain(tmp_path), np.random.default_rng(1).uniform(0.5, 1.5, SHAPE).astype(np.float32)
    found = {}
    for weights in ("f32", "f16"):
        order = ordered(source, tmp_path, weights=weights)
        carried_out("mnn", order)
        found[weights] = ran(order.target, given)
    # Cut off, each of the weights would lack 0.03 % in the mean, and the result 0.25 %.
    assert abs(found["f16"].sum() / found["f32"].sum() - 1) < 5e-4


def test_int8_by_the_quantiser_stays_near_and_is_read(carried_out, tmp_path):
    source, random = chain(tmp_path, products=2), np.random.default_rng(1)
    sets = [tmp_path / f"{number}.npz" for number in range(4)]
    for path in sets:
        np.savez(path, x=random.standard_normal(SHAPE).astype(np.float32))
    exact = ordered(source, tmp_path)
    carried_out("mnn", exact)
    given = random.standard_normal(SHAPE).astype(np.float32)
    right = ran(exact.target, given)
    order = replace(exact, calibration=tuple(sets))
    assert "4 sets of inputs" in " ".join(carried_out("mnn-i8", order))
    assert np.linalg.norm(ran(order.target, given) - right) < 0.05 * np.linalg.norm(right)
    convolution = next(op for _, op in reader.read(order.target).ops() if op.kind == "convolution")
    assert convolution.weights[0].dtype == "i8"


def test_what_the_converter_cannot_make_says_so(carried_out, tmp_path):
    """In its child the converter's words go to a log, and the error has the operator from there."""
    order = ordered(written(tmp_path, opset=13, op="Nobody"), tmp_path)
    (tmp_path / "log.txt").write_text("The device supports: fp16:1\n:220: These Op Not Support: ONNX::Nobody\n")
    with pytest.raises(FormatError, match="made nothing of it: it does not know ONNX::Nobody"):
        carried_out("mnn", order)


def test_a_sample_has_a_file_for_every_input_with_its_very_numbers(tmp_path):
    given = {"a": np.array([[0.1, 2, 3], [1e-7, 5, -6]], np.float32), "b": np.array([[[7.5]]], np.float32)}
    np.savez(tmp_path / "sample.npz", **given)
    _write_sample(tmp_path / "sample", tmp_path / "sample.npz")
    told = json.loads((tmp_path / "sample" / "input.json").read_text())
    assert told == {"inputs": [{"name": "a", "shape": [2, 3]}, {"name": "b", "shape": [1, 1, 1]}], "outputs": []}
    for name, numbers in given.items():
        read = np.loadtxt(tmp_path / "sample" / f"{name}.txt", dtype=np.float32, ndmin=1)
        assert read.tolist() == numbers.ravel().tolist()
    np.savez(tmp_path / "other.npz", **{"a/b": given["a"]})
    with pytest.raises(DomainError, match="'a/b' is none"):
        _write_sample(tmp_path / "other", tmp_path / "other.npz")
