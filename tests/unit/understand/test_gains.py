"""What a change would gain is the cost model's answer to the same question, asked again."""

from math import log

import pytest

from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.workload import Workload
from inferometer.formats.resolve import read
from inferometer.known import device
from inferometer.predict.answer import predict_graph
from inferometer.predict.gains import gain_of
from inferometer.predict.question import Question
from inferometer.understand.case import pricer, unpriced


@pytest.fixture(scope="module")
def question():
    return Question(
        graph=read("llama-3.2-1b"),
        device=device("nvidia-l4"),
        runtime="torch-compile",
        workload=Workload(prompt=4096, generate=32),
    )


@pytest.fixture(scope="module")
def price(question):
    return pricer(question, question.answer())


def test_a_gain_is_before_over_after(question, price):
    found = price("weights=i4", "decode")
    again = predict_graph(
        question.graph, question.device, runtime="torch-compile", workload=question.changed("weights=i4").workload
    )
    assert found.after_s == again.phase("decode").time_s
    assert found.gain == pytest.approx(found.before_s / found.after_s)
    assert found.low < found.gain < found.high
    assert found.gain > 1.5


def test_a_batch_gains_throughput_and_costs_latency(price):
    found = price("batch=8", "decode")
    assert found.gain < 1 < found.throughput_gain
    assert found.throughput_gain == pytest.approx(8 * found.gain)
    assert found.throughput_low < found.throughput_gain < found.throughput_high


def test_a_prefix_in_the_cache_shortens_the_prompt(price):
    assert 1.3 < price("cached_prefix=2048", "prefill").gain < 2.5


def test_an_interval_is_no_narrower_than_that_of_either_prediction_but_for_what_does_not_change(question, price):
    """Ops that take as long as before are as wrong on either side, and no part of the ratio's doubt."""
    answer, other = question.answer(), question.changed("weights=i4").answer()
    phase, found = answer.phase("decode"), price("weights=i4", "decode")
    after = {op.name: op.time_s for op in other.phase("decode").ops}
    changed = sum(op.time_s for op in phase.ops if after[op.name] != op.time_s) / phase.time_s
    assert 0.5 < changed < 1
    assert log(found.high / found.low) >= changed * log(phase.high_s / phase.low_s)
    same = gain_of("nothing", "decode", answer, answer)
    assert (same.low, same.gain, same.high) == pytest.approx((1 / 1.05, 1.0, 1.05))


@pytest.mark.parametrize(
    "change", ["threads=4", "weights=nonsense", "batch=many", "prompt=999999999", "runtime=nobody"]
)
def test_what_cannot_be_priced_is_none(price, change):
    assert price(change, "decode") is None


def test_a_phase_that_is_not_there_has_no_price(price):
    assert price("batch=8", "forward") is None
    assert unpriced("batch=8", "decode") is None


def test_every_kind_of_change_is_made(question):
    assert question.changed("runtime=torch-eager").runtime == "torch-eager"
    made = question.changed("precision=f16").workload.precision
    assert (made.weights, made.activations) == ("f16", "f16")
    assert question.changed("kv=i8").workload.precision.kv == "i8"
    assert question.changed("context=4096").workload.context == 4096
    assert question.changed("tp=4").workload.parallel.tp == 4
    assert question.changed("chunk=64").options.chunk == 64
    assert question.changed("on=nvidia-t4").device.name == "nvidia-t4"
    assert float(question.changed("memory.bandwidth*=2").device.memory.bandwidth_bytes_per_s) == 2 * 300e9
    with pytest.raises(UnknownNameError, match="colour"):
        question.changed("colour=red")
    with pytest.raises(DomainError, match="does not cover"):
        question.changed("threads=4")


def test_another_engine_is_asked_with_its_own_calibration():
    eager = Question(graph=read("llama-3.2-1b"), device=device("nvidia-h200"), runtime="torch-eager")
    compiled = eager.changed("runtime=torch-compile")
    assert eager.basis().calibration.runtime == "torch-eager"
    assert compiled.basis().calibration.runtime == "torch-compile"
    assert compiled.answer().phases == Question(
        graph=eager.graph, device=eager.device, runtime="torch-compile"
    ).answer().phases  # fmt: skip
