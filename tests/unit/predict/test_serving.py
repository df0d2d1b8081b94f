"""Serving engines: a step as a value, the steady state of many users, memory as engines use it, measured kernels."""

import json
import re
from dataclasses import replace
from fnmatch import fnmatchcase
from types import SimpleNamespace

import numpy as np
import pytest

from fakes.counting import calls_of
from inferometer.core.calibration import Calibration, KernelShares
from inferometer.core.errors import DomainError
from inferometer.core.workload import Precision
from inferometer.known import devices, link
from inferometer.known.engines import costs_of, engine, runtime_effects
from inferometer.known.serving_costs import FILE
from inferometer.measure.run.child import runtime_named
from inferometer.predict.answer import predict_graph
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.fitting import memory_fit
from inferometer.predict.options import Options, Speculative
from inferometer.predict.price.collectives import chosen_link
from inferometer.predict.price.kernel_floors import (
    PeakRates,
    attention_decode_ideals,
    experts_ideals,
    floor_of,
    gemm_ideals,
)
from inferometer.predict.price.kernels import _of_window, _split_further, kernel_curve
from inferometer.predict.ready import make_ready
from inferometer.predict.served.question import served, serving_answer
from inferometer.predict.served.steady import KernelParts, Traffic, kernel_parts, steady_times
from inferometer.predict.served.step import PromptChunk
from inferometer.predict.work.merge import as_loaded

CHAT = Traffic(prompt=1024, generate=256)


@pytest.fixture(scope="module")
def question():
    return ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm", calibrated=False)


@pytest.fixture(scope="module")
def what(question):
    return served(question)


def gemm_table(shares: float) -> KernelShares:
    """Products of every shape at one share of the floor."""
    grid = np.meshgrid([1.0, 16.0, 256.0, 4096.0], [1024.0, 65536.0], [1024.0, 65536.0], indexing="ij")
    sizes = dict(zip(("rows", "out_features", "in_features"), (axis.ravel() for axis in grid), strict=True))
    count = grid[0].size
    return KernelShares(
        family="gemm", sizes=sizes, texts={"format": np.full(count, "bfloat16")}, shares=np.full(count, shares)
    )


# the engine's graph


def test_projections_that_share_their_input_are_loaded_as_one():
    graph = ask("llama-3.1-8b", on="nvidia-h100-sxm").graph
    loaded = as_loaded(graph, runtime_effects("vllm"), Precision())
    layer = loaded.blocks[1]
    assert [op.name.rpartition(".")[2] for op in layer.ops if op.kind == "linear"] == [
        "q_proj+k_proj+v_proj", "o_proj", "gate_proj+up_proj", "down_proj",
    ]  # fmt: skip
    assert loaded.parameters == graph.parameters
    assert as_loaded(graph, runtime_effects("torch-compile"), Precision()) is graph


@pytest.mark.parametrize("merged", [(), runtime_effects("vllm").merged])
@pytest.mark.parametrize("patterns", [(), ("*lm_head*",), ("*lm_head*", "*.o_proj")])
def test_an_engine_leaves_the_layers_that_it_says_in_the_models_own_format(merged, patterns):
    """Whatever else it does, and those alone."""
    graph = model_graph("llama-3.2-1b")
    effects = replace(runtime_effects("torch-compile"), merged=merged, unquantised=patterns)
    loaded = as_loaded(graph, effects, Precision(weights="i4"))
    assert (loaded is graph) == (not merged and not patterns)
    for _, op in loaded.ops():
        wide = any(fnmatchcase(op.name, pattern) for pattern in patterns)
        for tensor in op.weights:
            if tensor.role == "weight":
                assert tensor.dtype == (graph.precision if wide else None), op.name


def test_a_quantised_model_keeps_its_head_and_embedding():
    wide = serving_weights("bf16")
    narrow = serving_weights("f8e4m3")
    kept = 2 * 2 * 128256 * 4096  # the head and the embedding, two bytes each
    assert narrow == pytest.approx((wide - kept) / 2 + kept, rel=1e-3)


def serving_weights(name: str) -> float:
    return served(ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm", weights=name)).memory.weights_bytes


# measured kernels


def test_a_row_takes_what_its_kernel_was_measured_to_take():
    question = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="vllm", batch=16, context=1024)
    calibration = Calibration(
        device="nvidia-h100-sxm", runtime="vllm", dtype="bf16", created="2026-08", kernels={"gemm": gemm_table(0.25)}
    )
    profile = predict_graph(
        question.graph, question.device, runtime="vllm", workload=question.workload, calibration=calibration
    )
    ops = {op.name.rpartition(".")[2]: op for op in profile.phase("decode").ops}
    down = ops["down_proj"]
    assert down.origin == "calibrated"
    assert down.time_s == pytest.approx(4 * down.floor_s, rel=0.02)  # a quarter of its floor's speed
    assert ops["rotary"].origin == "prior"


def test_between_points_shares_are_interpolated_and_held_outside():
    table = replace(gemm_table(0.5), shares=np.where(gemm_table(0.5).sizes["rows"] < 100, 0.1, 0.4))
    ready = ready_of("llama-3.1-8b")
    row = next(row for row in ready.plan.prepared.rows if row.op.name.endswith("down_proj"))
    curve = kernel_curve(row, "decode", {"gemm": table}, ready.plan.prepared.binding({}))
    rates = PeakRates(peaks={"bf16": 1e15}, memory=3e12)

    def share(rows: float) -> float:
        return float(
            floor_of(curve.ideals(rates, {**curve.fixed, "rows": rows})) / curve.seconds(rates, {"rows": rows})
        )

    assert share(1) == pytest.approx(0.1)
    assert share(64) == pytest.approx(0.2, rel=0.01)  # half-way between 16 and 256 on a logarithmic axis
    assert share(100_000) == pytest.approx(0.4)


def ready_of(model: str):
    question = ask(model, on="nvidia-h100-sxm", runtime="vllm", batch=1, prompt=16, generate=2)
    return make_ready(
        question.graph, question.device, effects=runtime_effects("vllm"), workload=question.workload,
        options=question.options,
    )  # fmt: skip


def test_floors_count_what_must_be_moved_and_computed():
    rates = PeakRates(peaks={"bf16": 1e30}, memory=1e12)
    one = floor_of(
        gemm_ideals(rates, {"rows": 1, "out_features": 10, "in_features": 20}, arithmetic="bf16", weight_bytes=2)
    )
    assert one == pytest.approx((2 * 200 + 2 * 30) / 1e12)  # the weights, and one row in and out
    sizes = {"batch": 2, "keys": 100, "heads": 8, "kv_heads": 2, "head_dim": 16}
    whole = floor_of(attention_decode_ideals(rates, sizes, arithmetic="bf16", kv_bytes=2))
    in_window = floor_of(attention_decode_ideals(rates, {**sizes, "window": 10}, arithmetic="bf16", kv_bytes=2))
    assert whole == pytest.approx(2 * (2 * 2 * 100 * 2 + 2 * 2 * 8) * 16 / 1e12)
    assert in_window < whole / 4


def test_a_mixture_reads_the_experts_that_its_rows_touch():
    rates = PeakRates(peaks={"bf16": 1e30}, memory=1e12)
    shape = {"hidden": 100, "intermediate": 50, "top_k": 8, "experts": 256, "tp": 1, "ep": 1}

    def seconds(rows: int, **other: float) -> float:
        return float(
            floor_of(experts_ideals(rates, {**shape, **other, "rows": rows}, arithmetic="bf16", weight_bytes=1.0))
        )

    one = 8 * 3 * 100 * 50  # one row touches eight experts of three matrices
    assert seconds(1) == pytest.approx(one / 1e12, rel=0.1)
    assert seconds(64) < 64 * seconds(1)  # rows share experts
    assert seconds(64, ep=8) == pytest.approx(seconds(64) / 8)


# the step


def test_a_step_of_decoding_is_the_vector_form_at_one_point(what):
    step = what.step
    for sequences, context in ((1, 100), (64, 1500), (300, 40_000)):
        assert step.seconds((), sequences, context) == pytest.approx(float(step.decode_seconds(sequences, context)))
    chunk = PromptChunk(tokens=512, context=100)
    assert step.seconds([chunk], 8, 900) == pytest.approx(float(step.mixed_seconds(512, 100, 8, 900)))


def test_a_step_grows_with_everything_that_is_in_it(what):
    seconds = what.step.seconds
    assert seconds((), 64, 1000) < seconds((), 128, 1000) < seconds((), 128, 4000)
    assert seconds([PromptChunk(tokens=512)], 64, 1000) < seconds(
        [PromptChunk(tokens=512), PromptChunk(tokens=512)], 64, 1000
    )
    assert seconds([PromptChunk(tokens=512)]) < seconds([PromptChunk(tokens=512, context=8192)])
    assert seconds() == 0.0


def test_a_warm_step_is_a_few_calls(what):
    """A simulation asks for millions of them: benchmarks/simulator.py has the time."""
    chunks = (PromptChunk(tokens=512, context=100),)
    what.step.seconds(chunks, 64, 1000.0)
    assert calls_of(lambda: what.step.seconds(chunks, 64, 1000.0)) < 100


# many users


def test_more_users_share_the_steps(what):
    few, many = what.steady(CHAT, 4), what.steady(CHAT, 64)
    assert few.tpot_s < many.tpot_s
    assert few.ttft_s < many.ttft_s
    assert 4 / few.tpot_s < 64 / many.tpot_s
    low, high = many.interval("tpot")
    assert low < many.tpot_s < high


def test_users_beyond_the_cache_wait_for_room(what):
    held = what.memory.sequences_of(CHAT.prompt + CHAT.generate // 2)
    full, over = what.steady(CHAT, held), what.steady(CHAT, 4 * held)
    assert over.sequences == min(held, what.limits.sequences)
    assert over.bound == "memory"
    assert over.ttft_s > full.ttft_s + CHAT.generate * full.tpot_s


def test_a_cached_prefix_is_not_read_again(what):
    cached = Traffic(prompt=1024, generate=256, cached=900)
    assert what.steady(cached, 16).ttft_s < what.steady(CHAT, 16).ttft_s


def test_drafts_pay_as_far_as_they_are_kept(question):
    def tpot(acceptance: float) -> float:
        drafts = Speculative(draft=ask("llama-3.2-1b", on="nvidia-h100-sxm").graph, length=4, acceptance=acceptance)
        return serving_answer(replace(question, options=replace(question.options, speculative=drafts)), 4).tpot_s

    plain = serving_answer(question, 4)
    assert tpot(0.9) < plain.tpot_s < tpot(0.0)  # nothing kept: the draft's steps come on top
    assert (
        plain.kv_tokens
        > served(
            replace(
                question,
                options=replace(
                    question.options, speculative=Speculative(draft=question.graph, length=4, acceptance=0.5)
                ),
            )
        ).memory.kv_tokens
    )  # its weights lie beside the model's


def test_attention_to_a_context_costs_what_the_engine_adds_to_its_kernels(what):
    """A nanosecond for each of 32 layers and token, in all that asks for a step's time; a window ends it."""
    costs = what.step.costs
    bare, longer = (
        replace(what.step, costs=replace(costs, context_s=replace(costs.context_s, value=value)))
        for value in (0.0, 1e-9)
    )
    added = 1e-9 * 32 * 16 * 2048
    for times in (
        lambda step: float(step.decode_seconds(16, 2048)),
        lambda step: float(step.mixed_seconds(512, 1, 16, 2048)),
        lambda step: step.seconds([], 16, 2048),
        lambda step: step.seconds([PromptChunk(tokens=512)], 16, 2048),
    ):
        assert times(longer) - times(bare) == pytest.approx(added)
    windowed = replace(longer, windows=((16, np.inf), (16, 128.0)))
    assert windowed.cached(2, 2048) == 2 * 16 * (2048 + 128)


def test_stages_of_a_pipeline_work_on_their_share_of_the_sequences(what):
    one, four = what.steady(CHAT, 64), replace(what, stages=4).steady(CHAT, 64)
    costs, context = what.step.costs, CHAT.prompt + CHAT.generate / 2
    behind = what.step.behind_kernels(16, context, verified=1, stages=4, flowing=4)
    hosts = 3 * (costs.step_s.value + 16 * costs.sequence_s.value)
    assert behind > 0  # the last stage has the logits beside its layers
    assert four.step_s == pytest.approx(what.steady(CHAT, 16).step_s + costs.kernels.value * behind + hosts)
    assert four.tpot_s < one.tpot_s  # each stage has a quarter of them, and of the prompts


def test_messages_take_the_link_that_is_asked_for():
    """Tables of messages were measured over the device's own link, and say nothing of another."""

    def step(name, batch):
        options = Options() if name is None else Options(link=link(name))
        question = ask(
            "llama-3.1-8b",
            on="nvidia-rtx-pro-6000-server",
            runtime="vllm",
            tp=2,
            batch=batch,
            context=99,
            options=options,
        )
        return question.answer()

    own, same, slow = (step(name, 1) for name in (None, "pcie-5-x16", "pcie-5-x16-through-host"))
    assert own.summary.tpot_s == same.summary.tpot_s
    assert slow.summary.tpot_s - own.summary.tpot_s > 64 * 5e-6  # two messages a layer
    assert step("pcie-5-x16-through-host", 64).summary.tpot_s > 1.05 * step(None, 64).summary.tpot_s
    assert any("--link pcie-5-x16-through-host" in note for note in own.provenance.notes)
    assert not any("through-host" in note for note in slow.provenance.notes)


def test_geforce_cards_without_access_to_each_other_send_through_the_host():
    """NVIDIA's driver has none from the 40 series on: taken as one with access, two of them answered too fast."""
    cards = [card for name, card in devices().items() if re.match(r"nvidia-rtx-[45]0\d0$", name) and card.host_link]
    assert len(cards) >= 5
    for card in cards:
        assert chosen_link(card).name == f"{card.host_link.name}-through-host"
    answer = ask("llama-3.1-8b", on="nvidia-rtx-4090", runtime="vllm", tp=2, context=99).answer()
    assert not any("access to each other's memory" in note for note in answer.provenance.notes)


def test_the_closed_form_takes_arrays(what):
    parts = [kernel_parts(what.step, what.rules, what.limits, CHAT, sequences=n, users=n) for n in (1, 8, 64)]
    together = KernelParts(**{
        name: np.array([getattr(part, name) for part in parts]) for name in KernelParts.__dataclass_fields__
    })  # fmt: skip
    times = steady_times(together, what.step.costs)
    for place, part in enumerate(parts):
        alone = steady_times(part, what.step.costs)
        assert (times.ttft[place], times.tpot[place]) == pytest.approx((float(alone.ttft), float(alone.tpot)))


def test_costs_of_our_engines_are_those_that_the_fit_wrote():
    rows = json.loads(FILE.read_text(encoding="utf-8"))["costs"]
    for name in ("vllm", "sglang", "trtllm"):
        stated = {(costs.since, costs.devices): costs.kernels.value for costs in engine(name).serving.costs}
        fitted = {(row["since"], tuple(row["devices"])): row["kernels"] for row in rows if row["engine"] == name}
        assert stated.items() >= fitted.items()
        assert all(devices for _, devices in stated.keys() - fitted.keys())  # a row's own costs are of some devices


def test_the_answer_says_whether_every_user_has_enough(question):
    answer = serving_answer(question, 8, 1.0)
    assert answer.meets
    assert answer.tokens_per_s == pytest.approx(8 * answer.generate / answer.summary.e2e_s)  # Little's law
    assert answer.document()["schema"] == "inferometer.serving/1"
    assert serving_answer(question, 8, 1e6).meets is False
    with pytest.raises(DomainError, match="greater than 0"):
        serving_answer(question, 8, 0.0)


def test_users_are_for_engines_that_serve():
    with pytest.raises(DomainError, match="one batch at a time"):
        served(ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime="torch-compile"))


def test_measuring_one_says_how():
    with pytest.raises(DomainError) as caught:
        runtime_named("vllm")
    assert "inferometer load" in (caught.value.remedy or "")


def test_a_model_that_does_not_fit_says_what_would():
    large = ask("llama-3.1-70b", on="nvidia-h100-sxm", runtime="vllm", calibrated=False)
    with pytest.raises(DomainError) as caught:
        serving_answer(large, 8)
    assert "--tp 2" in (caught.value.remedy or "")


# memory


def test_a_reserve_is_counted_for_every_runtime():
    """Llama-3.1-8B with a batch of 64 at 1024 tokens needs more than an L4's driver shows."""
    for runtime in ("vllm", "torch-compile", "llamacpp"):
        found = memory_fit(ask("llama-3.1-8b", on="nvidia-l4", runtime=runtime, batch=64, prompt=1024, generate=128))
        assert found.reserve_bytes > 0
        assert not found.fits


def test_the_fewest_devices_hold_the_model():
    found = memory_fit(ask("llama-3.1-70b", on="nvidia-h100-sxm", runtime="vllm", calibrated=False))
    assert not found.fits
    assert found.devices_at_least == 2


# rules


def test_costs_are_of_the_newest_version_that_is_not_newer():
    rules = engine("vllm").serving
    assert costs_of(rules, "0.6.3").since == "0"
    assert costs_of(rules, "0.19.0").since == "0.8"
    assert costs_of(rules).since == "0.8"
    assert costs_of(rules, "0.8.5", "amd-mi300x").devices == ("amd-*",)


def test_costs_are_less_sure_of_a_device_whose_maker_the_fit_has_hardly_a_figure_of():
    rules = engine("vllm").serving
    wide = {
        (name, maker): costs_of(rules, None, name, maker).tpot_spread.value
        for name, maker in (
            ("nvidia-l4", None), ("nvidia-h200", None), ("mine", "NVIDIA"), ("amd-mi250", "AMD"),
            ("google-tpu-v5e", "Google"),
        )
    }  # fmt: skip
    assert wide["nvidia-l4", None] == wide["nvidia-h200", None] == wide["mine", "NVIDIA"]
    assert wide["nvidia-l4", None] * 2 < wide["amd-mi250", "AMD"] < wide["google-tpu-v5e", "Google"]
    assert costs_of(rules, None, "amd-mi300x").tpot_spread.value < wide["amd-mi250", "AMD"] / 2


def test_beyond_the_window_a_serving_engine_answers_with_a_warning():
    profile = ask("llama-2-7b", on="nvidia-h100-sxm", runtime="vllm", prompt=5000, calibrated=False).answer()
    assert any("window of 4096 tokens" in note for note in profile.provenance.notes)
    with pytest.raises(DomainError, match="window of 4096"):
        ask("llama-2-7b", on="nvidia-h100-sxm", runtime="torch-compile", prompt=4096, generate=8).answer()


def test_formats_that_a_device_cannot_compute_are_widened_and_it_says_so():
    profile = ask("llama-3.1-8b", on="nvidia-a100-80gb", runtime="vllm", weights="f8e4m3", calibrated=False).answer()
    assert any("computed in bf16" in note or "computes it in bf16" in note for note in profile.provenance.notes)


# windows, drafts, and memory that nobody knows


@pytest.mark.parametrize(
    ("model", "on", "each"),
    [
        # 62 layers of 16 heads of 128 keep 640 tokens, which no window of 1024 cuts: 2 × 2 bytes each
        ("gemma-3-27b", "nvidia-h100-sxm", 62 * 640 * 16 * 128 * 4),
        # half of 24 layers keep 128 tokens, and a block more
        ("gpt-oss-20b", "nvidia-l40s", 12 * (640 + 144) * 8 * 64 * 4),
    ],
)
def test_a_sequence_takes_in_every_layer_what_its_window_leaves(model, on, each):
    found = memory_fit(ask(model, on=on, runtime="vllm", calibrated=False))
    left = found.usable_bytes - found.weights_bytes - found.activations_bytes - found.reserve_bytes
    assert found.max_batch == left // each
    assert found.kv_bytes_per_token == pytest.approx(each / 640, abs=1)


@pytest.mark.parametrize("model", ["gemma-3-1b", "gpt-oss-20b", "llama-3.1-8b", "deepseek-v2-lite"])
def test_a_cache_with_windows_is_never_larger_than_without_and_never_shrinks(model):
    memory = served(ask(model, on="nvidia-h100-sxm", runtime="vllm", calibrated=False)).memory
    whole = replace(memory, windows=())
    sizes = [memory.sequence_bytes(tokens) for tokens in (1, 16, 17, 500, 640, 2000, 30_000)]
    assert sizes == sorted(sizes)
    for tokens in (1, 500, 640, 2000, 30_000):
        assert memory.sequence_bytes(tokens) <= whole.sequence_bytes(tokens)
        assert memory.sequences_of(tokens) >= whole.sequences_of(tokens)


@pytest.mark.parametrize("model", ["gemma-3-27b", "gpt-oss-20b"])
def test_an_engine_that_frees_no_windows_keeps_every_token_of_every_layer(model):
    memory = served(ask(model, on="nvidia-h200", runtime="trtllm", calibrated=False)).memory
    freed = served(ask(model, on="nvidia-h200", runtime="vllm", calibrated=False)).memory
    for tokens in (32, 640, 32_000):
        assert memory.sequence_bytes(tokens) == memory.kv_bytes_per_token * tokens
    assert memory.kv_bytes_per_token == freed.kv_bytes_per_token
    assert memory.sequences_of(32_000) < freed.sequences_of(32_000) / 1.5


@pytest.mark.parametrize("runtime", ["vllm", "llamacpp"])
@pytest.mark.parametrize("model", ["gemma-3-1b", "llama-3.2-1b", "mamba2-1.3b"])
def test_more_memory_never_holds_fewer_sequences(model, runtime):
    asked = ask(model, on="nvidia-l4", runtime=runtime, calibrated=False)
    held = []
    for times in (0.05, 0.2, 1.0, 1.1, 4.0):
        main, *caches = asked.device.memories
        room = replace(main.usable_bytes, value=times * main.usable_bytes.value)
        device = replace(asked.device, memories=(replace(main, usable_bytes=room), *caches))
        held.append(memory_fit(replace(asked, device=device)).max_batch)
    assert held == sorted(held)
    assert held[-1] > 0


@pytest.mark.parametrize("runtime", ["vllm", "llamacpp"])
def test_a_draft_model_lies_beside_the_one_it_drafts_for(runtime):
    def asked(draft):
        drafting = Speculative(draft=model_graph(draft), length=4, acceptance=0.7)
        return ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime=runtime, calibrated=False,
                   options=Options(speculative=drafting))  # fmt: skip

    alone = ask("llama-3.1-8b", on="nvidia-h100-sxm", runtime=runtime, calibrated=False)
    added = asked("llama-3.2-1b").answer().summary.peak_memory_bytes - alone.answer().summary.peak_memory_bytes
    assert added == 2 * 1_235_814_400 + 639 * 32_768  # its weights, and its cache of the same tokens
    assert memory_fit(asked("llama-3.2-1b")).max_batch < memory_fit(alone).max_batch
    assert asked("llama-3.1-405b").answer().summary.fits is False
    with pytest.raises(DomainError, match="resnet50 writes no tokens, so it cannot draft any"):
        asked("resnet50").answer()


def test_what_nobody_knows_of_a_memory_is_absent_and_not_nothing():
    found = memory_fit(ask("resnet50", on="hailo-8"))
    assert (found.fits, found.usable_bytes, found.max_batch, found.devices_at_least) == (None, None, None, None)
    assert found.weights_bytes > 0
    pi = memory_fit(ask("llama-3.2-1b", on="raspberry-pi-5"))
    assert pi.usable_bytes < 8 * 2**30  # its system keeps some


def test_only_the_experts_that_a_token_visits_take_room():
    found = memory_fit(ask("llama-4-maverick", on="nvidia-h200", runtime="vllm", tp=8, calibrated=False))
    assert found.fits
    assert found.activations_bytes < 0.05 * found.weights_bytes


def test_experts_that_are_split_further_than_measured_lose_what_others_of_the_table_do():
    """Two mixtures were measured on one device and on eight, where a few rows reach a quarter and many rows half."""
    rows = [
        (hidden, tp, count, 0.4 * loss ** (tp > 1))
        for hidden in (64.0, 128.0)
        for tp in (1.0, 8.0)
        for count, loss in ((1.0, 0.25), (100.0, 0.5))
    ] + [(256.0, 1.0, 1.0, 0.3), (256.0, 8.0, 10.0, 0.3)]  # one that was measured with both, and never at as many rows
    hidden, tp, count, shares = (np.array(column) for column in zip(*rows, strict=True))
    same = {name: np.ones(len(rows)) for name in ("intermediate", "top_k", "experts", "ep")}
    table = KernelShares(
        family="experts", sizes={"hidden": hidden, "tp": tp, "rows": count, **same},
        texts={"format": np.array(["bfloat16"] * len(rows))}, shares=shares, residual=0.1,
    )  # fmt: skip
    asked = np.log([0.5, 1.0, 10.0, 100.0, 1000.0])
    found = np.exp(_split_further(table, (1.0, 1.0), (8.0, 1.0), asked))
    assert found == pytest.approx([0.25, 0.25, (0.25 * 0.5) ** 0.5, 0.5, 0.5])
    assert _split_further(table, (8.0, 1.0), (8.0, 1.0), asked) == 0.0
    assert np.all(_split_further(table, (1.0, 1.0), (4.0, 1.0), asked) == 0.0)  # nobody was measured so


def test_points_of_a_window_are_those_of_rows_that_have_one():
    """Where none was measured with one, those without serve; what is not asked for is left out of the sizes."""
    windows = np.array([0.0, 0.0, 512.0, 4096.0])
    table = SimpleNamespace(sizes={"window": windows})
    every = np.ones(4, bool)
    for wanted, among, kept in (
        (0.0, every, windows == 0),
        (1000.0, every, windows > 0),
        (1000.0, windows == 0, windows == 0),  # none of these was measured with one
        (1000.0, windows != 512, windows == 4096),
    ):
        chosen, sizes = _of_window(table, among, {"batch": 2.0, "window": wanted})
        assert chosen.tolist() == kept.tolist()
        assert sizes == {"batch": 2.0} | ({"window": wanted} if windows[kept].any() else {})
