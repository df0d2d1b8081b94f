"""One model measured here, at this machine as a place and at a hub: the same command, and the same table of ops.

contract/test_providers.py has the other places.
"""

import json

import pytest

from fakes.fleet_processes import agent_process, hub_here
from inferometer.formats.synth import synthesise

QUICK = ["--no-guard", "--runs", "3", "--seconds", "0", "--warmup", "1", "--no-store", "--threads", "1", "--no-predict"]


@pytest.fixture
def inferometer(answered):
    """The command in this process; what it measures runs in processes of its own, here and elsewhere."""

    def inferometer(*arguments):
        ran = answered(*map(str, arguments))
        assert ran.returncode == 0, ran.stderr
        return ran

    return inferometer


def table(ran):
    """What must not depend on where a model runs: everything but times."""
    profile = json.loads(ran.stdout)
    phase = next(phase for phase in profile["phases"] if phase["ops"])
    return [(op["name"], op["kind"], op["count"], op["unit"], op["flops"], op["bytes"]) for op in phase["ops"]]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return synthesise("squeezenet1.1", tmp_path_factory.mktemp("model") / "net.onnx", sizes={"image": 64}).path


@pytest.fixture(scope="module")
def kept():
    return {}


@pytest.fixture
def measured_here(inferometer, model, kept):
    """The table of the plain command, which all places are compared with."""
    if not kept:
        kept["table"] = table(inferometer("profile", model, *QUICK, "--format", "json"))
    assert len(kept["table"]) > 20
    return kept["table"]


@pytest.fixture
def measured_at(inferometer, model):
    return lambda place: table(inferometer("profile", model, *QUICK, "--format", "json", "--on", place))


@pytest.mark.slow
def test_a_model_has_the_same_ops_on_this_machine_as_a_place(measured_here, measured_at):
    assert measured_at("local") == measured_here


@pytest.mark.slow
def test_a_model_has_the_same_ops_at_a_hub(measured_here, measured_at, tmp_path, roofs):
    with hub_here(tmp_path) as address, agent_process(address, "box", tmp_path / "box"):
        assert measured_at(f"hub:box?url={address}") == measured_here
