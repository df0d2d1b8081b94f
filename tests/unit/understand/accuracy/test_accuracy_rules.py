"""Errors, aims and published services, with numbers worked out by hand."""

from dataclasses import replace
from math import exp, log
from types import SimpleNamespace

import pytest

from inferometer.core.errors import DomainError
from inferometer.core.profile import OpTime, Phase
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.understand.accuracy import atlas_file, judge
from inferometer.understand.accuracy.cases import AccuracyCase, Peer
from inferometer.understand.accuracy.edgeprofiler import EdgeHardware, edge_hardware
from inferometer.understand.accuracy.judge import Judged, chart_rows, error_summary, groups_of, peer_errors
from inferometer.understand.view import accuracy as page
from inferometer.understand.view.accuracy import AIMS, Aim, _row


def case(**given):
    values = {"model": "m", "device": "d", "runtime": "r", "dtype": "bf16", "phase": "decode", "batch": 2,
              "context": 128, "seconds": 1.0, "source": "test"}  # fmt: skip
    return AccuracyCase(**values | given)


def judged(time, low, high, **given):
    return Judged(case=case(**given), time_s=time, low_s=low, high_s=high, how="held out", by_kind={"a": 1.0, "b": 2.0})


def test_an_error_is_a_share_a_bias_a_ratio_and_a_width_relative():
    found = error_summary([judged(1.2, 1.0, 1.8), judged(0.5, 0.4, 0.9), judged(1.0, 0.5, 1.0)])
    assert found["n"] == 3
    assert found["median"] == pytest.approx(0.2)
    assert found["p90"] == pytest.approx(0.2 + 0.8 * 0.3)
    assert found["bias"] == pytest.approx((1.2 * 0.5 * 1.0) ** (1 / 3) - 1)
    assert found["covered"] == pytest.approx(2 / 3)  # an end counts as inside
    assert found["width"] == pytest.approx(0.8 / 1.2)
    assert judged(2.0, 1.0, 3.0).bias == pytest.approx(log(2))


def test_cases_are_grouped_and_drawn_by_what_they_are():
    one = judged(1.1, 1.0, 1.2, weights="i4", prompt=7)
    assert groups_of("model")(one) == ("m", "r")
    assert groups_of("op")(one) == ("b", "r")
    assert groups_of("device")(one) == ("d", "r", "decode", "i4")
    assert groups_of("device")(judged(1.1, 1.0, 1.2))[3] == "bf16"
    assert chart_rows([one]) == [
        {"model": "m", "runtime": "r", "phase": "decode", "batch": 2, "length": 7, "measured_s": 1.0,
         "predicted_s": 1.1, "low_s": 1.0, "high_s": 1.2}
    ]  # fmt: skip
    assert chart_rows([judged(1.0, 1.0, 1.0, context=None, image=224)])[0]["length"] == 224


def test_a_peer_is_compared_on_the_length_that_its_phase_has():
    peers = [Peer(peer="x", model="m", device="d", phase="decode", batch=2, length=128, seconds=1.5),
             Peer(peer="x", model="m", device="d", phase="prefill", batch=2, length=64, seconds=0.7)]  # fmt: skip
    ours = [judged(1.1, 1.0, 1.2), judged(0.9, 0.5, 1.2, runtime="s"),
            judged(1.0, 1.0, 1.0, phase="prefill", prompt=64, seconds=2.0)]  # fmt: skip
    rows = peer_errors(ours, peers)
    assert [(row["phase"], row["runtime"], row["n"]) for row in rows] == [
        ("decode", "r", 1), ("decode", "s", 1), ("prefill", "r", 1),
    ]  # fmt: skip
    assert [row["median"] for row in rows] == pytest.approx([0.5, 0.5, 0.65])
    assert [row["ours"] for row in rows] == pytest.approx([0.1, 0.1, 0.5])


def test_a_case_that_priors_were_made_from_is_seen_where_most_of_its_time_is_theirs(monkeypatch):
    def how(calibrated_s, *, used_for=("priors",), given="held out"):
        ops = (OpTime(name="a", kind="linear", time_s=calibrated_s, origin="calibrated"),
               OpTime(name="b", kind="norm", time_s=0.25, origin="prior"),
               OpTime(name="c", kind="norm", time_s=0.75 - calibrated_s, origin="prior"))  # fmt: skip
        phase = Phase(name="decode", time_s=1.0, low_s=0.5, high_s=2.0, ops=ops)
        monkeypatch.setattr(judge, "ask_like", lambda *_: SimpleNamespace(phase=lambda _name: phase))
        found = judge._judged(case(used_for=used_for), None, given)
        assert found.by_kind == pytest.approx({"linear": calibrated_s, "norm": 1 - calibrated_s})
        return found.how

    assert [how(0.5), how(0.49), how(0.2, used_for=())] == ["held out", "seen", "held out"]
    assert [how(0.2, given="left out"), how(0.2, given="priors")] == ["left out", "seen"]


@pytest.mark.parametrize(
    ("predicted", "met"),
    [
        ([1.05] * 8 + [1.1] * 2, False),  # none is missed: the intervals are too wide
        ([1.05] * 8 + [1.1, 3.0], True),
        ([1.06] * 8 + [1.1, 3.0], False),
        ([1.05] * 6 + [1.1, 1.1, 3.0, 3.0], False),
    ],
)
def test_an_aim_has_a_median_a_tail_and_two_ends_of_coverage(predicted, met):
    aim = Aim(what="w", median=0.0501, p90=0.3, holds=bool)
    found = _row(aim, [judged(time, 0.9, 1.2) if time < 2 else judged(time, 2.9, 3.1) for time in predicted])
    assert found["met"] is met
    assert found["aim"] == "≤ 5%, ≤ 30%, 75% to 90% covered"


def test_an_aim_is_about_the_cases_that_it_names():
    def aims_of(**given):
        how = given.pop("how", "held out")
        one = replace(judged(1.0, 0.9, 1.1, **{"device": "nvidia-h200", "runtime": "torch-compile", **given}), how=how)
        return [aim.what for aim in AIMS if aim.holds(one)]

    cpu = "intel-emerald-rapids-1-vcpu"
    assert aims_of() == ["H200, torch-compile, decode"]
    assert aims_of(phase="prefill") == ["H200, torch-compile, prefill"]
    assert aims_of(runtime="torch-graph", phase="forward") == ["H200, vision and BERT forward, graph"]
    assert aims_of(device="nvidia-l4") == aims_of(runtime="torch-eager") == aims_of(phase="forward") == []
    assert aims_of(device=cpu, runtime="onnxruntime") == ["CPU, ONNX Runtime"]
    assert aims_of(device=cpu, runtime="llamacpp") == ["CPU, llama.cpp"]
    assert aims_of(device=cpu, runtime="onnxruntime", how="priors") == []  # a datasheet alone has an aim of its own
    assert aims_of(runtime="onnxruntime") == aims_of(device=cpu, runtime="openvino") == []


# Published services


def published(**more):
    given = {"dataset": "x", "source": "s", "file": "f", "line": 1, "device_published": "D", "model_published": "M",
             "quantity": "tpot", "figure": 1.0, "figure_unit": "s", "device": "nvidia-h200", "model": "llama-3.1-8b",
             "engine": "vllm", "prompt": 1000, "generate": 100}  # fmt: skip
    return PublishedMeasurement(**{**given, **more})


MAX = {"client": "inferencemax"}


@pytest.mark.parametrize(
    ("more", "sizes"),
    [
        ({}, (1000, 100)),
        ({"settings": MAX}, (900, 90)),  # drawn between 80 and 100 %
        ({"prompt": 1, "generate": 1, "settings": MAX}, (1, 1)),
        ({"prompt": 0}, None),
        ({"generate": None}, None),
        ({"dataset": "mlperf", "model": "llama-2-70b", "settings": {"scenario": "offline"}}, (294, 294)),
        ({"dataset": "mlperf", "model": "llama-2-70b", "settings": {"scenario": "server"}}, None),
        ({"dataset": "mlperf", "model": "other", "settings": {"scenario": "offline"}}, None),
    ],
)
def test_the_lengths_of_a_published_service(more, sizes):
    assert atlas_file._sizes(published(**more)) == sizes


@pytest.mark.parametrize(
    ("more", "plan"),
    [
        ({"count": 4}, (4, 1, 1, 1)),
        ({"settings": {"tp": "2", "pp": "3"}, "count": 6}, (2, 3, 1, 1)),
        ({"settings": {"tp": "2", "dp": "4"}}, (2, 1, 4, 1)),
        ({"settings": {"tp": "2", "dp": "4"}, "model": "mixtral-8x7b"}, (2, 1, 4, 8)),
        ({"settings": {"dep": "8"}, "model": "deepseek-v3"}, (1, 1, 8, 8)),
        ({"settings": {"dep": "2", "pp": "2"}, "model": "qwen3-235b-a22b"}, (1, 2, 2, 2)),
        ({"settings": {"tp": "2", "ep": "8"}, "model": "deepseek-v3"}, (2, 1, 4, 8)),
        ({"settings": {"tp": "4", "ep": "4"}, "model": "qwen3-235b-a22b"}, (4, 1, 1, 4)),
        ({"settings": {"tp": "4", "ep": "4"}}, (4, 1, 1, 1)),
        ({"settings": {"tp": "4", "moe_tp": "4"}, "model": "mixtral-8x7b"}, (4, 1, 1, 1)),
        ({"settings": {"tp": "2", "moe_tp": "4", "ep": "2"}, "model": "mixtral-8x7b"}, (2, 1, 4, 8)),
        ({"settings": {"pp": "2"}, "count": 8}, (1, 2, 1, 1)),
        ({"dataset": "mlperf", "model": "deepseek-v3", "count": 8}, (1, 1, 8, 8)),
    ],
)
def test_the_devices_of_a_published_service_share_it(more, plan):
    assert atlas_file._plan(published(**more), "vllm") == plan


def test_copies_of_mlperf_are_as_many_as_fit(monkeypatch):
    monkeypatch.setattr(atlas_file, "_fewest_devices", lambda *_: 2)
    assert atlas_file._plan(published(dataset="mlperf", count=8), "vllm") == (2, 1, 4, 1)
    assert atlas_file._plan(published(dataset="mlperf", count=1), "vllm") == (2, 1, 1, 1)
    assert atlas_file._plan(published(dataset="mlperf", model="deepseek-v3", count=6), "vllm") == (2, 1, 3, 1)


@pytest.mark.parametrize(
    ("more", "formats", "cache"),
    [
        ({}, (None, {}), None),
        ({"weights": "f16"}, ("bf16", {}), None),
        ({"weights": "f8e4m3"}, ("f8e4m3", {}), None),
        ({"weights": "f8e4m3", "model_published": "X-FP8-KV"}, ("f8e4m3", {}), "f8e4m3"),
        ({"weights": "f8e4m3", "device": "nvidia-b200"}, ("f8e4m3", {}), "f8e4m3"),
        ({"weights": "nvfp4"}, ("nvfp4", {}), "f8e4m3"),
        ({"weights": "i4", "model": "kimi-k2"}, (None, {"*mlp.experts*": "i4"}), None),
        ({"weights": "nvfp4", "model": "minimax-m2"}, (None, {"*mlp.experts*": "nvfp4"}), "f8e4m3"),
        ({"weights": "f8e4m3", "model": "kimi-k2", "device": "nvidia-b200"}, ("f8e4m3", {}), None),
        ({"weights": "f8e4m3", "model": "deepseek-v3"}, (None, {}), None),
        ({"dataset": "mlperf"}, ("f8e4m3", {}), None),
        ({"dataset": "mlperf", "device": "nvidia-b200"}, ("nvfp4", {}), "f8e4m3"),
        ({"dataset": "mlperf", "device": "nvidia-a100-sxm-80gb"}, (None, {}), None),
    ],
)
def test_the_formats_of_a_published_service(more, formats, cache):
    row = published(**more)
    assert atlas_file._formats(row) == formats
    assert atlas_file._cache_format(row, "vllm", formats[0]) == cache


def test_the_version_is_stated_or_that_of_the_day():
    def version(runtime="vllm", **more):
        return atlas_file._version(published(**more), runtime)

    assert version(version="0.9.1", date="2026-04-01") == "0.9.1"
    assert version("trtllm", version="0.9.1", date="2025-08-01") == "0.21.0"
    assert version("trtllm", version="1.1.0", date="2025-08-01") == "1.1.0"
    assert [version(date=date) for date in ("2025-02-28", "2025-03-01", "2020-01-01", None)] == [
        "0.7.0", "0.8.0", "0.2.0", None,
    ]  # fmt: skip
    assert version("sglang", date="2025-03-01") is None
    assert (version(dataset="mlperf"), version("trtllm", dataset="mlperf")) == (None, "1.0.0")


def test_how_long_servers_hold_prompts_back():
    def waits(runtime, users, *, tp=4, dp=1, **more):
        return atlas_file._waits(published(**{"settings": MAX, **more}), runtime, tp, dp, users)

    assert [waits("sglang", users, device="nvidia-b200") for users in (15, 16)] == [5.0, 15.0]
    assert waits("sglang", 16) == 0.0
    even = {"prompt": 1024, "generate": 1024}
    others = 20 * 64 / 1024
    assert waits("trtllm", 64, **even) == pytest.approx(20 * (1 + others / 2) / (1 + others))
    assert waits("trtllm", 64, tp=8, **even) == waits("trtllm", 64) == waits("trtllm", 64, model="x", **even) == 0.0
    assert waits("trtllm", 64, settings={}, **even) == 0.0
    # copies of attention wait for each other: of two the other's prompt is half of an interval away
    assert waits("trtllm", 10, dp=2, generate=1000) == pytest.approx(20 * (1 - exp(-0.5 * 90 / 20)))
    assert waits("trtllm", 1, dp=8, generate=10_000) == pytest.approx(20)
    drafted = waits("trtllm", 1, dp=8, generate=10_000, settings={**MAX, "drafts": "1"})
    assert drafted == pytest.approx(60)
    assert waits("trtllm", 10, dp=1) == waits("vllm", 10, dp=8) == 0.0


def test_a_first_token_that_another_run_has_much_sooner_is_of_a_start():
    service = {"quantity": "ttft", "settings": {"mode": "agg", "tp": "8"}, "concurrency": 8}
    seconds = (7.0, 2.1, 2.0, 6.1)
    rows = [published(**service, figure=figure) for figure in seconds]
    assert atlas_file.of_a_start(rows) == {0, 3}
    # another service, another traffic, and tokens that are not the first
    others = [{"concurrency": 4}, {"model": "qwen3-32b"}, {"quantity": "tpot"}, {"settings": {"mode": "disagg"}}]
    assert (
        atlas_file.of_a_start([rows[1], *(published(**{**service, "figure": 9.0, **more}) for more in others)]) == set()
    )
    judged, left = atlas_file.judge_served(rows)
    assert (len(judged), list(left.values())) == (2, [2])
    assert "of a start" in next(iter(left))


def test_a_prompt_that_fills_the_window_has_no_answer_where_the_engine_ends_it():
    full = {"model": "llama-2-7b", "quantity": "request", "prompt": 4096, "generate": 128, "batch": 1}
    with pytest.raises(DomainError, match="no answer was measured"):
        atlas_file.served_case(published(**full))
    assert atlas_file.served_case(published(**full, engine="trtllm")).traffic.generate == 128
    assert atlas_file.served_case(published(**{**full, "prompt": 4095})).traffic.prompt == 4095


def test_how_many_tokens_a_step_was_given():
    def tokens(users, runtime="trtllm", **more):
        return atlas_file._step_tokens(published(settings=MAX, **more), runtime, users)

    assert tokens(4) == 16384
    assert tokens(4, model="qwen3-235b-a22b") == 1088  # 1000 + 4 + 64 in blocks of 64
    assert tokens(24, model="qwen3-235b-a22b") == 1088
    assert tokens(25, model="qwen3-235b-a22b") == 1152
    assert tokens(None, model="qwen3-235b-a22b") == 1088
    assert tokens(4, "vllm") is None
    assert atlas_file._step_tokens(published(), "trtllm", 4) is None


def test_drafts_are_kept_one_after_the_other(monkeypatch):
    monkeypatch.setattr(atlas_file, "fitted_number", lambda _name: 0.5)
    assert atlas_file.accepted_tokens(3) == 1 + 0.5 + 0.25 + 0.125


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, None),
        ({"engine": "llamacpp"}, "no rules of serving"),
        ({"quantity": "forward"}, "no figure of a server"),
        ({"model": None}, "M has no graph"),
        ({"device": None}, "D is not in the catalog"),
        ({"settings": {"mode": "disagg"}}, "two pools"),
        ({"prompt": None}, "not stated"),
    ],
)
def test_why_a_row_cannot_be_asked(more, words):
    found = atlas_file.not_served(published(**more))
    assert found is None if words is None else words in found
    assert atlas_file.is_served(published(**more)) is (
        words is None or ("engine" not in more and "quantity" not in more)
    )


def test_users_are_of_each_replica():
    def users(**more):
        return atlas_file.served_case(published(settings={"tp": "1", "dp": "2"}, **more)).users

    assert users(concurrency=9) == 4
    assert users(concurrency=1) == 1
    assert users(concurrency=9, batch=3) == 3
    assert users(concurrency=9, quantity="request") is None
    asked = atlas_file.served_case(published(settings={"tp": "1", "dp": "2"}, concurrency=9)).question.workload
    assert (asked.parallel.dp, asked.batch, asked.prompt, asked.generate) == (2, 2, 1000, 100)


def figure(monkeypatch, **more):
    steady = SimpleNamespace(
        ttft_s=2.0, tpot_s=0.1, interval=lambda name: {"ttft": (1.0, 4.0), "tpot": (0.05, 0.3)}[name]
    )
    calls = []
    what = SimpleNamespace(
        replicas=3, step=SimpleNamespace(spread=0.1, costs=SimpleNamespace(batch_spread=SimpleNamespace(value=0.2))),
        steady=lambda _traffic, users: calls.append(users) or steady,
        saturated=lambda _traffic, most: calls.append(most) or 50.0,
        batch_seconds=lambda _traffic, batch: calls.append(batch) or 8.0,
    )  # fmt: skip
    monkeypatch.setattr(atlas_file.ServedCase, "served", lambda _self: what)
    monkeypatch.setattr(atlas_file, "fitted_number", lambda name: {"cold_s": 3.0, "front_s.vllm": 0.5}[name])
    given = {"question": SimpleNamespace(runtime_name="vllm"), "traffic": None, "users": 5, "quantity": "tpot"}
    found = atlas_file.predict_served(atlas_file.ServedCase(**{**given, **more}))
    return (found.seconds, found.low_s, found.high_s), calls


def test_a_published_service_is_predicted_in_the_seconds_of_its_row(monkeypatch):
    assert figure(monkeypatch) == ((0.1, pytest.approx(0.05), pytest.approx(0.3)), [15])  # five of each replica
    assert figure(monkeypatch, quantity="ttft", users=None) == ((2.0, 1.0, 4.0), [3])
    assert figure(monkeypatch, quantity="ttft", fronted=True)[0] == pytest.approx((2.5, 1.25, 5.0))
    wide = exp(atlas_file.EIGHT_IN_TEN * 0.2)
    assert figure(monkeypatch, quantity="tokens") == (
        (0.02, pytest.approx(0.02 / wide), pytest.approx(0.02 * wide)),
        [5],
    )
    assert figure(monkeypatch, quantity="request") == ((8.0, pytest.approx(8 / wide), pytest.approx(8 * wide)), [15])
    assert figure(monkeypatch, quantity="request", cold=True)[0][0] == 11.0


def parts(monkeypatch, room, **more):
    """What the kernels are asked for: sequences in a step, and users."""
    what = SimpleNamespace(limits="limits", memory="memory", step="step", rules="rules", stages=2)
    monkeypatch.setattr(atlas_file.ServedCase, "served", lambda _self: what)
    monkeypatch.setattr(atlas_file, "held", lambda *given: room if given == ("limits", "traffic", "memory") else None)
    seen = {}
    monkeypatch.setattr(atlas_file, "kernel_parts", lambda *given, **asked: seen.update(asked, given=given))
    given = {"question": None, "traffic": "traffic", "users": 5, "quantity": "tpot"}
    atlas_file.parts_of(atlas_file.ServedCase(**{**given, **more}))
    assert (seen["given"], seen["stages"]) == (("step", "rules", "limits", "traffic"), 2)
    return seen["sequences"], seen["users"]


def test_kernels_run_for_as_many_as_there_is_room_for(monkeypatch):
    assert parts(monkeypatch, 9) == (5, 5)
    assert parts(monkeypatch, 3) == (3, 5)
    assert parts(monkeypatch, 0) == (1, 5)
    assert parts(monkeypatch, 9, users=None) == (1, 1)
    assert parts(monkeypatch, 3, quantity="tokens") == (3, 3)
    assert parts(monkeypatch, 9, quantity="tokens", users=None) == (9, 9)
    assert parts(monkeypatch, 1, quantity="request") == (5, 5)
    assert parts(monkeypatch, 9, quantity="request", users=None) == (1, 1)


def test_the_fewest_devices_leave_room_for_a_cache(monkeypatch):
    room = {1: DomainError("too large"), 2: (15.0, 100.0), 4: (15.1, 100.0), 8: (90.0, 100.0)}
    asked = []

    def ask(model, **given):
        asked.append((model, given["on"], given["runtime"], given["weights"], given["options"].overrides))
        if isinstance(room[given["tp"]], DomainError):
            raise room[given["tp"]]
        return room[given["tp"]]

    def memory(found):
        return SimpleNamespace(
            memory=None if found is None else SimpleNamespace(kv_bytes=found[0], usable_bytes=found[1])
        )

    monkeypatch.setattr(atlas_file, "ask", ask)
    monkeypatch.setattr(atlas_file, "served", memory)
    row = published(weights="f16", count=6)
    assert atlas_file._fewest_devices(row, "vllm") == 4
    assert asked == [("llama-3.1-8b", "nvidia-h200", "vllm", "bf16", {})] * 3
    room[2] = None  # nothing is known of its memory
    assert atlas_file._fewest_devices(row, "vllm") == 2
    room.update(dict.fromkeys((1, 2, 4, 8), (1.0, 100.0)))
    assert [atlas_file._fewest_devices(published(count=count), "vllm") for count in (6, 0)] == [6, 1]


def test_drafts_are_as_long_as_attention_is_not_copied(monkeypatch):
    monkeypatch.setattr(atlas_file, "accepted_tokens", lambda length: length + 0.5)
    for dp, length in ((1, 3), (2, 1)):
        found = atlas_file.served_case(published(settings={"tp": "1", "dp": str(dp), "drafts": "1"}))
        drafts = found.traffic.drafts
        assert (drafts.length, drafts.gained, drafts.layers) == (length, length + 0.5, 32)
    assert atlas_file.served_case(published(model=None)) is None
    cold = atlas_file.served_case(published(settings={"tp": "1", "cold": "1"}))
    assert (cold.cold, cold.traffic.drafts, cold.memory_share, cold.fronted) == (True, None, None, False)
    room = atlas_file.served_case(published(model="minimax-m2", settings={"tp": "8", **MAX}))
    assert (room.memory_share, room.sequences) == (0.95, 256)
    crowded = atlas_file.served_case(published(model="minimax-m2", batch=512, settings={"tp": "8", **MAX}))
    assert crowded.sequences == 512  # a server that is asked by more at once lets them all in


def test_an_overview_s_requests_are_under_way_in_waves():
    def waves(**more):
        given = {"dataset": "trtllm", "quantity": "tokens", "date": "2025-02-11", "prompt": 1000, "generate": 2000}
        found = atlas_file.served_case(published(**{**given, "settings": {"tp": "1"}, **more}))
        return None if found.requests is None else [found.at_once(room) for room in (4000, 1500, 1499, 10)]

    assert waves() == [1500, 1500, 750, 10]
    assert waves(settings={"tp": "1", "dp": "2"}) == [750, 750, 750, 10]  # of each replica
    assert waves(date="2023-12-04") is None
    assert waves(prompt=77) is None
    assert waves(dataset="argonne") is None


def test_an_overview_copies_attention_of_the_mixtures_that_its_commands_name():
    def plan(model, date, **settings):
        row = published(dataset="trtllm", quantity="tokens", model=model, date=date, settings=settings)
        parallel = atlas_file.served_case(row).question.workload.parallel
        return parallel.tp, parallel.pp, parallel.dp, parallel.ep

    assert plan("qwen3-30b-a3b", "2025-12-07", tp="4", pp="2") == (1, 2, 4, 4)
    assert plan("qwen3-30b-a3b", "2025-07-15", tp="4") == (4, 1, 1, 1)
    assert plan("qwen3-32b", "2025-12-07", tp="4") == (4, 1, 1, 1)
    assert plan("qwen3-30b-a3b", "2026-03-01", dep="4") == (1, 1, 4, 4)


# Which calibration a case is judged with


def test_a_case_is_judged_without_its_own_model(monkeypatch):
    chosen = SimpleNamespace(fitted_on=("m",))
    calls = []

    def choose(*key, folders, shipped, setup):
        calls.append((*key, folders, shipped, "as it is" if setup is None else setup.threads))
        return SimpleNamespace(calibration=None if key[0] == "none" else chosen)

    monkeypatch.setattr(judge, "choose_calibration", choose)
    monkeypatch.setattr(judge, "device_named", lambda name: SimpleNamespace(name=name))
    monkeypatch.setattr(judge, "by_weights", lambda runtime: runtime == "stored")
    refits = {"m": "refit", "n": None}
    trained = []
    monkeypatch.setattr(judge, "without_model", lambda _found, train, model: trained.append(train) or refits[model])
    monkeypatch.setattr(judge, "_judged", lambda one, calibration, how: (one.model, calibration, how))
    known = case(role="train", model="k", threads=4)
    cases = [
        known,
        case(threads=4),
        case(model="k", threads=4),
        case(device="none"),
        case(runtime="stored", weights="i4"),
    ]
    watched = []
    found, refused = judge.judge_cases(
        cases, folders=("f",), shipped="s", watch=lambda number, count: watched.append((number, count))
    )
    assert found == (
        ("k", chosen, "held out"), ("m", "refit", "left out"), ("k", chosen, "held out"), ("m", None, "priors"),
        ("m", "refit", "left out"),
    )  # fmt: skip
    assert (watched, refused) == ([(number, 5) for number in range(5)], ())
    assert calls == [
        ("d", "r", "bf16", ("f",), "s", 4), ("none", "r", "bf16", ("f",), "s", "as it is"),
        ("d", "stored", "i4", ("f",), "s", "as it is"),
    ]  # fmt: skip
    assert trained == [[known], []]
    chosen.fitted_on = ("n",)
    assert judge.judge_cases([case(model="n")])[0] == (("n", chosen, "seen"),)
    assert judge.judge_cases([case()], priors=True)[0] == (("m", None, "priors"),)

    def refuses(*_):
        raise DomainError("No.")

    monkeypatch.setattr(judge, "_judged", refuses)
    assert judge.judge_cases([case(), case()], priors=True) == ((), ("m on d, decode: No.",))


@pytest.mark.parametrize("phase", [None, Phase(name="decode", time_s=1.0), Phase(name="decode", time_s=1.0, low_s=0.5)])
def test_a_prediction_without_the_phase_or_its_interval_is_no_judgement(monkeypatch, phase):
    monkeypatch.setattr(judge, "ask_like", lambda *_: SimpleNamespace(phase=lambda _name: phase))
    with pytest.raises(DomainError, match="no phase decode"):
        judge._judged(case(), None, "priors")


def test_the_page_has_every_case_with_calibrations_and_with_priors_alone(monkeypatch):
    cases, alone = [judged(1.1, 1.0, 1.2)], [judged(1.3, 1.0, 1.2, runtime="p")]
    monkeypatch.setattr(page, "read_cases", lambda: "cases")
    monkeypatch.setattr(page, "read_peers", lambda: "peers")
    monkeypatch.setattr(
        page, "judge_cases", lambda given, priors=False: ({"cases": tuple(alone if priors else cases)}[given], ())
    )
    monkeypatch.setattr(page, "against_aims", lambda found: ("aims", found))
    monkeypatch.setattr(page, "peer_errors", lambda found, peers: (found, peers))
    monkeypatch.setattr(judge, "family_of", lambda model: f"family of {model}")
    found = page.accuracy_findings()
    assert (found.judged, found.priors, found.aims) == (tuple(cases), tuple(alone), ("aims", tuple(cases)))
    assert found.peers == (tuple(cases), "peers")
    assert [*found.by_phase] == [(*groups_of("phase")(cases[0]), "held out")]
    assert [*found.by_family] == [("family of m", "r", "held out")]
    assert [*found.by_op] == [("b", "r", "held out")]
    assert [*found.priors_by_phase] == [(*groups_of("phase")(alone[0]), "held out")]
    assert found.by_phase[next(iter(found.by_phase))]["median"] == pytest.approx(0.1)


# EdgeProfiler


def test_a_device_gives_edgeprofiler_its_own_rates_shares_and_energies():
    def link(rate):
        return SimpleNamespace(bandwidth_bytes_per_s=rate)

    shares = {
        "compute": None,
        "memory": 0.2,
        "storage": 0.3,
        "host": 0.4,
        "network": 0.5,
    }
    device = SimpleNamespace(
        name="d", peaks={"i8": 9.0, "f16": 7.0}, storage_bytes_per_s=3.0, host_link=link(4.0),
        memory=SimpleNamespace(bandwidth_bytes_per_s=2.0), network_link=link(5.0),
        shares=SimpleNamespace(**shares), joules_per_flop=6.0, joules_per_byte=None,
    )  # fmt: skip
    assert edge_hardware(device) == EdgeHardware(
        name="d", flops_per_s=7.0, memory_bytes_per_s=2.0, storage_bytes_per_s=3.0, transfer_bytes_per_s=4.0,
        network_bytes_per_s=5.0, memory_share=0.2, storage_share=0.3, transfer_share=0.4, network_share=0.5,
        joules_per_flop=6.0,
    )  # fmt: skip
    device.peaks, device.memory, device.host_link, device.network_link = {}, None, None, None
    with pytest.raises(DomainError, match="not known: flops, memory, transfer, network"):
        edge_hardware(device)
