"""Before a download: what fits, how fast, and where the rest would lie."""

import re
from dataclasses import replace
from itertools import permutations

import pytest

import inferometer as im
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.predict import placing
from inferometer.predict.ask import ask
from inferometer.predict.placing import _Layers, can_i_run, placement, split_layers

HOST = "amd-ryzen-ai-9-365-cpu"
CASES = [
    ("llama-3.1-70b", "nvidia-rtx-4090"), ("qwen3-30b-a3b", "nvidia-rtx-4060-ti"), ("deepseek-v3", "nvidia-rtx-4090"),
    ("llama-3.1-8b", "nvidia-rtx-4060-ti"),
]  # fmt: skip


def layers_of(flags):
    return int(re.search(r"-ngl (\d+)", flags)[1])


@pytest.mark.parametrize(("model", "device"), CASES)
def test_what_is_placed_on_a_gpu_fits_it_and_the_rest_is_counted(model, device):
    answer = can_i_run(model, on=device, host=HOST)
    assert [form.bits_per_weight for form in answer.forms] == sorted(f.bits_per_weight for f in answer.forms)[::-1]
    for form in answer.forms:
        if form.fits:
            assert form.host_bytes is None
            assert form.weights_bytes < answer.capacity_bytes
        else:
            held = form.weights_bytes - form.host_bytes
            assert form.host_bytes > 0
            assert held < answer.capacity_bytes
            assert form.limited_by == "capacity"


def test_published_quality_is_told_of_the_forms_that_have_it_and_fewer_bits_lose_more():
    answer = can_i_run("llama-3.1-8b", on="nvidia-rtx-4060-ti")
    lost = {form.weights: form.perplexity_lost for form in answer.forms}
    assert lost.pop("f16") is None
    assert list(lost.values()) == sorted(lost.values())
    assert "Llama-3-8B" in answer.quality
    others = can_i_run("llama-3.1-8b", on="nvidia-h200", runtime="vllm")
    assert others.quality is None
    assert {form.perplexity_lost for form in others.forms} == {None}


@pytest.mark.parametrize(("model", "device"), CASES)
def test_a_split_model_is_faster_than_on_the_cpu_alone_and_slower_than_on_the_gpu_alone(model, device):
    split = can_i_run(model, on=device, host=HOST)
    alone = {form.weights: form for form in can_i_run(model, on=HOST).forms}
    roomy = {form.weights: form for form in can_i_run(model, on="nvidia-b200").forms}
    for form in split.forms:
        if not form.fits:
            assert form.tokens_per_s >= 0.99 * alone[form.weights].tokens_per_s
            assert form.low < form.tokens_per_s < form.high
            if roomy[form.weights].fits:
                assert form.tokens_per_s < roomy[form.weights].tokens_per_s


def test_a_longer_context_leaves_room_for_no_more_layers():
    placed = [
        layers_of(form.flags)
        for context in (1024, 8192, 65536)
        for form in can_i_run("llama-3.1-70b", on="nvidia-rtx-4090", context=context).forms
        if form.weights == "q4_k"
    ]
    assert placed == sorted(placed, reverse=True)
    assert placed[0] > placed[-1] >= 0


@pytest.mark.parametrize("model", ["llama-3.1-70b", "qwen3-30b-a3b"])
def test_whatever_takes_a_devices_memory_takes_the_same_room(model):
    """What is no weight and no cache is all there or all away, and its bytes count alike wherever they are told."""
    question = ask(model, on="nvidia-rtx-4060-ti", runtime="llamacpp", weights="q4_k", prompt=512, generate=64)
    plain = replace(question.fit(), activations_bytes=0, workspace_bytes=0, state_bytes=0, reserve_bytes=None)
    room = plain.capacity_bytes
    free = placement(question, plain)
    for taken in (room // 4, room // 2, 2 * room):
        found = {
            placement(question, replace(plain, **{name: taken}))
            for name in ("activations_bytes", "workspace_bytes", "state_bytes", "reserve_bytes")
        }
        assert found == {placement(question, replace(plain, capacity_bytes=room, activations_bytes=taken))}
        (placed,) = found
        assert placed.device_bytes <= room
        assert placed != free


@pytest.mark.parametrize("known", [(8e9, 24e9), (8e9, None), (None, None)])
def test_the_room_of_several_cards_is_their_sum_or_unknown(known, monkeypatch):
    cards = ("nvidia-rtx-4060-ti", "nvidia-rtx-4090")
    rooms = dict(zip(cards, known, strict=True))
    asked = placing._in_roomy

    def roomy(question, context):
        found = asked(question, context)
        return replace(found, capacity_bytes=rooms[question.device.name]) if told else found

    told = False
    monkeypatch.setattr(placing, "_in_roomy", roomy)
    monkeypatch.setattr(placing, "_spread", lambda asked, room, cpu: placing._form(asked[0], room, cpu))
    monkeypatch.setattr(placing, "busy_notes", lambda _roof: ())
    plain = can_i_run("smollm2-135m", on=cards).capacity_bytes
    told = True
    found = can_i_run("smollm2-135m", on=cards).capacity_bytes
    assert found == (None if None in known else sum(known)) != plain


def test_experts_leave_the_gpu_before_layers_do_and_dense_layers_are_counted_as_llamacpp_counts_them():
    mixed = {form.weights: form for form in can_i_run("deepseek-v3", on="nvidia-rtx-4090").forms}
    assert mixed["q8_0"].flags == "-ngl 99 --n-cpu-moe 61 -c 4096"  # its first 3 of 61 layers have no experts
    dense = can_i_run("llama-3.1-70b", on="nvidia-rtx-4090").forms
    assert all("moe" not in form.flags for form in dense)


@pytest.mark.parametrize("away", [0, 3])
@pytest.mark.parametrize("order", [*permutations(((3.0, 35.0), (1.0, 25.0), (2.0, 40.0)))])
def test_the_split_over_unequal_cards_is_the_fastest_of_all_that_fit(away, order):
    """Held against every way to cut seven layers into three runs."""
    cards = [
        _Layers(seconds=(s, s / 2), nbytes=(10.0, 4.0), room=room, rest_s=s, low=0.9, high=1.2) for s, room in order
    ]

    def seconds(runs):
        total, begin = 0.0, 1
        for card, run in zip(cards, runs, strict=True):
            light = max(0, min(begin + run, away) - begin)
            if (run - light) * 10 + light * 4 > card.room:
                return float("inf")
            total += (run - light) * card.seconds[0] + light * card.seconds[1]
            begin += run
            total += card.rest_s if run and begin == 8 else 0.0
        return total

    every = [(a, b, 7 - a - b) for a in range(8) for b in range(8 - a)]
    found = split_layers(cards, 8, away, 1)
    assert seconds(found) == min(map(seconds, every))
    assert split_layers([replace(card, room=5.0) for card in cards], 8, 0, 1) is None
    small = replace(cards[0], room=-1.0)  # what it would hold beside the layers is more than it has: it gets none
    assert split_layers([small, *cards], 8, away, 1) == (0, *found)
    assert split_layers([small], 8, away, 8) == (0,)


def test_two_cards_hold_what_neither_does_and_the_flags_say_how():
    both = can_i_run("qwen3-30b-a3b", on=("nvidia-rtx-3060", "nvidia-rtx-4060-ti"), host="amd-ryzen-9-9950x")
    alone = can_i_run("qwen3-30b-a3b", on="nvidia-rtx-3060", host="amd-ryzen-9-9950x")
    form, split = ({each.weights: each for each in answer.forms}["q4_k"] for answer in (alone, both))
    assert (form.fits, split.fits) == (False, True)
    assert split.tokens_per_s > form.tokens_per_s
    assert re.fullmatch(r"-ngl 99 --tensor-split (\d+),(\d+) -c 4096", split.flags)
    large = next(each for each in both.forms if each.weights == "f16")
    assert "--n-cpu-moe" in large.flags
    assert large.host_bytes > 0
    with pytest.raises(DomainError, match="has no memory of its own"):
        can_i_run("qwen3-30b-a3b", on="nvidia-rtx-3060,raspberry-pi-5")


def test_without_the_host_the_speed_of_a_split_is_not_guessed():
    for form in can_i_run("llama-3.1-70b", on="nvidia-rtx-4090").forms:
        assert (form.tokens_per_s, form.low, form.high) == (None, None, None)
        assert form.flags.startswith("-ngl ")


def test_what_the_host_has_no_room_for_either_is_not_placed():
    forms = can_i_run("deepseek-v3", on="nvidia-rtx-4090", host="raspberry-pi-5").forms
    assert all(form.flags is None and "would lie on the host, which has 8." in form.why_not for form in forms)


def test_memory_that_is_shared_with_the_host_gains_nothing_by_it():
    for form in can_i_run("deepseek-v3", on="apple-m3-max-gpu").forms:
        assert (form.fits, form.flags, form.limited_by) == (False, None, "capacity")


def test_a_form_that_fits_is_as_fast_as_predict_says():
    form = next(form for form in can_i_run("llama-3.1-8b", on="nvidia-rtx-4090").forms if form.weights == "q4_k")
    summary = im.predict("llama-3.1-8b", on="nvidia-rtx-4090", weights="q4_k", prompt=512, generate=128).summary
    assert form.tokens_per_s == pytest.approx(summary.tokens_per_s, rel=1e-3)
    assert form.flags == "-ngl 99 -c 4096"


@pytest.mark.parametrize(
    "name", ["bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "https://huggingface.co/meta-llama/Llama-3.1-8B-Instruct"]
)
def test_an_id_of_elsewhere_is_the_catalogs_model_and_says_so(name):
    answer = can_i_run(name, on="nvidia-l4")
    assert answer.model == "llama-3.1-8b"
    assert "has the architecture of llama-3.1-8b" in answer.notes[0]


def test_what_cannot_be_told_is_refused_in_a_sentence(answered):
    with pytest.raises(UnknownNameError, match="Nothing is downloaded"):
        can_i_run("https://huggingface.co/foo/bar", on="nvidia-l4")
    with pytest.raises(DomainError, match="resnet50 makes no tokens"):
        can_i_run("resnet50", on="nvidia-l4")
    assert answered("can-i-run", "llama-3.1-8b", "--on", "nvidia-rtx-409O").returncode == 2


def test_one_screen_says_yes_in_part_or_no(answered):
    for words, verdict in (
        (("llama-3.1-8b", "--on", "nvidia-rtx-4090"), "yes"),
        (("llama-3.1-70b", "--on", "nvidia-rtx-4090"), "in part"),
        (("deepseek-v3", "--on", "raspberry-pi-5"), "no"),
    ):
        printed = answered("can-i-run", *words).stdout.splitlines()
        assert printed[1].startswith(verdict)
        assert len(printed) < 24
