"""A model that asks for all memory there is, sent to a real agent: the job is told so, and the agent goes on."""

import io
import json
from contextlib import redirect_stderr

import pytest

from fakes.fleet_processes import agent_process, hub_here
from inferometer.cli.run import run
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


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("boxed")


@pytest.fixture(scope="module")
def device(folder, roofs):
    """Where a hub's device is, and its agent. It knows this machine's roof: measuring it would take a second."""
    limits = ("--memory-limit", "700 MB", "--disk-limit", "1 GB")
    with hub_here(folder) as address, agent_process(address, "device", folder / "device", *limits) as agent:
        yield ("--runtime", "onnxruntime", "--on", f"hub:device?url={address}"), agent


@pytest.fixture(scope="module")
def refused(folder, device):
    """The exit code of a job that asks for all memory, and what is said of it."""
    onnx = pytest.importorskip("onnx", reason="SKIPPED LOUDLY: onnx is not installed")
    (folder / "greedy.onnx").write_bytes(filling(onnx, 50_000))
    assert (folder / "greedy.onnx").stat().st_size < 200
    with redirect_stderr(io.StringIO()) as said:
        return run(["profile", str(folder / "greedy.onnx"), *QUICK, "--ignore-memory", *device[0]]), said.getvalue()


@pytest.mark.slow
def test_a_small_file_that_asks_for_all_memory_is_told_so(refused):
    code, said = refused
    assert code == 2
    assert "It asked for more than 700 MB." in said


@pytest.mark.slow
@pytest.mark.usefixtures("refused")
def test_the_agent_goes_on_with_the_next_job(folder, device, answered):
    import onnx

    (folder / "small.onnx").write_bytes(filling(onnx, 10))
    on, agent = device
    done = answered("profile", str(folder / "small.onnx"), *QUICK, "--format", "json", *on)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["environment"]["host"]["box"] == means_here().said
    agent.until("Jobs run in a box")
    agent.stop()
    assert not list((folder / "device" / "jobs").iterdir())
