"""Every place that the contract suite runs jobs at, each made ready for tests."""

import shutil
import subprocess
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fakes.adb_server import SERIAL, AdbServerFake
from fakes.device_services import KEY, SECRET, TOKEN, DeviceFarmService, QaiHubService, a_profile, serving
from fakes.fleet_processes import agent_process, hub_process
from fakes.once import known_device
from fakes.sshd import WHY_NOT, start_sshd
from fakes.waiting import until
from inferometer.engines.results.detect import import_file
from inferometer.hub.places import device_farm as device_farm_place
from inferometer.hub.places import services
from inferometer.hub.places.base import resolve
from inferometer.hub.places.requests import Judging, pack_measurement
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.model import MeasureRequest

RECORDED = Path(__file__).parents[1] / "data" / "importers"
QUICK = Plan(runs=3, seconds=0.0, warmup=1, calls=1)
# It rests between its runs: what takes long need not compute for so long.
LONG = Plan(
    runs=10_000_000, seconds=0.0, warmup=1, calls=1, runs_at_most=10_000_000, seconds_at_most=300.0, cooldown_s=0.01
)


def one_layer(folder, kind="Relu", name="net.onnx"):
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, [1, 4]) for port in ("x", "y")]
    graph = helper.make_graph([helper.make_node(kind, ["x"], ["y"], name="first")], "g", ports[:1], ports[1:])
    path = folder / name
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def dense_layers(path, width=64):
    """Two layers with weights, which is what can be quantised."""
    weights = [numpy_helper.from_array(np.full((width, width), 0.02, "float32"), name) for name in ("w0", "w1")]
    nodes = [helper.make_node("MatMul", pair, [to]) for pair, to in ((["x", "w0"], "m"), (["m", "w1"], "y"))]
    ports = [helper.make_tensor_value_info(port, TensorProto.FLOAT, [1, width]) for port in ("x", "y")]
    graph = helper.make_graph(nodes, "dense", ports[:1], ports[1:], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def table(profile):
    """What must not depend on where a model runs: everything of its ops but their times."""
    return tuple((op.name, op.kind, op.count, op.unit, op.flops, op.bytes) for op in profile.phases[-1].ops)


def packed(path, plan=QUICK, runtime="onnxruntime"):
    asked = MeasureRequest(model=str(path), runtime=runtime, plan=plan, guarded=False, energy=False, threads=1)
    return pack_measurement("profile", asked, Judging(predict=False))


@dataclass
class GivenPlace:
    """A place, and jobs that it can run: one that is done, one that is refused, one that takes too long."""

    place: Any
    root: Path
    ops: tuple[tuple[Any, ...], ...] = (("first", "activation", 1, "cpu", 4.0, 32.0),)  # four values in and out
    keeps_partial: bool = True
    service: Any = None  # a server of ours that it speaks with

    def quick(self, folder):
        return packed(one_layer(folder))

    def refused(self, folder):
        return packed(one_layer(folder, kind="Frobnicate", name="odd.onnx"))

    def long(self, folder):
        return packed(one_layer(folder), LONG)

    def has_begun(self, event) -> bool:
        return event.stage == "runs" and bool(event.share)

    def deliver(self, handle) -> None:
        """What somebody has to do by hand."""

    def left(self, handle) -> list[str]:
        """What a job left behind that nobody will use again."""
        return [path.name for path in (self.root / "jobs").glob("*") if path.name == handle.job]


@contextmanager
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")
    with resolve(f"local:?root={root}") as place:
        yield GivenPlace(place, root)


@contextmanager
def ssh(tmp_path_factory):
    if WHY_NOT:
        pytest.skip(WHY_NOT)
    root, sshd = known_device(tmp_path_factory.mktemp("device")), start_sshd(tmp_path_factory.mktemp("sshd"))
    try:
        with resolve(sshd.address(root=root, python=sys.executable)) as place:
            yield GivenPlace(place, root)
    finally:
        sshd.stop()


class GivenBundle(GivenPlace):
    def deliver(self, handle) -> None:
        """Somebody carries the file to the device, runs it there and carries the result back."""
        device = self.root / "device"
        device.mkdir(exist_ok=True)
        carried = Path(shutil.copy(handle.folder, device))
        command = [sys.executable, carried.name, "--work", str(self.root / "work")]
        ran = subprocess.run(command, cwd=device, capture_output=True, text=True, check=False)
        assert (device / "result.json").is_file(), ran.stderr
        shutil.move(device / "result.json", self.root / "result.json")

    def left(self, handle) -> list[str]:
        jobs = (self.root / "work" / "jobs").iterdir()
        there = (path for path in (self.root / "device").iterdir() if path.name != Path(handle.folder).name)
        return sorted(path.name for path in (*jobs, *there))


@contextmanager
def bundle(tmp_path_factory):
    """With the packages that the device has: packing them takes longer than all else."""
    root = tmp_path_factory.mktemp("bundle")
    known_device(root / "work")
    with resolve(f"bundle:{root}/job.zip?leave=msgspec,numpy,psutil,onnxruntime,onnx") as place:
        yield GivenBundle(place, root)


BENCHMARK = f"""#!/bin/sh
case "$*" in
  *odd*) echo "ERROR: Didn't find op for builtin opcode 'Frobnicate'" >&2; exit 1;;
  *long*) exec sleep 300;;
  *) cat '{RECORDED}/litert.txt';;
esac
"""


class GivenPhone(GivenPlace):
    """It runs a benchmark of somebody else's, on files of another format; what that printed was recorded."""

    def _file(self, folder, name):
        (folder / name).write_bytes(name.encode())
        return packed(folder / name, runtime="litert")

    def quick(self, folder):
        return self._file(folder, "net.tflite")

    def refused(self, folder):
        return self._file(folder, "odd.tflite")

    def long(self, folder):
        return self._file(folder, "long.tflite")

    def has_begun(self, event) -> bool:
        return event.state == "running"


@contextmanager
def adb(tmp_path_factory):
    root, server = tmp_path_factory.mktemp("phone"), AdbServerFake()
    binary = root / "benchmark_model"
    binary.write_text(BENCHMARK)
    binary.chmod(0o755)
    ops = table(import_file(RECORDED / "litert.txt")[0])
    try:
        with resolve(f"adb:{SERIAL}?server={server.address}&binary={binary}&folder={root}/files") as place:
            yield GivenPhone(place, root / "files", ops, keeps_partial=False)
    finally:
        server.stop()


class GivenHub(GivenPlace):
    def left(self, handle) -> list[str]:  # noqa: ARG002 - it is the only one
        """The agent clears up after it has brought the result, and the hub may say so a moment before that."""
        until(lambda: not [*(self.root / "jobs").glob("*")], "that the agent clears up")
        return []


@contextmanager
def hub(tmp_path_factory):
    """A real hub and a real agent, each a process of its own."""
    root, folder = tmp_path_factory.mktemp("device"), tmp_path_factory.mktemp("hub")
    with (
        hub_process(folder) as address,
        agent_process(address, "box", root),
        resolve(f"hub:box?url={address}") as place,
    ):
        yield GivenHub(place, root)


QAI_OPS = (("conv", "convolution", 1, "npu", None, None), ("softmax", "softmax", 1, "cpu", None, None))


class GivenQaiHub(GivenPhone):
    def _file(self, folder, name):
        (folder / name).write_bytes(name.encode())
        asked = MeasureRequest(model=str(folder / name), runtime="litert", plan=QUICK, guarded=False, energy=False)
        return pack_measurement("profile", asked, Judging(predict=False))

    def left(self, handle) -> list[str]:
        return [path.name for path in self.root.rglob("*.json") if path.stem == handle.job]


@contextmanager
def qai_hub(tmp_path_factory):
    """Its own client, with a configuration that leads to a server of ours."""
    pytest.importorskip("qai_hub", reason="the client of Qualcomm AI Hub is not installed")
    root = tmp_path_factory.mktemp("qai-hub")
    with serving(QaiHubService(a_profile)) as service, pytest.MonkeyPatch.context() as patch:
        client = f"[api]\napi_url = {service.url}\nweb_url = {service.url}\napi_token = {TOKEN}\n"
        (root / "client.ini").write_text(client)
        patch.setenv("QAIHUB_CLIENT_INI", str(root / "client.ini"))
        patch.setenv("INFEROMETER_CACHE", str(root / "cache"))
        patch.setattr(services, "_LOOK_S", 0.0)
        with resolve("qai-hub:Samsung Galaxy S24") as place:
            given = GivenQaiHub(place, root / "cache", QAI_OPS, keeps_partial=False)
            given.service = service
            yield given


class GivenDeviceFarm(GivenPhone):
    def left(self, handle) -> list[str]:
        tickets = [path.name for path in (self.root / "cache").rglob("*.json") if path.stem == handle.job]
        on_phone = [path.name for path in (self.root / "host/phone/data/local/tmp").iterdir()]
        return [*tickets, *on_phone, *self.service.uploads, *self.service.runs]


@contextmanager
def device_farm(tmp_path_factory):
    pytest.importorskip("boto3", reason="boto3 is not installed")
    root = tmp_path_factory.mktemp("device-farm")
    (root / "host").mkdir()
    binary = root / "benchmark_model"
    binary.write_text(BENCHMARK)
    ops = table(import_file(RECORDED / "litert.txt")[0])
    with serving(DeviceFarmService(root / "host")) as service, pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL_DEVICE_FARM", service.url)
        patch.setenv("AWS_ACCESS_KEY_ID", KEY)
        patch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        patch.setenv("AWS_CONFIG_FILE", str(root / "none"))
        patch.setenv("INFEROMETER_CACHE", str(root / "cache"))
        for module in (services, device_farm_place):
            patch.setattr(module, "_LOOK_S", 0.0)
        with resolve(f"aws:Google Pixel 8?binary={binary}") as place:
            given = GivenDeviceFarm(place, root, ops, keeps_partial=False)
            given.service = service
            yield given


PLACES = {
    "local": local, "ssh": ssh, "bundle": bundle, "adb": adb, "hub": hub, "qai-hub": qai_hub, "aws": device_farm
}  # fmt: skip
