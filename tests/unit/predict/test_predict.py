"""Predictions of whole models."""

from dataclasses import replace

import pytest

from inferometer.core import (
    Block,
    Calibration,
    Graph,
    Memory,
    Parallel,
    Precision,
    Symbol,
    Tensor,
    Utilisation,
    Workload,
)
from inferometer.core.codec import decode, document, encode
from inferometer.core.engine import Overheads, RuntimeEffects
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.profile import Profile
from inferometer.core.request import PARTS
from inferometer.core.sizes import PROMPT
from inferometer.core.units import format_quantity
from inferometer.known.engines import runtime_effects
from inferometer.known.formulas.llm import speculative_tokens
from inferometer.predict import graph_work, verbs
from inferometer.predict.answer import predict_graph
from inferometer.predict.ask import ask
from inferometer.predict.options import HostCosts, Hosting, Offload, Options, Speculative
from inferometer.predict.question import Question
from inferometer.predict.ready import make_ready
from inferometer.predict.request import GENERATE, decode_context
from inferometer.understand.view.published import prediction_document
from unit.predict.decoders import LLAMA_3_1_8B, at, decoder, project, tokens
from unit.predict.examples import encoder, experts, op, state
from unit.predict.machines import MACHINE, WIRE, machine, stated

MODEL = replace(LLAMA_3_1_8B, name="llama", context_limit=8192)
SMALL = decoder(layers=4, hidden=64, heads=4, kv_heads=2, head_dim=16, ffn=128, vocab=100)
CHAT = Workload(prompt=2048, generate=128)
ENCODER = Graph(
    name="encoder",
    blocks=(Block(name="b", ops=(project("p.{}", "x", "q", 128, 128), encoder()), count=3),),
    inputs=(tokens("x", 128),),
    precision="bf16",
    context_limit=512,
)


def predict(workload=CHAT, device=MACHINE, graph=MODEL, runtime="ideal", **options):
    calibration = options.pop("calibration", None)
    chosen = Options(**options) if options else None
    return predict_graph(
        graph, device, runtime=runtime, workload=workload, calibration=calibration, options=chosen, now=lambda: "now"
    )


def names(profile):
    return [phase.name for phase in profile.phases]


def test_a_model_that_makes_tokens_has_load_prefill_and_decode():
    profile = predict()
    assert names(profile) == ["load", "prefill", "decode"]
    assert profile.kind == "predicted"
    assert profile.provenance.created == "now"
    assert profile.summary.ttft_s == profile.phase("prefill").time_s
    assert profile.summary.tpot_s == profile.phase("decode").time_s
    assert profile.summary.e2e_s == pytest.approx(profile.summary.ttft_s + 127 * profile.summary.tpot_s)
    assert profile.summary.latency_s is None


def test_the_document_has_what_the_contract_promises():
    plain = document(predict())
    assert plain["schema"] == "inferometer.profile/1"
    assert plain["model"]["weight_bytes"] == 2 * 8_030_261_248
    assert plain["model"]["kv_bytes_per_token"] == 131_072
    assert plain["precision"] == {"weights": "bf16", "activations": "bf16", "kv": "bf16"}
    prefill = plain["phases"][1]
    assert set(prefill) >= {"time_s", "low_s", "high_s", "floor_s", "bound", "flops", "bytes", "energy_j", "ops"}
    product = prefill["ops"][2]
    assert product["name"] == "layers.0.q_proj"
    assert {key: product[key] for key in ("kind", "block", "count", "unit", "origin")} == {
        "kind": "linear", "block": "decoder_None", "count": 32, "unit": "gpu", "origin": "prior",
    }  # fmt: skip
    promised = ("latency_s", "ttft_s", "tpot_s", "e2e_s", "tokens_per_s", "peak_memory_bytes", "fits", "energy_j")
    assert set(plain["summary"]) >= set(promised)


def test_it_can_be_written_and_read_back():
    profile = predict()
    assert decode(encode(profile), Profile) == profile


def test_ops_stand_in_the_order_of_execution_and_add_up():
    for phase in predict(runtime="torch-compile", device=machine(unit="gpu")).phases:
        if not phase.ops:
            continue
        assert [op.name for op in phase.ops][:2] == ["embed", "layers.0.input_norm"]
        assert sum(op.time_s for op in phase.ops) + phase.unattributed_s == pytest.approx(phase.time_s)
        assert sum(op.floor_s for op in phase.ops) == pytest.approx(phase.floor_s)


@pytest.mark.parametrize("runtime", ["torch-eager", "torch-compile", "torch-graph"])
def test_the_parts_of_a_step_add_up_to_it_and_have_the_names_of_a_measurement(runtime):
    for phase in predict(runtime=runtime, device=machine(unit="gpu")).phases:
        assert set(phase.parts) <= set(PARTS)
        assert sum(phase.parts.values()) == pytest.approx(phase.time_s if phase.ops else 0.0)


def test_a_host_that_starts_kernels_is_done_when_all_are_launched():
    """What is left of the step is the wait for the device: little of a small model's, most of a long prompt's."""
    slow, quick = (
        predict(runtime="torch-eager", device=machine(unit="gpu"), host_speed=speed).phase("decode")
        for speed in (0.01, 100.0)
    )
    assert slow.parts["launch"] > 0.95 * slow.time_s
    assert quick.parts["launch"] == pytest.approx(slow.parts["launch"] / 10_000, rel=0.1)
    assert predict(runtime="ideal", device=machine(unit="gpu")).phase("decode").parts.keys() == {"run"}


def test_a_phase_has_the_work_of_the_graph():
    profile = predict()
    whole = graph_work(MODEL, at(query=2048))
    assert profile.phase("prefill").flops == pytest.approx(whole.total_flops)
    assert profile.phase("prefill").bytes == pytest.approx(whole.bytes)


def test_loading_is_once_and_in_no_other_time():
    quick, slow = (predict(storage_bytes_per_s=rate) for rate in (1e12, 1e6))
    assert slow.phase("load").time_s > 1000 * quick.phase("load").time_s
    assert slow.phase("load").bound == "storage"
    assert slow.summary == quick.summary


def test_loading_passes_storage_and_the_host_link():
    phase = predict(storage_bytes_per_s=1e9).phase("load")
    assert phase.time_s == pytest.approx(2 * 8_030_261_248 * (1e-9 + 1e-10))


def test_where_the_storage_is_not_known_it_is_said():
    profile = predict(device=machine(kind="toaster"))
    assert any("storage" in note for note in profile.provenance.notes)


def test_with_a_context_decode_is_one_step_and_the_prompt_is_not_asked_for():
    profile = predict(Workload(context=128))
    assert names(profile) == ["load", "decode"]
    assert profile.summary.ttft_s is None
    assert profile.phase("decode").flops == pytest.approx(graph_work(MODEL, at(context=128)).total_flops)


def test_without_a_context_decode_is_the_mean_step():
    asked = Workload(prompt=100, generate=1001)
    steps = [predict(Workload(context=context)).phase("decode").time_s for context in range(100, 1100, 50)]
    assert decode_context(MODEL, asked) == 599.5
    assert predict(asked).summary.tpot_s == pytest.approx(sum(steps) / len(steps), rel=0.02)


def test_both_a_prompt_and_a_context_may_be_given():
    profile = predict(Workload(prompt=512, generate=10, context=4000))
    assert names(profile) == ["load", "prefill", "decode"]
    assert profile.phase("decode").time_s == predict(Workload(context=4000)).phase("decode").time_s


def test_one_token_needs_no_decode_step_and_none_needs_only_the_prompt():
    for generate in (0, 1):
        profile = predict(Workload(prompt=64, generate=generate))
        assert names(profile) == ["load", "prefill"]
        assert profile.summary.tpot_s is None
    assert predict(Workload(prompt=64, generate=1)).summary.e2e_s == predict(Workload(prompt=64)).summary.ttft_s


def test_what_is_not_asked_for_is_filled_in_and_said():
    assert (predict(Workload()).workload.prompt, predict(Workload()).workload.generate) == (PROMPT, GENERATE)
    short = replace(MODEL, context_limit=64)
    asked = predict(Workload(), graph=short).workload
    assert (asked.prompt, asked.generate) == (32, 32)


def test_tokens_per_second_are_of_the_whole_batch():
    profile = predict(replace(CHAT, batch=4))
    assert profile.summary.tokens_per_s == pytest.approx(4 / profile.summary.tpot_s)


@pytest.mark.parametrize(
    ("workload", "says"),
    [
        (Workload(prompt=8000, generate=194), "window of 8192 tokens; prompt and generation would be 8193"),
        (Workload(context=8193), "window of 8192 tokens; the context would be 8193"),
        (Workload(prompt=8, parallel=Parallel(dp=2)), "batch of 1 cannot be shared"),
        (Workload(prompt=8, parallel=Parallel(tp=3)), "does not divide"),
    ],
)
def test_workloads_that_cannot_be_are_refused(workload, says):
    with pytest.raises(DomainError, match=says):
        predict(workload)


@pytest.mark.parametrize(
    "wrong",
    [
        {"overlap": float("nan")}, {"overlap": 2.0}, {"imbalance": 0.5}, {"chunk": 0}, {"micro_batches": 0},
        {"storage_bytes_per_s": 0.0}, {"steps": 0}, {"cached_prefix": -1}, {"sizes": {"x": 0}}, {"sizes": {"x": 1.5}},
    ],
)  # fmt: skip
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(DomainError):
        Options(**wrong)
    with pytest.raises(DomainError):
        Workload(batch=0)


def test_an_unknown_runtime_is_refused():
    with pytest.raises(UnknownNameError):
        predict(runtime="torch")


def test_a_calibration_of_another_runtime_is_refused():
    other = Calibration(device="machine", runtime="torch-eager", dtype="bf16", created="2026")
    with pytest.raises(DomainError, match="calibration is of torch-eager"):
        predict(calibration=other)


def test_a_calibration_says_so_on_the_ops_it_covers():
    table = Utilisation(op_class="linear", stream="dram", axes=("rows",), grid=((1.0,),), values=(0.5,), residual=0.1)
    calibration = Calibration(device="machine", runtime="ideal", dtype="bf16", created="2026", tables=(table,))
    origins = {op.kind: op.origin for op in predict(calibration=calibration).phase("decode").ops}
    assert origins["linear"] == "calibrated"
    assert origins["norm"] == "prior"


def head_of(profile):
    return next(op for op in profile.phase("prefill").ops if op.name == "lm_head")


def test_chunks_of_a_prefill_do_the_same_work_in_more_time():
    whole, chunked = predict(), predict(chunk=300)
    assert chunked.phase("prefill").flops == pytest.approx(whole.phase("prefill").flops)
    assert chunked.phase("prefill").time_s > whole.phase("prefill").time_s


@pytest.mark.parametrize("runtime", ["ideal", "llamacpp"])
def test_only_the_last_chunk_of_a_prefill_gives_logits(runtime):
    whole, chunked = (head_of(predict(runtime=runtime, **chunk)) for chunk in ({}, {"chunk": 300}))
    assert chunked.flops == whole.flops == 2 * 128_256 * 4096
    for name in ("time_s", "low_s", "high_s", "floor_s", "bytes", "bound"):
        assert getattr(chunked, name) == pytest.approx(getattr(whole, name)), name


def test_a_runtime_may_compute_the_logits_of_every_chunk_and_pays_for_it_in_time_alone():
    own = RuntimeEffects(name="mine", title="Mine", logits="chunk")
    whole, chunked = head_of(predict(runtime=own)), head_of(predict(runtime=own, chunk=300))
    assert chunked.time_s == pytest.approx(7 * whole.time_s)  # 2048 tokens are seven chunks
    assert (chunked.flops, chunked.bytes, chunked.floor_s) == (whole.flops, whole.bytes, whole.floor_s)


def test_a_cached_prefix_is_not_read_again():
    whole, cached = predict(), predict(cached_prefix=1536)
    assert cached.summary.ttft_s < 0.5 * whole.summary.ttft_s
    with pytest.raises(DomainError, match="leave nothing"):
        predict(cached_prefix=2048)


def test_a_draft_model_shares_its_time_among_the_tokens_it_gains():
    drafting = Speculative(draft=SMALL, length=4, acceptance=0.8)
    profile = predict(speculative=drafting)
    draft, check = profile.phase("draft"), profile.phase("decode")
    gained = speculative_tokens(acceptance=0.8, draft_length=4)
    assert profile.summary.tpot_s == pytest.approx((4 * draft.time_s + check.time_s) / gained)
    assert profile.summary.tpot_s < predict().summary.tpot_s
    assert any("draft" in note for note in profile.provenance.notes)


def test_offloaded_layers_cross_the_host_link_at_every_step():
    plain, away = predict(), predict(offload=Offload(layers=8))
    layer = 2 * (2 * 4096**2 + 2 * 4096 * 1024 + 3 * 4096 * 14336)
    assert away.phase("decode").time_s > 8 * layer / 10e9
    assert away.phase("decode").bound == "link"
    assert away.summary.peak_memory_bytes < plain.summary.peak_memory_bytes
    counts = [op.count for op in away.phase("decode").ops if op.name.endswith("q_proj")]
    assert counts == [24, 8]
    with pytest.raises(DomainError, match="40 layers"):
        predict(offload=Offload(layers=40))
    with pytest.raises(DomainError, match="no link to its host"):
        predict(device=machine(host_link=None), offload=Offload(layers=1))


def test_experts_may_lie_elsewhere():
    model = Graph(name="moe", blocks=(Block(name="b", ops=(experts(),), count=2),), precision="bf16")
    asked = Workload(prompt=4)
    plain, away = (predict(asked, graph=model, **o) for o in ({}, {"offload": Offload(experts=True)}))
    assert away.phases[-1].time_s > plain.phases[-1].time_s
    with pytest.raises(DomainError, match="no weights that could be offloaded"):
        predict(offload=Offload(experts=True))


def test_host_costs_are_phases_where_they_are_known():
    costs = HostCosts(tokenise_s_per_token=1e-3, sampling_s=0.5, detokenise_s_per_token=0.25)
    plain, profile = predict(), predict(host=costs)
    assert names(profile) == ["load", "tokenise", "prefill", "decode", "sampling", "detokenise"]
    assert profile.summary.ttft_s == pytest.approx(plain.summary.ttft_s + 2.048 + 0.5)
    assert profile.summary.tpot_s == pytest.approx(plain.summary.tpot_s + 0.75)


def test_compiling_is_a_phase_of_its_own():
    profile = predict(runtime="torch-compile")
    assert names(profile)[:2] == ["load", "first_run"]
    assert profile.summary.ttft_s == profile.phase("prefill").time_s


def test_two_devices_share_the_work_and_talk():
    one, two = predict(), predict(replace(CHAT, parallel=Parallel(tp=2)))
    assert one.phase("decode").time_s > two.phase("decode").time_s > 0.5 * one.phase("decode").time_s
    told = [op for op in two.phase("decode").ops if op.kind == "collective"]
    assert {op.name for op in told} >= {"layers.0.o_proj.all_reduce", "layers.0.down_proj.all_reduce"}
    assert all(op.bound == "link" and op.time_s >= op.floor_s > 0 for op in told)
    assert two.device.count == 2
    assert two.model.weight_bytes == one.model.weight_bytes
    assert two.phase("decode").flops == pytest.approx(one.phase("decode").flops)


def test_communication_hides_by_the_overlap_that_is_stated():
    open_, hidden = (predict(replace(CHAT, parallel=Parallel(tp=4)), overlap=o) for o in (0.0, 1.0))
    assert hidden.phase("decode").time_s < open_.phase("decode").time_s
    assert any("100% of the communication" in note for note in hidden.provenance.notes)


def test_a_pipeline_does_not_make_one_request_faster_but_micro_batches_overlap():
    batch = replace(CHAT, batch=8)
    one, two = predict(batch), predict(replace(batch, parallel=Parallel(pp=2)))
    assert two.phase("prefill").time_s >= one.phase("prefill").time_s
    overlapped = predict(replace(batch, parallel=Parallel(pp=2)), micro_batches=8)
    assert overlapped.phase("prefill").time_s < 0.7 * two.phase("prefill").time_s
    assert two.summary.peak_memory_bytes < one.summary.peak_memory_bytes


def test_replicas_multiply_the_throughput():
    one, four = predict(replace(CHAT, batch=2)), predict(replace(CHAT, batch=8, parallel=Parallel(dp=4)))
    assert four.summary.tokens_per_s == pytest.approx(4 * one.summary.tokens_per_s)
    assert four.summary.energy_j == pytest.approx(4 * one.summary.energy_j)


def test_a_model_with_one_phase_has_a_latency():
    profile = predict(Workload(prompt=128, batch=2), graph=ENCODER)
    assert names(profile) == ["load", "forward"]
    assert profile.summary.latency_s == profile.phase("forward").time_s
    assert profile.model.kv_bytes_per_token is None
    with pytest.raises(DomainError, match="window of 512"):
        predict(Workload(prompt=513), graph=ENCODER)


def test_a_diffusion_models_latency_is_all_its_steps():
    one, many = (predict(Workload(prompt=64), graph=ENCODER, steps=n).summary for n in (1, 30))
    assert many.latency_s == pytest.approx(30 * one.latency_s)
    assert many.energy_j == pytest.approx(30 * one.energy_j)


def test_answers_are_in_the_units_that_people_ask_for():
    hears = ask("whisper-base", on="nvidia-l4", generate=32)
    one = hears.answer().summary
    assert one.real_time_factor == pytest.approx(one.e2e_s / 30)  # a window is 3,000 frames of 10 ms
    longer = replace(hears, options=Options(audio_s=31.0)).answer().summary
    assert longer.real_time_factor == pytest.approx(2 * one.e2e_s / 31)  # and the second one is padded
    pictures = ask("sd-1.5-unet", on="nvidia-l4", batch=2, options=Options(steps=20)).answer().summary
    assert pictures.inputs_per_s == pytest.approx(2 / pictures.latency_s)
    tokens = ask("llama-3.2-1b", on="nvidia-l4", batch=4).answer().summary
    assert tokens.tokens_per_s_per_user == pytest.approx(tokens.tokens_per_s / 4)
    assert (tokens.inputs_per_s, tokens.real_time_factor, pictures.tokens_per_s_per_user) == (None, None, None)


def test_a_document_has_the_rates_that_people_quote_where_they_apply():
    def rates(model, **sizes):
        question = ask(model, on="nvidia-l4", **sizes)
        profile = question.answer()
        told = prediction_document(question, profile)["summary"]
        return profile, {name: told[name] for name in told.keys() - document(profile)["summary"].keys()}

    heard, rates_of_speech = rates("whisper-base", generate=32)
    assert rates_of_speech["rtf"] == heard.summary.real_time_factor
    seen, rates_of_images = rates("resnet50", batch=4)
    assert rates_of_images == {"images_per_s": seen.summary.inputs_per_s}
    written, rates_of_tokens = rates("llama-3.2-1b", batch=2)
    joules = written.phase("decode").energy_j / 2
    assert rates_of_tokens["energy_j_per_token"] == pytest.approx(joules)
    low, high = (rates_of_tokens[f"energy_j_per_token_{end}"] / joules for end in ("low", "high"))
    summary = written.summary
    assert (low, high) == pytest.approx(
        (summary.energy_low_j / summary.energy_j, summary.energy_high_j / summary.energy_j)
    )
    assert rates("bert-base")[1] == {}


def test_an_encoder_runs_once_a_request():
    once = project("encoder.{}", "x", "memory", 128, 128)
    once = replace(once, attributes={"once": True})
    model = replace(SMALL, blocks=(Block(name="e", ops=(once,), count=4), *SMALL.blocks))
    profile = predict(graph=model)
    assert names(profile) == ["load", "encode", "prefill", "decode"]
    assert [op.name for op in profile.phase("encode").ops] == ["encoder.0"]
    assert all(op.name != "encoder.0" for op in profile.phase("decode").ops)
    assert profile.summary.ttft_s == pytest.approx(profile.phase("encode").time_s + profile.phase("prefill").time_s)


def test_a_state_space_model_makes_tokens_too():
    scan = op("ssm_scan", [tokens("x", 64), state("h.{}", 64, 16)], [tokens("y", 64)], inner=64, state=16)
    model = Graph(name="ssm", blocks=(Block(name="b", ops=(scan,), count=4),), precision="bf16")
    assert names(predict(graph=model)) == ["load", "prefill", "decode"]


def test_sizes_a_file_names_are_given_by_name():
    x = Tensor(name="x", shape=(Symbol("sequence"), 8))
    model = Graph(name="file", blocks=(Block(name="b", ops=(op("softmax", [x], [x]),)),), inputs=(x,), precision="f32")
    with pytest.raises(DomainError, match=r"sequence \(input x, axis 0\)\. Add --size sequence=N\."):
        predict(Workload(), graph=model)
    assert predict(Workload(), graph=model, sizes={"sequence": 12}).phase("forward").flops == 5 * 12 * 8


def test_ops_whose_work_is_not_known_are_named():
    model = replace(ENCODER, blocks=(*ENCODER.blocks, Block(name="c", ops=(op("custom", reason="magic"),))))
    profile = predict(Workload(prompt=8), graph=model)
    assert any("1 of 7 ops are not in the prediction" in note for note in profile.provenance.notes)
    forward = profile.phase("forward")
    assert [(op.flops, op.floor_s, op.bound) for op in forward.ops if op.kind == "custom"] == [(None, None, "overhead")]
    assert forward.counted < 1
    assert forward.above_floor is None


def test_a_format_the_runtime_computes_in_another_is_said():
    slow, whole = machine(peaks={"f32": stated(1e12)}), machine(peaks={"i8": stated(1e12)})
    profile = predict(device=slow, runtime="torch-compile")
    assert "machine has no bf16 peak: torch-compile computes it in f32." in profile.provenance.notes
    with pytest.raises(DomainError, match=r"no peak for bf16 or f32 or f16 \(it has: i8\)"):
        predict(device=whole)
    assert predict(replace(CHAT, precision=Precision(weights="i8", activations="i8")), device=whole).summary.tpot_s > 0


def test_a_model_that_names_no_format_is_f32_and_it_is_said():
    profile = predict(graph=replace(SMALL, precision=None))
    assert profile.workload.precision == Precision(weights="f32", activations="f32", kv="f32")
    assert any("no number format" in note for note in profile.provenance.notes)


def test_some_ops_may_be_stored_otherwise():
    plain, mixed = predict(), predict(overrides={"lm_head": "f32"})
    assert mixed.model.weight_bytes - plain.model.weight_bytes == 2 * 128_256 * 4096
    with pytest.raises(DomainError, match="No op is named nothing"):
        predict(overrides={"nothing": "f32"})


def test_what_does_not_fit_is_said_and_still_answered():
    tiny = machine(memories=(Memory(level="dram", capacity_bytes=stated(1e9), bandwidth_bytes_per_s=stated(1e11)),))
    profile = predict(device=tiny)
    assert profile.summary.fits is False
    (finding,) = profile.findings
    assert finding.code == "memory.does-not-fit"
    assert finding.evidence["needed_bytes"] > finding.evidence["capacity_bytes"] == 1e9


def test_money_and_carbon_follow_the_place():
    profile = predict(place=Hosting(usd_per_hour=3.6))
    rate = 128 / profile.summary.e2e_s
    assert profile.summary.usd_per_million_tokens == pytest.approx(3.6 / 3600 / rate * 1e6)
    assert profile.summary.co2e_g is None


def test_reading_and_writing_on_two_machines_sends_the_cache_once():
    quick = machine(name="quick", peaks={"bf16": stated(9e12), "f32": stated(5e12)})
    question = Question(
        graph=MODEL, device=MACHINE, runtime="ideal", workload=CHAT, prefill_on=quick, options=Options(link=WIRE)
    )
    profile = question.answer()
    assert names(profile) == ["load", "prefill", "transfer", "decode"]
    sent = profile.phase("transfer")
    assert sent.bytes == 2048 * 131_072
    assert sent.time_s == pytest.approx(sent.bytes / 100e9 + 1e-6)
    assert profile.summary.ttft_s == pytest.approx(predict(device=quick).summary.ttft_s + sent.time_s)
    assert profile.summary.tpot_s == predict().summary.tpot_s
    with pytest.raises(DomainError, match="prompt to read"):
        replace(question, workload=Workload(context=3)).answer()


def test_a_runtime_may_be_given_as_a_value():
    own = RuntimeEffects(name="mine", title="Mine", overheads={"gpu": Overheads(step_s=stated(1.0))})
    profile = predict(runtime=own)
    assert profile.runtime == "mine"
    assert profile.phase("decode").unattributed_s == 1.0
    assert profile.summary.unattributed_s == 2.0


def test_the_same_question_is_answered_from_what_was_made_ready():
    effects = runtime_effects("ideal")
    one, two = (
        make_ready(MODEL, machine(), effects=effects, workload=w, options=Options())
        for w in (CHAT, Workload(context=9))
    )
    assert one is two
    other = make_ready(MODEL, machine(power_w=stated(1.0)), effects=effects, workload=CHAT, options=Options())
    assert other is not one
    assert other.layout is one.layout


def test_a_prompt_counts_its_image():
    small, large = (verbs.predict("qwen2-vl-2b", on="nvidia-l40s", image=side) for side in (448, 1024))
    assert (small.workload.prompt, large.workload.prompt) == (512, 1332 + 512)
    assert small.phase("prefill").time_s < large.phase("prefill").time_s
    assert "Of the prompt's 512 tokens 256 are the image's." in small.provenance.notes
    with pytest.raises(DomainError, match="1332 tokens of a prompt, and 512 are asked for"):
        verbs.predict("qwen2-vl-2b", on="nvidia-l40s", image=1024, prompt=512)
    words = verbs.predict("qwen2-vl-2b", on="nvidia-l40s", prompt=64)  # what a table of words alone asks
    assert any("of words alone" in note for note in words.provenance.notes)


def test_a_recording_says_how_long_all_of_it_takes():
    one = verbs.predict("whisper-base", on="nvidia-rtx-4090", runtime="whispercpp")
    long = verbs.predict("whisper-base", on="nvidia-rtx-4090", runtime="whispercpp", audio="10min")
    whole = format_quantity(20 * one.summary.e2e_s, "s")
    assert f"The recording is 20 windows, one after the other: {whole} in all." in " ".join(long.provenance.notes)
    assert not any("recording" in note for note in one.provenance.notes)
