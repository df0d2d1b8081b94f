"""A model that asks for all memory there is, sent to a real agent: the job is told so, and the agent goes on."""

import json

import pytest

from fakes.fleet_processes import agent_process, hub_here
from inferometer.hub.box.found import means_here

QUICK = ["--no-guard", "--runs", "2", "--seconds", "0", "--warmup", "0", "--threads", "1", "--no-predict"]


def filling(onnx, side):
    """A hundred and some bytes that make an engine fill a square of floats: at 50,000 a side ten gigabytes."""
    helper, kind = onnx.helper, onnx.TensorProto
    shape = helper.make_tensor("s", kind.INT64, [2], [side, side])
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["w"]),
        helper.make_node("ReduceSum", ["w"], ["r"], keepdims=0),
        helper.make_node("Add", ["x", "r"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, kind.FLOAT, [1]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], [shape])
    opset = [helper.make_opsetid("", 13)]
    return helper.make_model(graph, ir_version=9, opset_imports=opset).SerializeToString()


@pytest.fixture
def device(tmp_path, roofs):
    """The address of a hub, and an agent there. It knows this machine's roof: measuring it would take a second."""
    limits = ("--memory-limit", "700 MB", "--disk-limit", "1 GB")
    with hub_here(tmp_path) as address, agent_process(address, "device", tmp_path / "device", *limits) as agent:
        yield address, agent


@pytest.mark.slow
def test_a_small_file_that_asks_for_all_memory_fails_alone(tmp_path, device, answered):
    onnx = pytest.importorskip("onnx", reason="SKIPPED LOUDLY: onnx is not installed")
    (tmp_path / "greedy.onnx").write_bytes(filling(onnx, 50_000))
    (tmp_path / "small.onnx").write_bytes(filling(onnx, 10))
    assert (tmp_path / "greedy.onnx").stat().st_size < 200
    address, agent = device
    on = ("--runtime", "onnxruntime", "--on", f"hub:device?url={address}")
    failed = answered("profile", str(tmp_path / "greedy.onnx"), *QUICK, "--ignore-memory", *on)
    assert failed.returncode == 2
    assert "It asked for more than 700 MB." in failed.stderr
    done = answered("profile", str(tmp_path / "small.onnx"), *QUICK, "--format", "json", *on)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["environment"]["host"]["box"] == means_here().said
    agent.until("Jobs run in a box")
    agent.stop()
    assert not list((tmp_path / "device" / "jobs").iterdir())
