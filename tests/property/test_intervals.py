"""Every number that has an interval lies within it: of all models, on several kinds of devices, with every option."""

from functools import cache
from itertools import chain

import pytest

from inferometer.core import Parallel, Workload
from inferometer.core.errors import DomainError
from inferometer.formats.resolve import read
from inferometer.known import device, link
from inferometer.known.files import rows_of
from inferometer.predict.options import HostCosts, Offload, Options, Speculative
from inferometer.predict.question import Question
from inferometer.understand.view.phrases import TIMES, time_interval

MODELS = tuple(rows_of("models").by_name)
# Calibrated and not; a server's GPU, a board without known storage, an NPU.
PLACES = (
    ("nvidia-h200", "torch-compile"), ("nvidia-l4", "torch-eager"), ("raspberry-pi-5", "llamacpp"),
    ("jetson-orin-nano-super", "onnxruntime"), ("apple-m4-ane", "ideal"),
)  # fmt: skip
LINK = link("infiniband-ndr")
HOST = HostCosts(tokenise_s_per_token=1e-5, sampling_s=1e-4, detokenise_s_per_token=2e-6)


@cache
def graph(name):
    return read(name)


def options():
    """Every way to put phases together, with how the devices are arranged."""
    draft = Speculative(draft=graph("llama-3.2-1b"), length=4, acceptance=0.7)
    yield Options(), Workload()
    yield Options(host=HOST, steps=7, link=LINK), Workload(batch=3, parallel=Parallel(tp=2))
    yield (
        Options(chunk=100, micro_batches=2, link=LINK),
        Workload(batch=4, prompt=300, generate=40, parallel=Parallel(pp=2)),
    )
    yield Options(speculative=draft, host=HOST), Workload(prompt=64, generate=16)
    yield Options(offload=Offload(layers=1)), Workload(context=33)


def intervals(profile):
    """(what, low, value, high) of everything that is shown with two ends."""
    for label, key, phase in TIMES:
        value = getattr(profile.summary, key)
        found = value is not None and time_interval(profile, key.removesuffix("_s"), profile.phase(phase or ""))
        if value is not None:
            assert found, f"{label} has no interval"
            yield label, found[0], value, found[1]
    for part in chain(profile.phases, *(phase.ops for phase in profile.phases)):
        if part.low_s is not None:
            yield part.name, part.low_s, part.time_s, part.high_s


def require_inside(profile):
    for what, low, value, high in intervals(profile):
        assert 0 <= low <= value * (1 + 1e-12), (what, low, value)
        assert value <= high * (1 + 1e-12), (what, value, high)


@pytest.mark.parametrize("place", range(len(PLACES)), ids=[name for name, _ in PLACES])
def test_every_time_lies_within_its_interval(place):
    """Each model in one place; options take turns, so that every pair of them and a place meets some models."""
    (where, runtime), asked, answered = PLACES[place], list(options()), set()
    for turn, name in enumerate(MODELS[place :: len(PLACES)]):
        chosen, workload = asked[turn % len(asked)]
        question = Question(graph=graph(name), device=device(where), runtime=runtime, workload=workload, options=chosen)
        try:
            profile = question.answer()
        except DomainError:
            continue  # some options are not for every model or device
        answered.add(turn % len(asked))
        require_inside(profile)
    assert len(answered) >= 4  # of five


def test_a_prompt_that_is_read_elsewhere_has_an_interval_of_both_machines_and_the_link():
    question = Question(
        graph=graph("llama-3.2-1b"), device=device("nvidia-l4"), runtime="torch-compile",
        options=Options(link=LINK), prefill_on=device("nvidia-h100-sxm"),
    )  # fmt: skip
    profile = question.answer()
    require_inside(profile)
    phases = [profile.phase(name) for name in ("prefill", "transfer")]
    assert profile.summary.ttft_low_s == pytest.approx(sum(phase.low_s for phase in phases))
    assert profile.summary.e2e_high_s == pytest.approx(
        sum(phase.high_s for phase in phases) + 127 * profile.phase("decode").high_s
    )


def test_the_time_to_the_first_token_of_a_model_that_listens_has_the_encoder_in_its_interval():
    """Whisper's first token was shown as 33.2 ms, between 3.3 and 9.6: the decoder's ends alone."""
    profile = Question(graph=graph("whisper-small"), device=device("nvidia-l4"), runtime="torch-compile").answer()
    encode, prefill = profile.phase("encode"), profile.phase("prefill")
    assert profile.summary.interval("ttft") == (encode.low_s + prefill.low_s, encode.high_s + prefill.high_s)
