"""Every engine that is installed measures in the box that a job from elsewhere runs in, and a tool prepares there."""

import hashlib
import json
from dataclasses import replace

import numpy as np
import onnx
import pytest

from contract.runtime_cases_torch import bert
from contract.test_runtimes import INSTALLED, ROWS
from fakes.in_process import measured_here
from fakes.places import dense_layers
from inferometer.core.codec import document
from inferometer.core.workload import Workload
from inferometer.engines.base import Missing
from inferometer.hub.agent.carrying_out import carry_out
from inferometer.hub.box.found import means_here
from inferometer.hub.places import device_side
from inferometer.hub.places.following import follow, result_in
from inferometer.hub.places.local import FolderHere, _paths
from inferometer.hub.places.requests import Judging, pack_measurement
from inferometer.measure.bench.plan import Plan
from inferometer.measure.prepare import carrying_out, child
from inferometer.measure.run import model as running
from inferometer.measure.run.model import MeasureRequest

# The first model of each engine; PyTorch's compiler also writes files and starts a compiler of C++.
FIRST = {row[0]: row for row in reversed(ROWS) if isinstance(row[0], str)}
FIRST["torch-compile"] = ("torch-compile", bert, {})


def job_of(name, folder):
    """A job of very few steps, and its files."""
    runtime, make, inputs = FIRST[name]
    target = make(folder)
    chosen = {}
    workload = Workload() if isinstance(inputs, dict) else Workload(prompt=8, generate=4)
    if isinstance(inputs, dict):
        for number, (port, array) in enumerate(inputs.items()):
            np.save(folder / f"{number}.npy", array)
            chosen[port] = str(folder / f"{number}.npy")
    return pack_measurement(
        "profile",
        MeasureRequest(
            model=str(target.path), runtime=runtime, inputs=chosen, workload=workload,
            plan=Plan(runs=3, seconds=0.0, warmup=1), shape=False, guarded=False, energy=False,
        ),
        Judging(predict=False),
    )  # fmt: skip


def done_in_a_box(work, root):
    """The result of a job, and its folder."""
    if not means_here().real:
        pytest.skip(f"SKIPPED LOUDLY: no box here: {means_here().said}")
    folder = root / "jobs" / work.job.id
    for file in work.job.files:
        (folder / "files" / file.path).parent.mkdir(parents=True, exist_ok=True)
        device_side.link_or_copy(work.files[file.sha256], folder / "files" / file.path)
    (folder / "job.json").write_text(json.dumps(document(work.job)))
    device_side.run_detached(folder, _paths(), {}, {"wish": "strict"})
    place = FolderHere(folder=folder)
    *_, last = follow(place, work.job.id)
    result = result_in(place, work.job)
    assert result.ended == "done", f"{result.error}\n{result.log}"
    assert last.state == "done"
    assert result.profiles[0].environment.host["box"] == means_here().said
    return result, folder


def skip_without(name):
    found = INSTALLED[name].probe()
    if isinstance(found, Missing):
        pytest.skip(f"SKIPPED LOUDLY: {found.reason}; {found.remedy}")


@pytest.mark.parametrize("name", sorted(FIRST))
def test_an_engine_measures_in_a_box(name, tmp_path):
    skip_without(name)
    done_in_a_box(job_of(name, tmp_path), tmp_path)


@pytest.mark.usefixtures("roofs")
def test_a_model_is_prepared_in_a_box_and_brings_its_proof_and_its_files(tmp_path):
    """By the one step that halves the weights: each step more is a tool and four engines in processes of their own."""
    skip_without("openvino")
    import openvino

    dense = openvino.convert_model(str(dense_layers(tmp_path / "dense.onnx")))
    openvino.save_model(dense, tmp_path / "dense.xml", compress_to_fp16=False)
    result, folder = done_in_a_box(to_prepare(tmp_path / "dense.xml", "openvino", quantise="f16"), tmp_path)
    assert [step["verified"] for step in result.prepared["steps"]] == [True]
    assert sorted(made.path for made in result.made) == ["dense-f16.bin", "dense-f16.xml"]
    for made in result.made:
        data = (folder / "made" / made.path).read_bytes()
        assert (made.size_bytes, made.sha256) == (len(data), hashlib.sha256(data).hexdigest())
    assert len(data := (folder / "made" / "dense-f16.bin").read_bytes()) < (tmp_path / "dense.bin").stat().st_size
    assert np.frombuffer(data[:2], "float16") == np.float16(0.02)


def test_a_job_quantises_in_every_step_of_its_chain(tmp_path, monkeypatch):
    """In this process: what starts one of its own in a box is tested above."""
    skip_without("onnxruntime")
    monkeypatch.setattr(running, "isolated", measured_here)
    monkeypatch.setattr(carrying_out, "_child", lambda step, order, *_: child.carry_out(step.work, order))
    work = to_prepare(dense_layers(tmp_path / "dense.onnx"), "onnxruntime", quantise="i8")
    result = carry_out(work.job, tmp_path, print, into=tmp_path)
    assert result.ended == "done", f"{result.error}\n{result.log}"
    assert [step["verified"] for step in result.prepared["steps"]] == [True] * 3
    (made,) = result.made
    data = (tmp_path / "made" / made.path).read_bytes()
    assert (made.path, made.sha256) == ("dense-i8.onnx", hashlib.sha256(data).hexdigest())
    kinds = {node.op_type for node in onnx.load_from_string(data).graph.node}
    assert kinds & {"QuantizeLinear", "QLinearMatMul", "MatMulInteger"}


def to_prepare(path, runtime, **options):
    packed = pack_measurement("prepare", MeasureRequest(model=str(path), runtime=runtime, workload=Workload()))
    return replace(packed, job=replace(packed.job, options={"runs": 3, **options}))
