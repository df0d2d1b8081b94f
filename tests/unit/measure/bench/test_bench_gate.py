"""Conditions that fail a comparison."""

from dataclasses import replace

import pytest

from inferometer.core.errors import UnitError, UnknownNameError
from inferometer.core.workload import Workload
from inferometer.measure.bench.compare import compare
from inferometer.measure.bench.gate import failed, held, parse_gate
from unit.measure.bench.profiles import noisy, op, phase, profile, run_of

OLD = run_of(noisy(0.010, seed=1), peak_memory_bytes=10**9, tokens_per_s=100.0)
SLOWER = run_of(noisy(0.0107, seed=2), peak_memory_bytes=12 * 10**8, tokens_per_s=90.0)
NOISE = run_of(noisy(0.011, spread=0.5, seed=3))


def holds(text, a=OLD, b=SLOWER):
    return held(parse_gate(text), compare(a, b)) is not None


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("latency>5%", True),
        ("latency > 5 %", True),
        ("latency>=5%", True),
        ("latency>10%", False),
        ("run>5%", True),
        ("forward>5%", True),
        ("latency<-5%", False),
        ("latency>10ms", True),
        ("latency>1s", False),
        ("latency<=1s", True),
        ("memory>10%", True),
        ("memory>50%", False),
        ("memory>1.1GB", True),
        ("memory>2GB", False),
        ("tokens_per_s<-5%", True),
        ("tokens_per_s<-20%", False),
        ("slower", True),
        ("faster", False),
        ("undecided", False),
        ("disturbed", False),
    ],
)
def test_a_condition_holds_or_not(text, wanted):
    assert holds(text) is wanted


@pytest.mark.parametrize(
    "text", ["latency>5", "decode>0.1", "memory>=80", "energy>3", "op:conv1>5", "memory>5ms", "latency>fast"]
)
def test_a_limit_without_its_unit_is_refused_before_anything_is_measured(text):
    with pytest.raises(UnitError, match="Write a share of the baseline"):
        parse_gate(text)
    assert parse_gate("tokens_per_s<50").quantity == "50"


def test_a_difference_that_is_shown_and_not_sure_fails_no_gate():
    disturbed = run_of(noisy(0.0107, seed=2), disturbed=True, reasons=["during the runs: a backup ran."])
    assert compare(OLD, disturbed).main.verdict == "slower"
    assert not holds("latency>5%", b=disturbed)
    assert not holds("slower", b=disturbed)
    assert holds("undecided", b=disturbed)


def test_noise_alone_does_not_fail_a_gate():
    assert compare(OLD, NOISE).main.ratio > 1.02
    assert not holds("latency>1%", b=NOISE)
    assert holds("undecided", b=NOISE)


def test_a_gain_is_a_condition_too():
    assert holds("latency<-5%", a=SLOWER, b=OLD)


def test_disturbed_is_a_condition():
    disturbed = run_of(noisy(0.01), disturbed=True, reasons=["during the runs: a backup ran."])
    assert holds("disturbed", b=disturbed)


def with_ops(*times):
    rows = [op(f"conv{number}", time_s, 0.999 * time_s, 1.001 * time_s) for number, time_s in enumerate(times, 1)]
    return profile(phase("forward", noisy(1.0), ops=rows))


def test_ops_and_one_op():
    old, new = with_ops(1.0, 1.0), with_ops(1.0, 1.3)
    assert holds("ops>10%", old, new)
    assert not holds("ops>50%", old, new)
    assert holds("op:conv2>10%", old, new)
    assert holds("op:forward/conv2>10%", old, new)
    assert not holds("op:conv1>10%", old, new)
    with pytest.raises(UnknownNameError, match="conv2"):
        holds("op:conv22>10%", old, new)


def test_latency_without_one_latency_is_of_every_phase():
    old = profile(phase("prefill", noisy(0.2)), phase("decode", noisy(0.01)))
    new = profile(phase("prefill", noisy(0.2)), phase("decode", noisy(0.012)))
    assert holds("latency>5%", old, new)
    assert holds("tpot>5%", old, new)
    assert not holds("ttft>5%", old, new)
    assert not holds("prefill>5%", old, new)


def test_what_fails_is_said_with_the_numbers():
    (words,) = failed((parse_gate("latency>5%"), parse_gate("memory>50%")), compare(OLD, SLOWER))
    assert words.startswith("latency>5% holds: latency: ratio 1.0")


@pytest.mark.parametrize("text", ["", "latency", "latency=5%", "latency>", ">5%", "latency>5%>3%", "5%"])
def test_what_is_no_condition_is_refused_with_examples(text):
    with pytest.raises(UnitError, match="latency>5%"):
        parse_gate(text)


def test_a_metric_that_is_not_there_is_named_with_those_that_are():
    with pytest.raises(UnknownNameError, match=r"no metric named 'lateny'.*latency"):
        holds("lateny>5%")


@pytest.mark.parametrize("name", ["energy_per_input", "energy_per_image", "energy_per_request"])
@pytest.mark.parametrize("batch", [1, 8])
def test_joules_of_an_input_are_gated_whatever_the_batch(name, batch):
    a, b = (replace(run_of(noisy(0.01), energy_j=joules * batch), workload=Workload(batch=batch)) for joules in (2, 3))
    assert "1.5" in held(parse_gate(f"{name}>40%"), compare(a, b))
    assert held(parse_gate(f"{name}>2.9J"), compare(a, b))
    assert held(parse_gate(f"{name}>3.1J"), compare(a, b)) is None


def test_joules_of_a_token_are_gated():
    tokens = [replace(phase("decode", time_s=0.1), energy_j=joules) for joules in (0.5, 0.6)]
    a, b = (profile(token, energy_j=9.0) for token in tokens)
    assert held(parse_gate("energy_per_token>10%"), compare(a, b))
    assert held(parse_gate("energy_per_token>30%"), compare(a, b)) is None
