"""One model measured at every kind of place: the same command, and the same table of ops."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes.fleet_processes import agent_process, hub_process
from fakes.sshd import WHY_NOT, start_sshd

QUICK = ["--no-guard", "--runs", "3", "--seconds", "0", "--warmup", "1", "--no-store", "--threads", "1", "--no-predict"]
HERE = "msgspec,numpy,psutil,onnxruntime,onnx"


@pytest.fixture
def inferometer(answered):
    """The command in this process; what it measures runs in processes of its own, here and elsewhere."""

    def inferometer(*arguments):
        ran = answered(*map(str, arguments))
        assert ran.returncode == 0, ran.stderr
        return ran

    return inferometer


def table(profile):
    """What must not depend on where a model runs: everything but times."""
    phase = next(phase for phase in profile["phases"] if phase["ops"])
    return [(op["name"], op["kind"], op["count"], op["unit"], op["flops"], op["bytes"]) for op in phase["ops"]]


@pytest.mark.slow
@pytest.mark.skipif(WHY_NOT is not None, reason=str(WHY_NOT))
def test_one_model_has_the_same_ops_here_on_this_machine_over_ssh_at_a_hub_and_in_a_bundle(tmp_path, inferometer):
    model, device = tmp_path / "net.onnx", tmp_path / "device"
    inferometer("synth", "squeezenet1.1", "-o", model, "--size", "image=64")
    device.mkdir()
    sshd = start_sshd(device)
    try:
        places = ["local", sshd.address(root=tmp_path / "root", python=sys.executable)]
        ways = [inferometer("profile", model, *QUICK, "--format", "json")]
        ways += [inferometer("profile", model, *QUICK, "--format", "json", "--on", place) for place in places]
    finally:
        sshd.stop()
    with hub_process(tmp_path) as address, agent_process(address, "box", tmp_path / "box"):
        ways.append(inferometer("profile", model, *QUICK, "--format", "json", "--on", f"hub:box?url={address}"))
    bundle = tmp_path / "job.zip"
    inferometer("profile", model, *QUICK, "--on", f"bundle:{bundle}?leave={HERE}")
    carried = Path(shutil.move(bundle, device / "job.zip"))
    subprocess.run([sys.executable, carried.name], cwd=device, check=True, capture_output=True)
    ways.append(inferometer("bundle", "import", device / "result.json", "--no-store", "--format", "json"))
    tables = [table(json.loads(way.stdout)) for way in ways]
    assert len(tables[0]) > 20
    assert all(other == tables[0] for other in tables[1:])
