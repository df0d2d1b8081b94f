"""Numbers that explanations are made of: capacities, shares, sizes of a command, and what becomes of a row."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.profile import DeviceFacts, Environment, Headline, JudgedBy, ModelFacts, Phase, Profile
from inferometer.core.workload import Precision, Workload
from inferometer.measure.prepare import proof
from inferometer.understand import advice
from inferometer.understand.advice import _gain, _size_options, _sizes
from inferometer.understand.case import Case
from inferometer.understand.findings.bounds import _lighter, _weight_share


def sourced(value):
    return Sourced(value=value, origin="datasheet", source="s", date="2026-01-01")


def device(memory=None, **given):
    memories = () if memory is None else (memory,)
    return Device(**{"name": "d", "title": "D", "vendor": "v", "unit": "cpu", "memories": memories, **given})


def profile(**given):
    values = {"kind": "measured", "model": ModelFacts(name="m"), "device": DeviceFacts(name="local"),
              "workload": Workload(), "phases": (), "summary": Headline(), "runtime": "onnxruntime"}  # fmt: skip
    return Profile(**{**values, **given})


def case(found=None, on=None, roof=None):
    judged = JudgedBy(device=on) if on else None
    return Case(profile=replace(found or profile(), judged_by=judged), roof=roof)


@pytest.mark.parametrize(
    ("memory", "room"),
    [(None, None), (Memory(level="dram"), None), (Memory(level="dram", capacity_bytes=sourced(8e9)), 8e9),
     (Memory(level="dram", capacity_bytes=sourced(8e9), usable_bytes=sourced(7e9)), 7e9)],
)  # fmt: skip
def test_the_capacity_is_what_can_be_used_of_the_memory(memory, room):
    assert case(on=device(memory)).capacity_bytes == room
    assert case().capacity_bytes is None


@pytest.mark.parametrize(
    ("environment", "cores", "cpus"),
    [
        (Environment(), 6, 6.0), (Environment(host={"logical_cores": 4}), 6, 4.0),
        (Environment(host={"usable_cpus": 1.5, "logical_cores": 4}), 6, 1.5),
        (Environment(host={"usable_cpus": 0.5, "logical_cores": 4}), 6, 4.0), (None, None, None),
        (Environment(host={"usable_cpus": "many"}), None, None),
    ],
)  # fmt: skip
def test_the_cpus_of_a_run_are_its_machines_then_the_devices(environment, cores, cpus):
    on = device(cores=None if cores is None else sourced(cores))
    assert case(profile(environment=environment), on).cpus == cpus
    assert case(profile(environment=environment), replace(on, unit="gpu")).cpus == (None if cpus == 6.0 else cpus)


def test_a_machines_own_count_comes_first():
    machine = SimpleNamespace(usable_cpus=None, logical_cores=3)
    found = profile(environment=Environment(machine=machine, host={"usable_cpus": 9}))
    assert case(found).cpus == 3.0
    machine.usable_cpus = 2
    assert case(found).cpus == 2.0


@pytest.mark.parametrize(
    ("kind", "unit", "threads", "found"),
    [("measured", "cpu", 4, 4), ("measured", "cpu:0", 4, 4), ("measured", None, 4, 4), ("measured", "gpu", 4, None),
     ("predicted", "cpu", 4, None), ("measured", "cpu", 0, None)],
)  # fmt: skip
def test_threads_are_those_of_a_measured_run_on_the_cpu(*, kind, unit, threads, found):
    made = profile(kind=kind, summary=Headline(top_unit=unit), environment=Environment(threads=threads))
    assert case(made).threads == found


def test_bits_of_a_weight_are_of_all_its_bytes():
    assert case(profile(model=ModelFacts(name="m", weight_bytes=550, parameters=1000))).weight_bits == 4.4
    assert case(profile(model=ModelFacts(name="m", weight_bytes=550))).weight_bits is None


@pytest.mark.parametrize(
    ("moved", "weights", "share"), [(100.0, 40, 0.4), (100.0, 400, 1.0), (None, 40, None), (100.0, None, None)]
)
def test_the_weights_share_of_the_bytes_is_at_most_all_of_them(moved, weights, share):
    roof = SimpleNamespace(phase=lambda _: SimpleNamespace(point=SimpleNamespace(bytes=moved)))
    made = profile(model=ModelFacts(name="m", weight_bytes=weights))
    phase = Phase(name="decode", time_s=1.0)
    assert _weight_share(case(made, roof=roof), phase) == share
    assert _weight_share(case(made, roof=SimpleNamespace(phase=lambda _: None)), phase) is None


def lighter(share, bits=None, *, activations=None, decodes=False, batch=2):
    model = ModelFacts(name="m", weight_bytes=None if bits is None else round(bits * 1000), parameters=8000)
    workload = Workload(batch=batch, precision=Precision(activations=activations))
    phases = (Phase(name="decode" if decodes else "forward", time_s=1.0),)
    return _lighter(case(profile(model=model, workload=workload, phases=phases, runtime="onnxruntime")), share)[0]


def test_what_moves_fewer_bytes_depends_on_whose_they_are():
    (batch,) = lighter(1.0)
    assert batch.startswith("batch=")
    assert int(batch.partition("=")[2]) % 2 == 0
    assert lighter(1.0, batch=4) == (f"batch={2 * int(batch.partition('=')[2])}",)
    assert lighter(0.01, 32, activations="f32") == ("precision=f16",)
    assert lighter(0.01, 32, activations="f16") == (batch,)
    assert [change.partition("=")[0] for change in lighter(1.0, 32)] == ["weights"]
    assert len(lighter(1.0, 32, decodes=True)) == 2
    assert len(lighter(1.0, 8.0, decodes=True)) == 1
    assert lighter(1.0, 8.0) == (batch,)


# The command that carries advice out.


def way(**given):
    return SimpleNamespace(**{"model": "resnet50", "image": None, "sizes": {}, "steps": (), "quantise": "i8", **given})


@pytest.mark.parametrize(
    ("load", "sizes", "of", "options"),
    [
        (Workload(), {}, way(), ""), (Workload(batch=4), {}, way(), " --batch 4"),
        (Workload(batch=2, prompt=7, generate=3, image=96), {}, way(image=64),
         " --batch 2 --image 96 --prompt 7 --generate 3"),
        (Workload(), {"n": 5, "prompt": 9}, way(image=64, sizes={"n": 4, "k": 2}), " --image 64 --size n=5 --size k=2"),
    ],
)  # fmt: skip
def test_the_sizes_that_were_measured_are_those_that_are_proven(load, sizes, of, options):
    assert _size_options(profile(workload=load, sizes=sizes), of) == options


def test_the_gain_is_predicted_in_the_models_own_formats_at_the_sizes_that_it_leaves_open(monkeypatch):
    asked = []
    graph = SimpleNamespace(symbols={"n", "image"})
    monkeypatch.setattr(advice, "read", lambda _model: graph)
    monkeypatch.setattr(proof, "predicted_gain", lambda *given: asked.append(given) or "gain")
    monkeypatch.setattr(
        proof, "after_step", lambda step, before, path, runtime: (*_chain(before), step, path.name, runtime)
    )
    load = Workload(batch=3, precision=Precision(weights="i8"))
    made = profile(workload=load, sizes={"n": 5, "other": 1})
    assert _gain(made, device(), way(steps=("one", "two"), sizes={"n": 4, "image": 8}, image=64)) == "gain"
    ((proving, before, after),) = asked
    assert (before.path.name, before.runtime, before.sizes) == ("resnet50", "onnxruntime", {"n": 5, "image": 8})
    assert after == ("one", "resnet50", "onnxruntime", "two", "resnet50", "onnxruntime")
    assert proving.workload == Workload(batch=3, image=64)
    assert (proving.here, proving.judged_by, proving.graph, proving.device) == (False, device(), graph, "d")
    assert _sizes({"a": 1, "b": 2}, {"b"}) == {"b": 2}


def _chain(before):
    return before if isinstance(before, tuple) else ()
