"""A device of every kind with a model that makes tokens and one that does not: a prediction, or helpful words."""

import re
from functools import cache

import pytest

from fakes.every import every
from inferometer.api import predict
from inferometer.core.errors import DomainError
from inferometer.formats.resolve import read
from inferometer.known import device, devices
from inferometer.known.engines import default_runtime


@cache
def graph(model):
    return read(model)


def refused(model, name, **asked):
    """The error of a prediction, or None where there is one and it holds together."""
    try:
        profile = predict(graph(model), on=name, **asked)
    except DomainError as error:
        return error
    for phase in profile.phases:
        assert 0 <= (phase.floor_s or 0) <= phase.low_s <= phase.time_s <= phase.high_s < float("inf")
        assert all(op.time_s >= op.floor_s for op in phase.ops)
    return None


def kind_of(row):
    """What decides how a device is priced, but for the figures themselves."""
    memory = row.memory
    held = memory and (memory.bandwidth_bytes_per_s is None, memory.capacity_bytes is None)
    return row.unit, row.vendor, frozenset(row.peaks), held, row.launch_s is None, bool(row.core_groups)


ONE_OF_EACH_KIND = {kind_of(row): name for name, row in devices().items()}


@every(ONE_OF_EACH_KIND.values())
def test_a_prediction_or_an_error_that_names_what_is_there_for_text(name):
    answered_or_helped("llama-3.2-1b", name)


@every(ONE_OF_EACH_KIND.values())
def test_a_prediction_or_an_error_that_names_what_is_there_for_images(name):
    answered_or_helped("resnet50", name)


def answered_or_helped(model, name):
    row = device(name)
    error = refused(model, name)
    if error is None:
        return
    assert row.peaks, f"one without a figure answers from its class: {error}"
    assert f"it has: {', '.join(row.peaks)}" in str(error)
    formats = re.search(r"--weights (\w+) --activations (\w+)", str(error))
    assert refused(model, name, weights=formats[1], activations=formats[2]) is None


def test_most_devices_have_a_prediction():
    some = [*devices()][::8]
    assert sum(refused("llama-3.2-1b", name) is None for name in some) > 0.7 * len(some)


@pytest.mark.parametrize("name", ["apple-m2-ultra-gpu", "nvidia-t4", "apple-m1-ane"])
def test_a_device_without_bf16_computes_in_what_it_has_and_says_so(name):
    notes = predict(graph("llama-3.2-1b"), on=name).provenance.notes
    assert any(note.startswith(f"{name} has no bf16 peak") for note in notes)


def test_apples_gpus_run_what_runs_there():
    assert default_runtime(device("apple-m2-ultra-gpu"), graph("llama-3.2-1b")) == "llamacpp"
