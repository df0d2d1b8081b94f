"""Published speeds of language models as cases of the fit, and that `predict` answers with what was fitted."""

import numpy as np
import pytest

from inferometer.core.workload import Precision
from inferometer.known import device as device_named
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.measure.calibrate.priors.language import language_cases, seconds_of, steps_of, variants_of
from inferometer.measure.calibrate.priors.stack import log_times, stack_of
from inferometer.predict.ask import ask
from inferometer.predict.price.deviations import PARAMETERS, fitted_prior, model_effect, standing_of, was_seen
from inferometer.predict.work.classes import FITTED


def row(**facts):
    known = {
        "dataset": "mine", "source": "mine", "file": "x.csv", "line": 2, "device_published": "S25",
        "model_published": "m",
        "device": "qualcomm-snapdragon-8-elite-npu", "unit": "npu", "model": "llama-3.2-1b", "engine": "genie",
        "engine_published": "genie", "weights": "i4", "activations": "i16", "batch": 1, "quantity": "decode",
        "figure": 20.0, "figure_unit": "ms",
    }  # fmt: skip
    return PublishedMeasurement(**{**known, **facts})


def steps(**facts):
    return [(each.phase, each.query, each.context, each.times) for each in steps_of(row(**facts))]


def test_a_decoding_rate_is_that_of_the_step_in_the_middle():
    assert steps(context=4096, generate=128) == [("decode", 1, 4160, 1)]
    assert steps() == [("decode", 1, 256, 1)]  # a chat, where nothing is stated


def test_a_request_reads_its_prompt_in_chunks_and_makes_the_other_tokens_one_by_one():
    asked = {"quantity": "request", "prompt": 1024, "generate": 129, "settings": {"chunk": "16"}}
    assert steps(**asked) == [("prefill", 16, 504.0, 64), ("decode", 1, 1088.5, 128)]


def test_an_engine_that_was_compiled_for_a_length_reads_prompts_of_that_length():
    (read,) = steps_of(row(quantity="prefill", prompt=300, context=0), 128)
    assert (read.query, read.context, read.times) == (128, 128, 3)
    asked = {"on": "qualcomm-snapdragon-8-elite-npu", "runtime": "genie", "generate": 1}
    answers = [ask("llama-3.2-1b", prompt=prompt, **asked).answer() for prompt in (10, 128, 129)]
    short, whole, longer = (answer.phase("prefill").time_s for answer in answers)
    assert short == pytest.approx(whole)
    assert longer > 1.5 * whole
    assert any("10 take as long as 128" in note for note in answers[0].provenance.notes)


def test_a_model_that_hears_makes_tokens_of_its_own_case_and_its_prompt_is_heard():
    heard = {"model": "whisper-base", "device": "apple-m2-ultra-gpu", "unit": "gpu", "engine": "whispercpp",
             "weights": "f16", "activations": "f16"}  # fmt: skip
    (case,) = language_cases([row(**heard)]).cases
    assert case.quantity == "decode"
    assert was_seen(case.standing, tokens=True)
    assert not language_cases([row(**heard, quantity="prefill", prompt=4)]).cases


X86 = {
    "device": "intel-core-i9-13900k-cpu", "unit": "cpu", "engine": "openvino", "weights": "f16", "activations": "f16",
}  # fmt: skip
ARM = {"device": "raspberry-pi-5", "unit": "cpu", "engine": "llamacpp", "weights": "q4_0", "activations": None}


def test_a_token_of_a_busy_system_is_one_of_many():
    busy = row(
        quantity="tokens", figure=100.0, figure_unit="tokens/s", batch=None, concurrency=8, prompt=64, generate=50
    )
    assert seconds_of(busy) == pytest.approx(8 * 50 / 100)


def test_what_a_question_cannot_say_is_a_variant():
    stated = {"host": "Pi CM5 - 16GB", "backend": "vulkan_radv", "flash_attention": "0", "decoding": "self-speculative"}
    assert variants_of(row(settings=stated)) == (
        "backend=vulkan", "decoding=self-speculative", "flash_attention=0", "host=small",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        ({"quantity": "forward"}, "forward is no speed of tokens"),
        ({"engine": "abacus"}, "the engine abacus is not described"),
        ({"model": None}, "the model m has no graph here"),
        ({"weights": None}, "no number format is stated"),
        ({"quantity": "prefill"}, "no length of the prompt is stated"),
        (
            {"count": 4, "engine": "llamacpp", "quantity": "tokens", "prompt": 9, "generate": 9},
            "more than one device",
        ),
        ({"unit": "cpu+gpu"}, "a CPU and a GPU shared the layers"),
        ({"model": "resnet50"}, "resnet50 makes no tokens"),
        ({"quantity": "tokens", "prompt": 9, "batch": None}, "how many sequences ran at once is not stated"),
    ],
)
def test_what_cannot_be_asked_is_counted_by_its_reason(facts, reason):
    reading = language_cases([row(**facts)])
    assert (reading.cases, dict(reading.left)) == ((), {reason: 1})


@pytest.mark.parametrize(
    ("facts", "sizes"),
    [
        ({"quantity": "decode", "context": 1000}, {"context": 1000}),
        ({"quantity": "prefill", "prompt": 512}, {"prompt": 512, "generate": 0}),
        # An engine loads its weights in another way on x86 and on Arm: a fit that forgot it was answered with twice.
        ({"quantity": "decode", "context": 1000, **X86}, {"context": 1000}),
        ({"quantity": "decode", "context": 1000, **ARM}, {"context": 1000}),
    ],
)
def test_a_prediction_is_what_the_fit_says_of_the_same_steps(facts, sizes):
    published = row(**facts)
    (case,) = language_cases([published]).cases
    phase = facts["quantity"]
    prior, effect = fitted_prior(case.standing, phase), model_effect(case.model, case.standing, phase)
    rates = np.array([prior.classes[FITTED[place]] for place in case.classes])
    compute = (case.compute + prior.unpack * case.unpack) / rates[:, 0]
    ops = np.maximum(compute, case.memory / rates[:, 1]) + case.kernels * rates[:, 2]
    fitted_s = float(np.sum(case.repeats * ops)) + case.steps * prior.step_s
    formats = {"weights": published.weights, "activations": published.activations}
    question = ask(published.model, on=published.device, runtime=published.engine, calibrated=False, **formats, **sizes)
    # A prompt in parts is one op of a case: where some parts wait for memory and some for arithmetic, it is the mean's.
    near = 2e-3 if phase == "prefill" else 1e-6
    assert question.answer().phase(phase).time_s == pytest.approx(fitted_s * effect.times, rel=near)


def ideal_s(**facts):
    (case,) = language_cases([row(**facts)]).cases
    return float(np.sum(case.repeats * np.maximum(case.compute, case.memory))), case.standing.variants


def test_devices_share_each_layer_but_llamacpp_gives_each_card_some_of_them():
    one, two = (ideal_s(count=count, device="intel-gaudi-2", engine="deepspeed-mii", weights="bf16", activations=None)
                for count in (1, 2))  # fmt: skip
    assert two[0] == pytest.approx(one[0] / 2, rel=0.1)
    assert two[1] == ("split",)
    cards = {"device": "nvidia-rtx-3090", "unit": "gpu", "engine": "llamacpp", "weights": "q4_0", "activations": None}
    assert ideal_s(count=2, **cards)[0] == ideal_s(**cards)[0]  # a token passes through one card after the other
    # Two parts of a prompt pass two cards in the time of three parts on half of the layers each.
    prompt = {"quantity": "prefill", "prompt": 1024, **cards}
    assert ideal_s(count=2, **prompt)[0] == pytest.approx(0.75 * ideal_s(**prompt)[0])


def test_a_device_may_be_described_by_its_name():
    (case,) = language_cases([
        row(device=None, device_published="M1 7-Core GPU 8GB", unit="gpu", engine="llamacpp", weights="q4_0",
            activations=None)
    ]).cases  # fmt: skip
    assert case.standing.device == "apple-m1-gpu-7-cores"


def test_unpacking_weights_costs_as_much_for_one_row_as_for_many():
    read = {"quantity": "prefill", "device": "rockchip-rk3588-npu", "engine": "rkllm"}
    one, many = (language_cases([row(**read, prompt=length)]).cases[0] for length in (1, 64))
    assert np.sum(one.unpack * one.repeats) == pytest.approx(np.sum(many.unpack * many.repeats))
    assert np.sum(many.compute * many.repeats) > 30 * np.sum(one.compute * one.repeats)


def test_slopes_of_a_request_are_those_of_its_time():
    request = row(quantity="request", prompt=64, generate=9, settings={"chunk": "16"})
    (case,) = language_cases([request]).cases
    stack = stack_of([case], np.array([0]), np.tile(np.linspace(-2.0, -1.0, len(PARAMETERS)), (1, 1)))
    zero = np.zeros((1, len(PARAMETERS)))
    logs, slopes = log_times(stack, zero)
    for place in (0, 1, 2, 3, PARAMETERS.index("unpack"), PARAMETERS.index("memory:linear.decode")):
        moved = zero.copy()
        moved[0, place] = 1e-6
        assert (log_times(stack, moved, slopes=False)[0] - logs)[0] / 1e-6 == pytest.approx(slopes[0, place], abs=1e-4)


def test_a_card_stands_with_those_of_its_kind_of_memory_whatever_half_of_a_float_is_beside_its_weights():
    a100, card = device_named("nvidia-a100-80gb"), device_named("nvidia-rtx-3090")
    wide, half = (
        standing_of(device, "llamacpp", Precision(weights="q4_k", activations=activations)).levels()
        for device, activations in ((a100, "bf16"), (card, "f16"))
    )
    assert {name for name in wide if name.startswith("memory:")} == {"memory:gpu:NVIDIA:hbm"}
    assert set(wide) & set(half) >= {"format:gpu:q4_k/f16", "engine:gpu:llamacpp", "family:gpu:ampere"}


def test_a_device_is_new_to_an_engine_that_nobody_has_run_there():
    phone = device_named("qualcomm-snapdragon-8-elite-cpu")
    known, new = (standing_of(phone, engine, Precision(weights="i4")) for engine in ("llamacpp", "executorch"))
    assert was_seen(known, tokens=True)
    assert not was_seen(new, tokens=True)
    assert fitted_prior(new, "decode").spread > 0.1  # others' phones say how far off it may be
