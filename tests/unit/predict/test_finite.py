"""NaN and infinity anywhere in a device, a runtime, a link or a calibration: said before anything is computed."""

from dataclasses import replace

import pytest

from inferometer.core import Calibration, Memory, Utilisation, Workload
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.core.errors import DomainError
from inferometer.predict.answer import predict_graph
from inferometer.predict.memory.fit import fit
from inferometer.predict.options import Options
from unit.predict.decoders import LLAMA_3_1_8B
from unit.predict.machines import MACHINE, WIRE, machine, stated

MAIN = MACHINE.memories[0]
WRONG = (float("nan"), float("inf"), -1.0)


def with_memory(**changed):
    return machine(memories=(replace(MAIN, **changed),))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(
    ("device", "named"),
    [
        (lambda value: machine(peaks={"bf16": stated(value)}), "peaks bf16"),
        (lambda value: with_memory(capacity_bytes=stated(value)), "capacity_bytes"),
        (lambda value: with_memory(bandwidth_bytes_per_s=stated(value)), "bandwidth_bytes_per_s"),
        (lambda value: machine(memories=(MAIN, Memory(level="l2", capacity_bytes=stated(value)))), "capacity_bytes"),
        (lambda value: machine(power_w=stated(value)), "power_w"),
        (lambda value: machine(idle_w=stated(value)), "idle_w"),
        (lambda value: machine(launch_s=stated(value)), "launch_s"),
        (lambda value: machine(host_link=replace(WIRE, bandwidth_bytes_per_s=stated(value))), "host_link"),
        (lambda value: machine(peer_link=replace(WIRE, latency_s=stated(value))), "peer_link"),
    ],
)
def test_a_device_with_a_number_that_is_none_is_refused_by_name(device, named, wrong):
    for ask in (predict_graph, fit):
        with pytest.raises(DomainError, match=f"machine: .*{named}.* is {wrong}"):
            ask(LLAMA_3_1_8B, device(wrong), workload=Workload(prompt=8, generate=2))


@pytest.mark.parametrize("wrong", WRONG)
def test_runtimes_links_and_calibrations_too(wrong):
    slow = RuntimeEffects(name="mine", title="Mine", overheads={"gpu": Overheads(step_s=stated(wrong))})
    with pytest.raises(DomainError, match=f"mine: overheads gpu: step_s is {wrong}"):
        predict_graph(LLAMA_3_1_8B, MACHINE, runtime=slow, workload=Workload(prompt=8))
    link = replace(WIRE, bandwidth_bytes_per_s=stated(wrong))
    with pytest.raises(DomainError, match=f"the link: bandwidth_bytes_per_s is {wrong}"):
        predict_graph(LLAMA_3_1_8B, MACHINE, workload=Workload(prompt=8), options=Options(link=link))
    table = Utilisation(op_class="linear", stream="dram", axes=("rows",), grid=((1.0,),), values=(0.5,), residual=wrong)
    measured = Calibration(device="machine", runtime="ideal", dtype="bf16", created="2026", tables=(table,))
    with pytest.raises(DomainError, match=f"the calibration: tables: residual is {wrong}"):
        predict_graph(LLAMA_3_1_8B, MACHINE, calibration=measured, workload=Workload(prompt=8))


def test_a_number_that_is_not_known_is_no_error():
    assert predict_graph(LLAMA_3_1_8B, machine(power_w=None), workload=Workload(prompt=8)).summary.energy_j is None
