"""A lone step that is priced by its sums costs what its ops cost together, and is as much in doubt."""

from dataclasses import fields
from itertools import product

import numpy as np
import pytest

from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.options import Options
from inferometer.predict.price.lone import StepSums, lone_sums, sums_of_step
from inferometer.predict.ready import make_ready

# Tables, curves, the shipped fit, a host that is waited for, a priced cache, windows and experts, what runs once.
CASES = [
    ("llama-3.2-1b", "torch-compile", "nvidia-h200", "bf16"),
    ("llama-3.2-1b", "torch-eager", "nvidia-h200", "bf16"),
    ("llama-3.2-1b", "vllm", "nvidia-h200", "bf16"),
    ("llama-3.1-8b", "llamacpp", "nvidia-l4", "q4_0"),
    ("llama-3.2-1b", "llamacpp", "intel-emerald-rapids-1-vcpu", "q4_0"),
    ("gemma-3-1b", "torch-compile", "nvidia-h200", "bf16"),
    ("qwen3-30b-a3b", "vllm", "nvidia-h200", "bf16"),
    ("llama-3.2-1b", "ideal", "raspberry-pi-5", "i4"),
    ("t5-small", "torch-eager", "amd-mi300x", "bf16"),
    ("mamba-130m", "torch-eager", "nvidia-l4", "f32"),
]
# The last reads more rows than a vocabulary has, and lies far outside of every table.
LENGTHS = (1, 333, 70_000, 300_000)
STEPS = {"prefill": lambda length: (length, 0), "decode": lambda length: (1, length)}
NUMBERS = [field.name for field in fields(StepSums) if field.name not in {"waits_for_host", "far", "whole"}]


def plan(model, runtime, on, weights, **parallel):
    graph = model_graph(model)
    basis = ask(graph, on=device(on), runtime=runtime, weights=weights).basis()
    workload = Workload(precision=Precision(weights=weights), parallel=Parallel(**parallel))
    return make_ready(
        graph, basis.device, effects=require_effects(runtime), options=Options(), calibration=basis.calibration,
        workload=workload,
    ).plan  # fmt: skip


def sizes(batch, query, context):
    return {"batch": batch, "query": query, "context": context, "logits": 1}


@pytest.mark.parametrize("case", CASES)
def test_a_lone_step_costs_what_its_ops_cost(case):
    priced = plan(*case)
    for phase, length, batch, once in product(STEPS, LENGTHS, (1, 17, 256), (False, True)):
        asked = sizes(batch, *STEPS[phase](length))
        found = lone_sums(priced, asked, phase, once=once)
        wanted = sums_of_step(priced, priced.step(asked, phase, once=once), once=once)
        for name in NUMBERS:
            value = getattr(found, name)
            assert value == pytest.approx(getattr(wanted, name), rel=1e-12, abs=1e-18), (phase, asked)
            assert type(value) is float, name  # numpy's own have no place in a document
        assert (found.waits_for_host, found.far) == (wanted.waits_for_host, wanted.far)


def test_a_host_that_is_waited_for_and_ops_outside_of_their_tables_are_said():
    assert lone_sums(plan(*CASES[1]), sizes(1, 1, 100), "decode", once=False).waits_for_host
    assert lone_sums(plan(*CASES[0]), sizes(256, 300_000, 0), "prefill", once=False).far


def test_a_lone_step_remembers_no_sizes_of_another():
    priced = plan(*CASES[2])
    first, other = (lone_sums(priced, sizes(batch, 1, 100), "decode", once=False) for batch in (1, 64))
    again = lone_sums(priced, sizes(1, 1, 100), "decode", once=False)
    assert first.time_s == again.time_s < other.time_s


def test_every_op_of_a_lone_step_is_priced_when_it_is_read():
    priced = plan(*CASES[0])
    found = lone_sums(priced, sizes(2, 1, 100), "decode", once=False)
    assert found.whole() is found.whole()
    assert found.whole().sums().time_s[0] == pytest.approx(found.time_s + found.step_s, rel=1e-12)


@pytest.mark.parametrize(
    ("parallel", "asked"),
    [
        ({"tp": 2}, sizes(1, 1, 100)),
        ({}, sizes(1, np.array([8.0, 8.0]), np.array([0.0, 8.0]))),
        ({}, {**sizes(1, 8, 0), "logits": 0}),
    ],
)
def test_messages_chunks_and_steps_without_logits_are_priced_op_by_op(parallel, asked):
    assert lone_sums(plan(*CASES[0], **parallel), asked, "decode", once=False) is None
