"""Served models and changed questions, with the factors of replicas, users and devices worked out by hand."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core import Device, Memory, Op, Sourced
from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.traffic.lengths import Lengths
from inferometer.core.workload import Parallel, Precision
from inferometer.known import device as device_named
from inferometer.known import link as link_named
from inferometer.known.engines import engine, version_numbers
from inferometer.predict.ask import ask
from inferometer.predict.change import KEYS, Change, changed_device, parse_change
from inferometer.predict.options import Options, Speculative
from inferometer.predict.question import CalibrationChoices, Question, _link_between
from inferometer.predict.running import version_notes
from inferometer.predict.served import question as serving
from inferometer.predict.served.memory import ServingMemory, StepLimits, _padding
from inferometer.predict.served.steady import Traffic
from inferometer.predict.verbs import predict
from inferometer.serving.load.plan import LoadPlan, LoadStep
from inferometer.serving.simulate.plan import SimulationPlan
from inferometer.serving.simulate.run import simulate


@pytest.fixture
def question():
    return ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm", prompt=100, generate=50, tp=2, dp=3)


@pytest.mark.parametrize(
    ("users", "limit", "meets"),
    [
        (20, None, None),
        (20, 50.0, True),  # 1 / 0.02 s, just as many
        (20, 50.1, False),
        (24, 50.0, True),
        (25, 50.0, False),  # three replicas of eight: one has to wait
    ],
)
def test_users_share_the_replicas(monkeypatch, question, users, limit, meets):
    together = users * 50 / (49 * 0.02 + 0.5)  # an answer of each user over the time until it is whole
    steady = SimpleNamespace(sequences=8, tpot_s=0.02, ttft_s=0.5, step_s=0.01, bound="memory",
                             interval=lambda name: (f"{name} low", f"{name} high"))  # fmt: skip
    asked = []
    what = SimpleNamespace(memory=None, notes=("a note",), drafts=None, devices=6, replicas=3,
                           steady=lambda traffic, count: asked.append((traffic, count)) or steady)  # fmt: skip
    monkeypatch.setattr(serving, "served", lambda _question: what)
    monkeypatch.setattr(
        serving, "hourly_price", lambda _device, count, _place: SimpleNamespace(usd_per_hour=2.0 * count)
    )
    monkeypatch.setattr(serving, "million_usd", lambda price, rate: price.usd_per_hour / 3600 / rate * 1e6)
    found = serving.serving_answer(question, users, limit)
    ((traffic, count),) = asked
    assert (traffic.prompt, traffic.generate, traffic.cached, count) == (100, 50, 0, users)
    assert (found.meets, found.batch, found.replicas, found.tp, found.devices) == (meets, 8, 3, 2, 6)
    assert found.tokens_per_s_per_user == 50.0
    assert found.tokens_per_s == pytest.approx(together)
    assert found.tokens_per_s_per_device == pytest.approx(together / 6)
    assert found.usd_per_hour == 12.0
    assert found.usd_per_million_tokens == pytest.approx(12.0 / 3600 / together * 1e6)
    assert (found.ttft_low_s, found.ttft_high_s) == ("ttft low", "ttft high")
    assert (found.tpot_low_s, found.tpot_high_s) == ("tpot low", "tpot high")
    assert (found.kv_tokens, found.notes) == (None, ("a note",))


def test_replicas_share_users_and_add_tokens(monkeypatch, question):
    calls = {}
    for name in ("steady_state", "saturated_tokens_per_s", "batch_seconds"):
        monkeypatch.setattr(
            serving, name, lambda *given, name=name, **more: calls.update({name: (given, more)}) or 10.0
        )
    what = serving.served(question)
    assert (what.devices, what.replicas, what.stages) == (6, 3, 1)
    what.steady("traffic", 7)
    assert calls["steady_state"][0][4] == 3  # of seven, one replica has three
    assert what.saturated("traffic", most=5) == 30.0
    assert calls["saturated_tokens_per_s"][1]["most"] == 5
    what.batch_seconds("traffic", 9)
    assert calls["batch_seconds"][0][4] == 3
    what.batch_seconds("traffic", 0)
    assert calls["batch_seconds"][0][4] == 1


def test_a_pipeline_has_stages_and_a_replica_its_own_memory():
    plain, piped = (serving.served(ask("llama-3.2-1b", on="nvidia-l4", runtime="vllm", **more, batch=more.get("dp", 1)))
                    for more in ({}, {"pp": 2, "dp": 2}))  # fmt: skip
    assert (piped.stages, piped.replicas, piped.devices) == (2, 2, 4)
    assert piped.memory.weights_bytes < 0.7 * plain.memory.weights_bytes


@pytest.mark.parametrize(("engine", "reserves"), [("vllm", False), ("sglang", False), ("trtllm", True)])
def test_users_find_the_room_that_the_simulated_scheduler_gives_them(engine, reserves):
    """Twice as many users as whole answers fit: who evicts nobody makes the second half wait for the first to end."""
    asked, traffic = ask("llama-3.1-8b", on="nvidia-l4", runtime=engine), Traffic(prompt=64, generate=2048)
    what = serving.served(asked)
    fits = what.memory.sequences_of(traffic.prompt + traffic.generate)
    lengths = {name: Lengths(kind="fixed", mean=getattr(traffic, name)) for name in ("prompt", "generate")}
    loaded = LoadPlan(url="", steps=(LoadStep(concurrency=2 * fits),), requests=2 * fits, **lengths)
    requests = simulate(SimulationPlan(question=asked, traffic=loaded)).served.levels[0].requests
    waits = np.sort(np.array(requests.first_s) - np.array(requests.due_s))
    told = what.steady(traffic, 2 * fits)
    assert what.limited(sequences=7).limits.reserves == what.limits.reserves == reserves
    assert (told.sequences == fits) == (waits[fits] > 2 * waits[fits - 1]) == reserves
    assert not reserves or told.ttft_s == pytest.approx(waits[-1], rel=0.1)


def test_limits_and_shares_of_memory_can_be_changed(question):
    what = serving.served(question)
    given = what.limits
    assert what.limited(tokens=5).limits == StepLimits(tokens=5, sequences=given.sequences, waits=0.0)
    assert what.limited(sequences=6, waits=2.0).limits == StepLimits(tokens=given.tokens, sequences=6, waits=2.0)
    half = what.with_memory_share(0.5)
    assert half.memory.usable_bytes == 0.5 * what.memory.visible_bytes
    assert replace(what, memory=None).with_memory_share(0.5).memory is None


@pytest.mark.parametrize(("measured", "own", "spread"), [(False, False, 0.35), (True, False, 0.18), (True, True, 0.06)])
def test_a_step_is_surer_the_nearer_its_measurement_is(measured, own, spread):
    assert serving._spread_of(measured=measured, own=own) == spread


def test_a_model_that_is_too_large_says_how_many_devices_hold_it():
    memory = SimpleNamespace(weights_bytes=150e9, activations_bytes=2e9, reserve_bytes=1e9, usable_bytes=23e9)
    question = ask("llama-3.1-70b", on="nvidia-l4", runtime="vllm", tp=2)
    assert "needs 153 GB, and vllm uses 23 GB" in serving._too_large(question, memory)
    assert serving._fewer_bytes(question, memory).startswith("Use --tp 16,")  # 300 GB over 20 GB each
    exact = SimpleNamespace(**{**vars(memory), "weights_bytes": 80e9})
    assert serving._fewer_bytes(question, exact).startswith("Use --tp 8,")  # 160 GB are 8 × 20 GB
    more = SimpleNamespace(**{**vars(memory), "weights_bytes": 84e9})
    assert serving._fewer_bytes(question, more).startswith("Use --tp 16,")  # what is reserved leaves no 21 GB
    none = SimpleNamespace(**{**vars(memory), "usable_bytes": 3e9})
    assert serving._fewer_bytes(question, none).startswith("Use --tp 1,")


def test_a_draft_shares_its_layers_as_the_model_does_and_gains_what_is_accepted(monkeypatch, question):
    """Of three drafted tokens, each accepted by half: 1 + 1/2 + 1/4 + 1/8 tokens a step."""
    asked = []
    drafts_memory = SimpleNamespace(weights_bytes=5.0, kv_bytes_per_token=0.5, windows=((8, 0.25),), state_bytes=7.0)
    drafter = SimpleNamespace(memory=drafts_memory, step="a step")
    monkeypatch.setattr(serving, "served", lambda other: asked.append(other) or drafter)
    draft = ask("llama-3.2-1b", on="nvidia-l4").graph
    drafting = Options(speculative=Speculative(draft=draft, acceptance=0.5, length=3), cached_prefix=7)
    memory = ServingMemory(
        visible_bytes=1e3, usable_bytes=900.0, weights_bytes=100.0, activations_bytes=1.0, reserve_bytes=2.0,
        kv_bytes_per_token=3.0, block_tokens=16,
    )  # fmt: skip
    split = replace(question.workload, parallel=Parallel(tp=2, dp=4, ep=8))
    drafts, held = serving._drafts(replace(question, options=drafting, workload=split), memory)
    assert (drafts.length, drafts.gained, drafts.step) == (3, 1.875, "a step")
    assert held == replace(memory, weights_bytes=105.0, kv_bytes_per_token=3.5, windows=((8, 0.25),), state_bytes=7.0)
    (other,) = asked
    assert other.graph is draft
    assert (other.options.speculative, other.options.cached_prefix) == (None, 0)
    assert (other.workload.parallel, other.workload.precision) == (Parallel(tp=2), Precision())
    assert serving._drafts(question, None) == (None, None)


def test_tokens_for_nobody_are_refused(question):
    with pytest.raises(DomainError, match="greater than 0"):
        serving.serving_answer(question, 1, 0.0)
    with pytest.raises(DomainError, match="one batch at a time"):
        serving.served(ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-eager"))
    with pytest.raises(DomainError, match="makes no tokens"):
        serving.served(ask("resnet50", on="nvidia-l4", runtime="vllm"))


# Changes


def number(value):
    return Sourced(value=value, origin="datasheet", source="a test", date="2026")


DEVICE = Device(
    name="d", title="d", vendor="v", unit="gpu", kind="server", peaks={"f32": number(10.0), "bf16": number(20.0)},
    memories=(Memory(level="hbm", bandwidth_bytes_per_s=number(3.0), capacity_bytes=number(100.0),
                     usable_bytes=number(80.0)), Memory(level="l2", bandwidth_bytes_per_s=number(9.0))),
    power_w=number(50.0), launch_s=number(1e-6),
)  # fmt: skip


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("memory.bandwidth*=2", {"bandwidth": 6.0}),
        ("memory.bandwidth=5 GB/s", {"bandwidth": 5e9}),
        ("memory.capacity*=0.5", {"capacity": 40.0}),  # of what a program can fill
        ("memory.capacity = 7", {"capacity": 7.0}),
        ("peak*=3", {"f32": 30.0, "bf16": 60.0}),
        ("peak.bf16*=3", {"bf16": 60.0}),
        ("peak.i8=8 TFLOP/s", {"i8": 8e12}),
        ("power*=2", {"power": 100.0}),
        ("launch=3us", {"launch": 3e-6}),
    ],
)
def test_one_figure_of_a_device_changes_and_no_other(change, expected):
    def figures(device):
        main, cache = device.memories
        return {
            **{name: peak.value for name, peak in device.peaks.items()}, "bandwidth": main.bandwidth_bytes_per_s.value,
            "capacity": main.room.value, "l2": cache.bandwidth_bytes_per_s.value, "power": device.power_w.value,
            "launch": device.launch_s.value,
        }  # fmt: skip

    assert figures(changed_device(DEVICE, parse_change(change))) == pytest.approx({**figures(DEVICE), **expected})


@pytest.mark.parametrize(
    "change", ["memory.bandwidth*=0", "power=-1", "peak.i8*=2", "batch*=2", "on*=2", "batch", "=3", "runtime*=2"]
)
def test_a_change_that_gives_nothing_is_refused(change):
    with pytest.raises(DomainError):
        changed_device(DEVICE, parse_change(change))


def test_an_unknown_key_is_told_with_those_that_are_known():
    with pytest.raises(UnknownNameError, match="Did you mean batch"):
        parse_change("bach=3")
    assert str(parse_change(" peak.bf16 *= 2 ")) == "peak.bf16*=2"
    assert {key: Change(key=key, value="1").of for key in KEYS} == KEYS
    assert Change(key="peak.i8", value="1").of == "device"
    for wrong in ("1.5", "x", "-2"):
        with pytest.raises(DomainError, match="whole number"):
            Change(key="batch", value=wrong).number  # noqa: B018 - it is what raises


def test_a_changed_question_differs_in_that_one_thing():
    asked = ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-compile", tp=2, batch=4, prompt=64, generate=8)
    workload, options = asked.workload, asked.options
    for change, expected in {
        "batch=8": replace(asked, workload=replace(workload, batch=8)),
        "context=9": replace(asked, workload=replace(workload, context=9)),
        "dp=4": replace(asked, workload=replace(workload, parallel=replace(workload.parallel, dp=4))),
        "chunk=16": replace(asked, options=replace(options, chunk=16)),
        "overlap=0.25": replace(asked, options=replace(options, overlap=0.25)),
        "kv=f8e4m3": replace(asked, workload=replace(workload, precision=Precision(kv="f8e4m3"))),
        "runtime=torch-eager": replace(asked, runtime="torch-eager"),
        "on=nvidia-h200": replace(asked, device=device_named("nvidia-h200")),
    }.items():
        changed = asked.changed(change)
        assert replace(changed, graph=asked.graph) == expected, change
    both = asked.changed("precision=f16").workload.precision
    assert (both.weights, both.activations, both.kv) == ("f16", "f16", None)
    assert asked.changed("offload_layers=1").options.offload.layers == 1
    with pytest.raises(DomainError, match="a prediction does not cover"):
        asked.changed("threads=4")


def calibrated(**more):
    table = Utilisation(op_class="linear", stream="floor", axes=("rows",), grid=((1.0,),), values=(0.5,), residual=0.1)
    given = {"device": "nvidia-l4", "runtime": "torch-compile", "dtype": "bf16", "created": "2026-01-01"}
    return Calibration(**{**given, **more}, tables=(table,))


def test_a_given_calibration_goes_with_what_it_is_of():
    asked = ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-compile")
    asked = replace(asked, calibration=calibrated())
    kept = {change: asked.changed(change).calibration is not None
            for change in ("batch=2", "kv=f16", "weights=i8", "activations=f16", "runtime=torch-eager",
                           "on=nvidia-t4", "memory.bandwidth*=2")}  # fmt: skip
    assert kept == {
        "batch=2": True, "kv=f16": True, "weights=i8": True, "activations=f16": False, "runtime=torch-eager": False,
        "on=nvidia-t4": False, "memory.bandwidth*=2": True,
    }  # fmt: skip


def test_of_given_calibrations_each_question_has_its_own_and_whatever_differs_is_looked_up_again():
    given = [calibrated(dtype="f32"), calibrated(), calibrated(runtime="torch-eager"), calibrated(device="nvidia-t4")]
    choices = CalibrationChoices(given)
    asked = ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-compile")

    def chosen(question, **formats):
        found = choices.calibration(question, Precision(**formats))
        return next((place for place, each in enumerate(given) if each is found), None)

    assert chosen(asked) == 1
    assert chosen(asked, activations="f32") == 0
    assert chosen(asked, activations="f16") == 0  # none of that format: the first
    assert chosen(replace(asked, runtime="torch-eager")) == 2
    assert chosen(replace(asked, device=device_named("nvidia-t4"))) == 3
    assert chosen(asked) == 1


@pytest.mark.parametrize(
    "other",
    [{"had_threads": 3}, {"options": {"threads": 3}}, {"options": {"layout": "nhwc"}},
     {"options": {"engine_version": "9"}}, {"runtime": "torch-eager"}, {"calibration": None}],
)  # fmt: skip
def test_a_choice_is_shared_by_questions_that_would_choose_the_same_and_by_no_others(monkeypatch, other):
    """Each question would have a calibration of its own: those of a kept choice are the first one's."""
    first = ask("llama-3.2-1b", on="nvidia-l4", runtime="torch-compile")
    changes = {**other, "options": replace(first.options, **other.get("options", {}))}
    second, asked = replace(first, **changes), []
    monkeypatch.setattr(Question, "basis", lambda self: asked.append(self) or SimpleNamespace(calibration=len(asked)))
    choices = CalibrationChoices()
    found = [choices.calibration(question, Precision()) for question in (first, second, first, second)]
    assert found == ([1, 2, 1, 2] if other != {"calibration": None} else [1] * 4)


def linked(peer=None, network=None):
    def link(name, rate):
        return SimpleNamespace(name=name, bandwidth_bytes_per_s=rate)

    return SimpleNamespace(
        peer_link=peer, network_link=None if network is None else link(f"net {network}", network or None)
    )


def test_two_machines_are_linked_by_what_both_have_or_the_slower_network():
    peer = SimpleNamespace(name="nvlink")
    assert _link_between(linked(peer, 5), linked(peer, 3)) is peer
    assert _link_between(linked(peer, 5), linked(None, 3)).name == "net 3"
    assert _link_between(linked(None, 3), linked(peer, 5)).name == "net 3"
    assert _link_between(linked(), linked(None, 5)).name == "net 5"
    assert _link_between(linked(None, 0), linked()) is None  # its bandwidth is not known


def test_a_prompt_that_is_read_elsewhere_takes_that_devices_time():
    options = Options(link=link_named("infiniband-ndr"))
    both = ask("llama-3.2-1b", on="nvidia-l4", prefill_on="nvidia-h200", prompt=512, generate=4, options=options,
               runtime="torch-compile").answer()  # fmt: skip
    reading = ask("llama-3.2-1b", on="nvidia-h200", prompt=512, generate=4, runtime="torch-compile").answer()
    writing = ask("llama-3.2-1b", on="nvidia-l4", prompt=512, generate=4, runtime="torch-compile").answer()
    assert both.phase("prefill").time_s == pytest.approx(reading.phase("prefill").time_s)
    assert both.phase("decode").time_s == pytest.approx(writing.phase("decode").time_s)
    assert both.summary.ttft_s > reading.summary.ttft_s


def test_an_answer_says_whose_costs_its_version_of_the_engine_has():
    rules = engine("vllm").serving
    since = [costs.since for costs in rules.costs if not costs.devices]
    for version in (None, *since, "999"):
        whose = max((each for each in since if version_numbers(each) <= version_numbers(version or rules.version)),
                    key=version_numbers)  # fmt: skip
        words = "of the oldest that is known" if whose == "0" else f"of {whose} and newer"
        options = Options(engine_version=version)
        (note,) = version_notes(replace(ask("llama-3.2-1b", on="nvidia-h100-sxm", runtime="vllm"), options=options))
        assert words in note, version
        assert (version or f"{rules.version}, the newest that is known") in note


def test_many_users_are_told_the_joules_of_a_token_and_more_of_them_take_fewer():
    few, many = (
        predict("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm", users=users, prompt=300, generate=400)
        for users in (8, 128)
    )
    assert few.energy_j_per_token_low < few.energy_j_per_token < few.energy_j_per_token_high
    assert many.energy_j_per_token < 0.5 * few.energy_j_per_token
    for answer in (few, many):  # what a card draws at most, over what it writes
        assert answer.energy_j_per_token * answer.tokens_per_s < 1.2 * 700


def test_an_unknown_power_leaves_the_joules_of_a_token_open():
    assert predict("llama-3.2-1b", on="amd-ryzen-ai-9-365-gpu", runtime="vllm", users=4).energy_j_per_token is None


@pytest.mark.parametrize(
    ("formats", "peaks", "grown"),
    [
        (("mxfp4", "mxfp4"), ("bf16",), 1.0),
        (("mxfp4", "bf16"), ("bf16",), 0.6),  # what is stored in other formats is not padded
        (("mxfp4", "mxfp4"), ("bf16", "nvfp4"), 0.0),
    ],
)
def test_experts_of_four_bits_grow_to_the_widths_that_kernels_take_where_they_are_widened(formats, peaks, grown):
    """100 × 30 numbers are stored as 128 × 32: 1.3653 times the bytes, of 3 layers on half of the devices."""
    bytes_of = dict(zip(("up", "down"), (60.0, 40.0), strict=True))
    mixture = Op(
        name="experts", kind="moe_experts", weights=("up", "down"), attributes={"hidden": 100, "intermediate": 30}
    )
    named = dict(zip(("up", "down"), formats, strict=True))
    binding = SimpleNamespace(format=lambda w: SimpleNamespace(name=named[w]), nbytes=bytes_of.__getitem__)
    prepared = SimpleNamespace(
        binding=lambda _sizes: binding, counts=lambda **_: [3.0], terms=SimpleNamespace(stages=1),
        rows=[SimpleNamespace(op=mixture, scale=SimpleNamespace(weights=0.5))],
    )  # fmt: skip
    ready = SimpleNamespace(layout=SimpleNamespace(prepared=prepared), graph=ask("llama-3.2-1b", on="nvidia-l4").graph)
    found = _padding(ready, SimpleNamespace(peaks=set(peaks)), SimpleNamespace(padded_to=(64, 16)))
    assert found == pytest.approx(grown * 3 * 0.5 * 100 * (128 * 32 / (100 * 30) - 1))
