"""Cards, tables, pages, drawings and charts of values made by hand, word by word and number by number.

`reports_told.json` has them: `python tests/unit/understand/view/test_reports_told.py` writes it anew (with src and
tests on the path). What a change did to a report shows there: read it before committing it.
"""

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.core.device import Device, Memory, Sourced
from inferometer.core.finding import Finding
from inferometer.core.profile import (
    DeviceFacts,
    EnergyFacts,
    EnergySensor,
    Environment,
    Headline,
    ModelFacts,
    OpTime,
    Phase,
    Profile,
    Provenance,
    Verification,
)
from inferometer.core.served import (
    ClientReadings,
    Level,
    Objective,
    RequestColumns,
    Served,
    ServerReadings,
    Spread,
    Window,
)
from inferometer.core.trace import Segment, Span, Trace
from inferometer.core.workload import Precision, Workload
from inferometer.measure.bench.compare import compare
from inferometer.measure.prepare.run import Prepared, StepResult
from inferometer.measure.prepare.search import Found
from inferometer.measure.spans import from_trace
from inferometer.measure.spans.power import Power, Series
from inferometer.predict.served.question import ServingAnswer
from inferometer.store.values import RunRow
from inferometer.understand.view import (
    exports,
    load_tests,
    measured,
    predictions,
    prepared,
    profiles,
    serving,
    spans_page,
)
from inferometer.understand.view.charts.layers import kind_chart, layer_chart, memory_chart, unit_chart
from inferometer.understand.view.charts.load_tests import chart_names, load_chart
from inferometer.understand.view.charts.roofline import roofline
from inferometer.understand.view.charts.samples import difference_chart, histogram, run_trend, token_trend
from inferometer.understand.view.dataflow import dataflow
from inferometer.understand.view.explanations import explanation_page, findings_table, page_text, trial_table
from inferometer.understand.view.frames import comparison_columns, profile_columns
from inferometer.understand.view.notebook import view_html
from inferometer.understand.view.phrases import duration_text
from inferometer.understand.view.published import apart_text
from inferometer.understand.view.render import render
from inferometer.understand.view.runs import each_table, machine_names, run_table
from inferometer.understand.view.spans_page import page, statistics_document
from inferometer.understand.view.terminal import draw_card, without_styles
from inferometer.understand.view.traces import chrome, folded, speedscope
from unit.hub.web.samples import decoder, network

TOLD = Path(__file__).parent / "reports_told.json"
FORMATS = Precision(weights="i8", activations="bf16", kv="f8e4m3")


def text(table):
    left = [f"{table.left}: --format json lists all of them."] if table.left else []
    note = [str(table.note)] if table.note or not left else []
    return "\n".join([str(table.title), render(table, "md"), *note, *left])


def card(made):
    return without_styles(draw_card(made))


# Predictions.

OPS = (
    OpTime(name="layers.0.attn", kind="attention", time_s=2e-3, count=4, flops=8e9, bytes=4e6, bound="memory",
           floor_s=1e-3, origin="measured", energy_j=0.2),
    OpTime(name="layers.0.mlp", kind="linear", time_s=5e-3, count=4, flops=6e11, bytes=9e7, bound="compute",
           floor_s=4e-3, origin="prior"),
    OpTime(name="head", kind="linear", time_s=1e-3, flops=1e9, bytes=3e8, bound="memory", floor_s=9e-4),
    OpTime(name="sampling", kind="sampling", time_s=5e-5),
)  # fmt: skip


def predicted(**given):
    decode = Phase(
        name="decode", time_s=8.5e-3, low_s=7e-3, high_s=11e-3, floor_s=6e-3, bound="memory", flops=1e10, bytes=4e8,
        ops=OPS, energy_j=1.5, streams={"compute": 2e-3, "memory": 7e-3, "network": 0.0, "overhead": 1e-3},
    )  # fmt: skip
    prefill = Phase(name="prefill", time_s=0.1, floor_s=5e-4, bound="compute", ops=OPS[:1], flops=8e9, bytes=4e6)
    values = {
        "kind": "predicted", "model": ModelFacts(name="tiny", weight_formats={"i8": 0.9, "f32": 0.06, "bf16": 0.04}),
        "device": DeviceFacts(name="nvidia-x", title="NVIDIA X", count=2),
        "workload": Workload(batch=4, prompt=100, generate=11, precision=FORMATS), "phases": (prefill, decode),
        "summary": Headline(
            ttft_s=0.12, ttft_low_s=0.1, ttft_high_s=0.2, tpot_s=8.5e-3, tpot_low_s=7e-3, tpot_high_s=11e-3,
            e2e_s=0.205, e2e_low_s=0.15, e2e_high_s=0.3, tokens_per_s=470.0, peak_memory_bytes=12_000_000_000,
            fits=False, energy_j=21.0, usd_per_million_tokens=0.42, co2e_g=3.3e-3, battery_s=9000.0,
            inferences_per_charge=43_000.0,
        ),
        "runtime": "vllm", "arithmetic": ("f16", "bf16"), "sizes": {"n": 3},
        "provenance": Provenance(tool="t", version="1", created="2026-01-01", notes=("a note",)),
        "findings": (Finding(code="c", severity="critical", title="Too large", advice="Use fewer bits."),
                     Finding(code="w", severity="warning", title="Slow", advice="Wait.")),
    }  # fmt: skip
    return Profile(**{**values, **given})


def passing(**summary):
    """A forward pass at a frame rate."""
    ops = (
        OpTime(name="conv", kind="convolution", time_s=0.03, flops=3e9, bytes=1e6),
        OpTime(name="x", kind="y", time_s=1e-3),
    )
    forward = Phase(name="forward", time_s=0.031, low_s=0.025, high_s=0.04, floor_s=1e-4, bound="compute", ops=ops)
    headline = Headline(**{"latency_s": 0.031, "latency_low_s": 0.025, "latency_high_s": 0.04, "fits": None,
                           "peak_memory_bytes": 5_000_000, "usd_per_million_inferences": 2.5, "battery_s": 3e8,
                           "inferences_per_charge": 1234.0, **summary})  # fmt: skip
    return replace(predicted(), phases=(forward,), summary=headline, workload=Workload(batch=2, image=96),
                   device=DeviceFacts(name="board"), model=ModelFacts(name="net"), arithmetic=(), sizes={},
                   findings=(), provenance=None)  # fmt: skip


def frames():
    cases = {
        "holds": {"frame_budget_s": 0.066, "frame_headroom": 0.53},
        "not at the high end": {"frame_budget_s": 0.035, "frame_headroom": 0.11},
        "may at the low end": {"frame_budget_s": 0.03, "frame_headroom": -0.033},
        "does not": {"frame_budget_s": 0.02, "frame_headroom": -0.55},
        "no interval": {"frame_budget_s": 0.02, "frame_headroom": -0.55, "latency_low_s": None},
    }
    return {name: card(predictions.prediction_card(passing(**summary))) for name, summary in cases.items()}


def of_prediction():
    profile = predicted()
    gains = [{"change": "tp=4", "phase": "decode", "before_s": 8.5e-3, "after_s": 5e-3, "gain": 1.7,
              "throughput_gain": None, "bound": "memory", "fits": True, "error": None}]  # fmt: skip
    compared = [predictions.summary_row(profile), predictions.summary_row(passing())]
    bare = replace(profile, summary=Headline(tpot_s=8.5e-3, usd_per_million_tokens=1.0), phases=profile.phases[1:])
    return {
        "card": card(predictions.prediction_card(profile)), "a lone step": card(predictions.prediction_card(bare)),
        "phases": text(predictions.phase_table(profile)), "streams": text(predictions.stream_table(profile)),
        "ops": text(predictions.op_table(profile.phases[-1], most=2)),
        "no ops": text(predictions.op_table(None)),
        "everything": render(predictions.prediction_rows(profile), "csv"),
        "compared": render(predictions.comparison_table(compared), "csv"),
        "compared with ends": render(predictions.comparison_table(compared, ends=True), "csv"),
        "gains": text(predictions.gain_table(gains)), "columns": profile_columns(profile),
        "html": view_html(profile),
    }  # fmt: skip


# Measurements.

ENERGY = EnergyFacts(
    sensors=(EnergySensor(name="rapl", covers="CPU package", update_s=1e-3),
             EnergySensor(name="dram", covers="memory", update_s=1e-3)),
    idle_w=10.0, window_s={"prefill": 1.5, "decode": 2.0}, reason="a part was too short",
)  # fmt: skip


def measured_decoder():
    profile = decoder()
    phases = tuple(
        replace(phase, energy_j=0.4, predicted_s=2 * phase.time_s, floor_s=phase.time_s / 300, bound="memory",
                counters={"cycles": 2e6, "instructions": 3e6, "cache_references": 1e5, "cache_misses": 2e4})
        for phase in profile.phases
    )  # fmt: skip
    known = replace(phases[0], ops=tuple(replace(op, flops=1e9, floor_s=1e-3) for op in phases[0].ops))
    environment = Environment(
        versions={"llama": "1"}, threads=4, energy=ENERGY, host={"counters": "not allowed"}, disturbed=False
    )
    return replace(profile, phases=(known, phases[1]), environment=environment,
                   summary=replace(profile.summary, energy_j=6.8))  # fmt: skip


def of_profiles():
    cnn, llm = network(5), measured_decoder()
    checks = {
        "verified": Verification(status="verified", reference="r, f32", max_rel=1e-3, rms_rel=2e-4, cosine=0.9999,
                                 tolerance="some"),
        "failed": Verification(status="failed", reference="r", top_1=0.5, top_k=0.7, nll_drift=0.31, max_abs=2.0,
                               reason="off", computed="f16"),
    }  # fmt: skip
    made = {}
    for name, profile in (("cnn", cnn), ("llm", llm)):
        made |= {
            f"{name} card": card(profiles.profile_card(profile, (90, 99.9))),
            f"{name} phases": text(profiles.measured_phase_table(profile)),
            f"{name} layers": text(profiles.layer_table(profile, most=2)),
            f"{name} all layers": text(profiles.layer_table(profile, phase=profile.phases[-1], most=None)),
            f"{name} closing": [profiles.closing_line(phase) for phase in profile.phases if phase.ops],
            f"{name} csv": exports.profile_csv(profile),
            f"{name} markdown": exports.markdown(profile, title="nightly", findings=profile.findings),
            f"{name} kinds": kind_chart(profile), f"{name} counts": kind_chart(profile, "count"),
            f"{name} units": unit_chart(profile), f"{name} chart": layer_chart(profile),
            f"{name} memory": memory_chart(replace(profile, device=replace(profile.device, count=2))),
        }  # fmt: skip
    made |= {f"check {name}": card(profiles.verification_card("m", check)) for name, check in checks.items()}
    longer = replace(llm, workload=replace(llm.workload, prompt=64, context=8))
    made["lengths"] = text(profiles.length_table((llm, longer)))
    made |= {"histogram": histogram(cnn), "tokens": token_trend(llm)}
    return made


def compared():
    fast, slow = network(6), network(6, seed=2, slower=1.3)
    found = compare(fast, slow, names=("before", "after"))
    same = compare(fast, fast)
    return {
        "headline": [measured.headline(found), measured.headline(same)],
        "table": text(measured.comparison_table(found, most=3)), "markdown": measured.comparison_markdown(found),
        "same": measured.comparison_markdown(same), "numbers": render(measured.comparison_numbers([found]), "csv"),
        "chart": difference_chart(found), "columns": comparison_columns(found), "html": view_html(found),
        "percentiles": [measured.percentile_fact(tuple(0.01 * n for n in range(1, 41)), at, "decode")
                        for at in (50, 99, 1)],
    }  # fmt: skip


# Services under load.


def level(name, rate, count=8, **given):
    """Requests that were due evenly, each a little slower than the one before; the last two failed."""
    due, kept = tuple(n / rate for n in range(count)), count - 2
    columns = RequestColumns(
        due_s=due, sent_s=tuple(at + 0.01 for at in due),
        first_s=(*(at + 0.2 + 0.002 * n for n, at in enumerate(due[:kept])), None, None),
        last_s=(*(at + 1.0 + 0.01 * n for n, at in enumerate(due[:kept])), None, None), input_tokens=(32,) * count,
        output_tokens=(*(9,) * kept, None, None), outcome=(*("ok",) * kept, "http_503", "timeout"),
    )  # fmt: skip
    gaps = Spread(count=40, total_s=4.0, min_s=0.05, max_s=0.4, zeros=3, bins=(-600, -599, -500, -190),
                  counts=(10, 20, 7, 3))  # fmt: skip
    values = {"name": name, "rate_per_s": rate, "seconds": due[-1] + 2, "requests": columns, "gaps": gaps,
              "windows": (Window(start_s=0.5, end_s=due[-2], why="steady"),),
              "messages": {"http_503": "busy"}}  # fmt: skip
    return Level(**{**values, **given})


def load():
    served = Served(
        loop="open", arrivals="Poisson", lengths="32 in, 9 out", api="chat", prompts="random",
        objectives=(Objective(metric="ttft", share=0.9, limit_s=0.3),),
        levels=(
            level("2/s", 2.0, counting="usage", tokens_per_chunk=1.5),
            level("4/s", 4.0, interrupted=True, notes=("noted",),
                  client=ClientReadings(bottleneck=True, reasons=("slow", "late"), send_delay_p99_s=0.2,
                                        lag_p99_s=0.05, cpu_share=0.97),
                  server=ServerReadings(counters={"generated_tokens": 90.0}, gauges={"queue_depth": (1.5, 4.0)},
                                        usage_requests=6, usage_input_tokens=192, usage_output_tokens=54)),
        ),
    )  # fmt: skip
    many = replace(served, levels=tuple(level(f"{rate}/s", rate, count=240) for rate in (2.0, 8.0, 32.0)), headline=1)
    at_once = tuple(
        replace(each, rate_per_s=None, concurrency=8 * n, name=f"{8 * n} at once")
        for n, each in enumerate(many.levels, 1)
    )
    closed = replace(many, levels=at_once, objectives=(), loop="closed", prompts=None)
    made = {}
    for name, each in (("few", served), ("many", many), ("closed", closed)):
        profile, result = replace(network(2), served=each), load_tests.load_result(each)
        made |= {
            f"{name} card": card(load_tests.load_card(profile, result)),
            f"{name} levels": text(load_tests.level_table(result)),
            f"{name} distribution": text(load_tests.distribution_table(result)),
            f"{name} remarks": list(load_tests.remarks_of(result)), f"{name} charts": chart_names(each, result),
        }  # fmt: skip
    few, several = load_tests.load_result(served), load_tests.load_result(many)
    profile = replace(network(2), served=served)
    made |= {
        "markdown": exports.markdown(profile, title="nightly"), "requests": exports.profile_csv(profile),
        "document": load_tests.load_document(profile, few), "facts": load_tests.level_facts(few),
    }  # fmt: skip
    for name in ("gap-histogram", "timeline", "e2e-histogram", "throughput-load"):
        made[f"chart {name}"] = load_chart(few, name)
    made |= {f"many {name}": load_chart(several, name) for name in ("ttft-load", "tpot-load", "throughput-load")}
    made["closed e2e-load"] = load_chart(load_tests.load_result(closed), "e2e-load")
    made["in flight"] = load_chart(few, "in-flight")["layer"][1]["data"]["values"][::40]
    return made


# Recordings.


def recording():
    rows = [("run", 0, 40, None, {}), ("prefill", 0, 12, 0, {"phase": "prefill", "tokens": 16})]
    for layer in range(3):
        at = 1 + 3 * layer
        parent = len(rows)
        rows.append(("layer", at, at + 2.8 + 0.1 * layer, 1, {"layer": layer}))
        rows.append(("attn", at, at + 1 + 0.1 * layer, parent, {"unit": "npu", "flops": 2e6, "bytes": 1e3}))
        rows.append(("mlp", at + 1.5, at + 2.5 + 0.2 * layer, parent, {"unit": "gpu", "flops": 4e6}))
    for token in range(3):
        at, parent = 14 + 8 * token, len(rows)
        rows.append(("decode", at, at + 6 + token, 0, {"phase": "decode", "token": token, "tokens": 1}))
        rows.append(
            (
                "forward",
                at,
                at + 4 + token,
                parent,
                {"unit": "npu", "energy_j": 0.5, "memory_delta_bytes": 10, "memory_peak_bytes": 99},
            )
        )
        rows.append(("sample", at + 4.5 + token, at + 5 + 1.2 * token, parent, {"unit": "cpu", "failed": token == 2}))
    made = tuple(
        Span(name=name, start_ns=round(start * 1e6), end_ns=round(end * 1e6), parent=parent, process=7, thread=1,
             segments=(Segment(name="write", start_ns=round(start * 1e6), end_ns=round(start * 1e6 + 5e5)),)
             if name == "forward" else (), **facts)
        for name, start, end, parent, facts in rows
    )  # fmt: skip
    return from_trace(Trace(spans=made, clock="fake", started_at="2026-01-01T00:00:00+00:00"))


def joined(parts):
    return b"".join(parts).decode()


def of_spans():
    made = recording()
    flow = dataflow(made)
    return {
        "report": spans_page.report(made), "operations": spans_page.report(made, "operations"),
        "tree": text(spans_page.tree_table(made, rows=4)), "timeline": spans_page.timeline(made, width=60),
        "markdown": joined(spans_page.markdown(made)), "csv": joined(spans_page.csv_rows(made)), "flow": flow.text(),
        "drawing": flow.svg(), "chrome": json.loads(joined(chrome(made)))["traceEvents"],
        "speedscope": json.loads(joined(speedscope(made)))["profiles"], "folded": joined(folded(made)),
    }  # fmt: skip


# What is planned, served, prepared and explained.

PLAN = {
    "device": "nvidia-x", "count": 4, "runtime": "vllm", "weights": "f8e4m3", "tp": 2, "replicas": 2, "spare": 1,
    "max_num_seqs": 64, "usd_per_hour": 9.5, "usd_per_month": 6935.0, "usd_per_million_tokens": 0.777, "watts": 2800.0,
    "co2e_g_per_hour": 1234.5, "utilisation": 0.62, "headroom": 0.4, "ttft_s": 0.11, "ttft_p95_s": 0.35,
    "tpot_s": 0.02, "tpot_p95_s": None, "requests": 2000, "kv_share": 0.81, "why": None,
}  # fmt: skip
EDGE = {
    "fits": False, "share": 0.7, "model": "small", "device": "phone", "runtime": "litert", "ttft_s": 0.2,
    "tpot_s": 0.05, "requests_per_s": 12.345, "answer_s": 1.5, "handed_on_s": 2.5, "mean_s": 1.8, "joules": 3.3,
    "requests_per_charge": 12_000.0,
}  # fmt: skip


def planned():
    document = {"plans": [PLAN, {**PLAN, "count": 8, "why": "dearer", "tpot_p95_s": 0.04}], "candidates": 1234,
                "simulated": 1, "rejected": ["a", "b", "c", "d"], "notes": ["n"], "edge": EDGE}  # fmt: skip
    bare = {**PLAN, "weights": None, "spare": 0, "usd_per_month": None, "watts": None}
    other = {**EDGE, "fits": None, "requests_per_charge": None}
    frames_of = {"device": "board", "count": 3, "runtime": "litert", "weights": "i8", "latency_s": 0.02,
                 "frames_per_s": 50.0, "streams": 2, "busy": 0.6, "watts": 4.0, "battery_s": 7200.0, "usd": 80.0,
                 "why": None}  # fmt: skip
    answer = ServingAnswer(
        model="m", device="d", devices=2, runtime="vllm", weights="f8", tp=2, replicas=1, users=5, prompt=100,
        generate=20, batch=5, ttft_s=0.1, ttft_low_s=0.08, ttft_high_s=0.2, tpot_s=0.01, tpot_low_s=0.008,
        tpot_high_s=0.02, step_s=0.008, tokens_per_s_per_user=90.0, tokens_per_s=450.0, tokens_per_s_per_device=225.0,
        tokens_per_user=100.0, meets=False, bound="memory", kv_tokens=123_456, usd_per_hour=8.0,
        usd_per_million_tokens=4.938, notes=("n",),
    )  # fmt: skip
    lone = replace(answer, devices=1, users=1, meets=None, kv_tokens=None, usd_per_hour=None)
    fit = {"fits": True, "usable_bytes": 8e10, "weights_bytes": 1.6e10, "activations_bytes": 5e8, "reserve_bytes": 2e9,
           "kv_tokens": 400_000, "kv_bytes_per_token": 131_072, "max_batch": 97, "tokens": 4096,
           "max_context": 131_072, "devices_at_least": 1}  # fmt: skip
    return {
        "card": card(serving.plan_card(document, title="t")), "table": text(serving.plan_table(document)),
        "bare": card(serving.plan_card({**document, "plans": [bare], "edge": other}, title="t")),
        "no energy": card(serving.plan_card({**document, "edge": {**EDGE, "joules": None}}, title="t")),
        "edge": text(serving.edge_table({"plans": [frames_of, {**frames_of, "battery_s": None}]})),
        "serving": card(serving.serving_card(answer)),
        "alone": card(serving.serving_card(replace(lone, tokens_per_user=1.0, meets=True))),
        "none asked": card(serving.serving_card(lone)),
        "fit": card(serving.fit_card(fit, title="t", subtitle="s", notes=())),
        "answers": text(serving.serving_table([answer, {"model": "x", "error": "too large"}])),
    }  # fmt: skip


def was_prepared():
    shared = {"tool": "t 1", "title": "x", "format": "onnx", "seconds": 1.0, "cached": False}
    steps = (
        StepResult(name="a", bytes=10, verdict="on the way", notes=("n",), **shared),
        StepResult(name="b", bytes=5_000_000, verified=True, drift=0.0123, predicted_gain=1.5, predicted_low=1.2,
                   predicted_high=2.0, measured_gain=1.4, measured_low=1.4, measured_high=1.4, verdict="faster",
                   **shared),
        StepResult(name="c", bytes=None, verified=False, drift=0.0, verdict="wrong", kept=False, **shared),
    )  # fmt: skip
    whole = Prepared(
        model="m", runtime="r", device="local", quantise="i8", original_bytes=9_000_000, steps=steps,
        artifact=Path("o.onnx"),
        bytes=5_000_000, predicted_gain=1.5, measured_gain=1.4, measured_low=1.3, measured_high=1.5, verdict="faster",
        drift=0.0123, notes=("note",),
    )  # fmt: skip
    wrong = replace(
        whole, right=False, artifact=None, measured_gain=None, bytes=None, predicted_gain=None, verdict=None
    )
    found = (Found(quantise="i8", prepared=whole, best=True), Found(quantise="i4", prepared=wrong, reason="wrong"),
             Found(quantise="f16", reason="not tried"))  # fmt: skip
    return {
        "table": text(prepared.prepared_table(whole)), "wrong": text(prepared.prepared_table(wrong)),
        "words": [prepared.whole_text(each) for each in (whole, wrong)], "search": text(prepared.search_table(found)),
    }  # fmt: skip


def explained():
    def table(by, phase, *rows, remainder=0.0):
        made = [{"name": name, "time_s": seconds, "count": count} for name, seconds, count in rows]
        return {"by": by, "phase": phase, "rows": made, "whole_s": sum(row[1] for row in rows) + remainder,
                "remainder": "unattributed", "remainder_s": remainder}  # fmt: skip

    many = [(f"layer {n}", 0.02 - 1e-3 * n, n) for n in range(14)]
    finding = {
        "severity": "warning", "code": "a.b", "title": "Slow", "advice": "Do it.", "gain": 1.5, "gain_low": 1.2,
        "gain_high": 1.9, "gain_of": "throughput", "changes": ["batch=8"], "phase": "decode", "stake_s": 1e-3,
        "evidence": {"share": 0.5, "moved_bytes": 2e6, "rate_bytes_per_s": 3e9, "intensity_flop_per_byte": 12.3,
                     "disturbed": 1.0, "idle_s": 0.02, "count": 12.0, "reached_flop_per_s": 1e12},
    }  # fmt: skip
    other = {**finding, "severity": "critical", "gain": None, "evidence": {"speedup_at_most": 2.0, "bytes": 10.0},
             "advice": ""}  # fmt: skip
    trial = {"change": "threads=2", "code": "a.b", "predicted": 1.5, "predicted_low": 1.2, "predicted_high": 1.9,
             "obtained": 1.4, "low": 1.3, "high": 1.5, "before_s": 2.0, "after_s": 1.43, "verdict": "faster",
             "as_predicted": True, "why": None, "reason": "ratio 0.7"}  # fmt: skip
    untried = {**trial, "obtained": None, "verdict": None, "why": "no memory", "predicted_low": None}
    roof = {
        "peak": {"level": "f16", "value": 9e13, "origin": "datasheet"},
        "memory": {"level": "hbm", "value": 2e12, "origin": "measured"}, "ridge_flop_per_byte": 45.0,
        "phases": [
            {"name": "decode", "regimes": {"memory": 0.9, "compute": 0.07, "unknown": 0.026, "link": 0.004},
             "intensity": 2.5, "flop_per_s": 1e12, "attainable_flop_per_s": 5e12, "efficiency": 0.2},
            {"name": "prefill", "regimes": {"compute": 1.0}, "intensity": 200.0, "flop_per_s": None,
             "attainable_flop_per_s": None, "efficiency": None},
            {"name": "load", "regimes": {"unknown": 1.0}, "intensity": None},
        ],
    }  # fmt: skip
    plain = {
        "model": "m", "device": "d", "kind": "measured", "runtime": "r", "workload": {"batch": 2, "prompt": 8},
        "headline": "It is slow.",
        "attribution": [
            table("phase", None, ("decode", 0.5, 1), ("prefill", 0.2, 1)),
            table("kind", "prefill", ("x", 0.1, 1), ("y", 0.1, 1)),
            table("kind", "decode", ("linear", 0.3, 4), ("norm", 0.1, 2), ("nothing", 0.0, 1), remainder=0.1),
            table("layer", "decode", *many, remainder=1e-5), table("unit", "decode", ("cpu", 0.5, 1)),
        ],
        "roofline": roof, "findings": [finding, other],
        "residual": [
            {"sentence": "Decode is off.", "blame": "kernels", "kinds": [
                {"kind": f"k{n}", "measured_s": 0.2, "predicted_s": 0.1, "share": -0.4} for n in range(5)]},
            {"sentence": "Prefill is right.", "blame": "none", "kinds": [{}]},
        ],
        "tried": [trial, untried, {**trial, "as_predicted": False}], "next": ["inferometer x"], "notes": ["n"],
    }  # fmt: skip
    quiet = {**plain, "attribution": [], "findings": [], "residual": [], "tried": [], "next": [], "notes": [],
             "roofline": {"peak": None, "memory": None, "phases": []}}  # fmt: skip
    page = {"code": "a.b", "what": "w", "evidence": "e", "why": "y", "do": "d", "sure": "s"}
    return {
        "page": without_styles(explanation_page(plain)), "markdown": explanation_page(plain, "md"),
        "quiet": explanation_page(quiet, "md"), "findings": text(findings_table([finding])),
        "trials": text(trial_table(plain["tried"])), "about": without_styles(page_text(page)),
        "about in md": page_text(page, "md"),
    }  # fmt: skip


def sourced(value):
    return Sourced(value=value, origin="datasheet", source="s", date="2026-01-01")


def roofed():
    device = Device(
        name="nvidia-x", title="NVIDIA X", vendor="nvidia", unit="gpu",
        peaks={"f16": sourced(1e14), "bf16": sourced(1e14), "f32": sourced(3e13)},
        memories=(Memory(level="hbm", bandwidth_bytes_per_s=sourced(1e12)),
                  Memory(level="l2", bandwidth_bytes_per_s=sourced(5e12))),
    )  # fmt: skip
    near = tuple(
        OpTime(name=f"layers.{n}.a_rather_long_name_of_an_op", kind="linear", time_s=1e-3 * (1 + n),
               flops=1e10 * (1 + n % 3),
               bytes=10.0 ** (6 + n % 4), bound="memory", floor_s=1e-4)
        for n in range(9)
    )  # fmt: skip
    quick = OpTime(name="quick", kind="linear", time_s=1e-3, flops=2e11, bytes=1e9, bound="compute", floor_s=2e-3)
    phase = Phase(
        name="forward",
        time_s=0.05,
        ops=(*near, quick, OpTime(name="tiny", kind="x", time_s=1e-9, flops=1.0, bytes=1.0)),
    )
    profile = replace(passing(), phases=(phase,), device=DeviceFacts(name="nvidia-x", count=2))
    return {"decode": roofline(predicted(), device),
            "prefill": roofline(predicted(), device, phase="prefill", width=300),
            "many": roofline(profile, device, title="t")}  # fmt: skip


# Runs, fleets, sensors and what others published.


def run_row(number, **given):
    values = {"id": f"run{number}", "project": "p", "status": "finished", "kind": "profile", "created": 1.7e9 + number,
              "model": "net", "device": "local", "runtime": "ort", "machine": "box", "machine_id": "abcd1234",
              "workload": "batch=1", "latency_s": 1e-3 * (1 + number)}  # fmt: skip
    return RunRow(**{**values, **given})


def of_runs():
    rows = [run_row(0), run_row(1, workload="batch=2 image=64"), run_row(2, machine_id="ffff1234", threads=4),
            run_row(3, machine=None, machine_id=None, device="nvidia-t4", latency_s=None, tpot_s=0.5),
            run_row(4, threads=2, precision="f16", name="night", ended=1.7e9 + 9, started=1.7e9 + 4)]  # fmt: skip
    done = replace(network(2), environment=None)
    results = [
        SimpleNamespace(profiles=(done,), complete=True, error="ignored", job=SimpleNamespace(runtime="x")),
        SimpleNamespace(profiles=(), complete=False, error="no memory", job=SimpleNamespace(runtime="y")),
        SimpleNamespace(profiles=(replace(done, summary=Headline(tpot_s=1e-6)),), complete=True, error=None, job=None),
    ]  # fmt: skip
    powered = recording()
    power = Power(
        series=(Series(name="rapl", quantity="energy", times_ns=(0, 10**9, 2 * 10**9), values=(1.0, 3.0, 9.0),
                       counted=True),
                Series(name="gpu", quantity="temperature", times_ns=(0,), values=(40.0,)),
                Series(name="board", quantity="power", times_ns=(0, 10**9), values=(5.0, 7.0))),
        missing={"npu": "no sensor"},
    )  # fmt: skip
    powered = replace(powered, run=replace(powered.run, power=power, notes=("a note",), dropped=3, span_cost_s=2e-7))
    whole = json.loads(joined(statistics_document(powered)))
    page_ = joined(page(powered)).rpartition("</svg>")[2]
    longer = compare(network(5), network(6, slower=1.2))
    return {
        "runs": render(run_table(rows, "csv"), "csv"), "names": machine_names(rows),
        "trend": run_trend(rows, "latency_s"),
        "fleet": text(each_table(("a", "b", "c"), results)), "power": text(spans_page.power_table(powered)),
        "headline": spans_page.headline(powered), "statistics": whole, "page": page_.replace("><", ">\n<"),
        "powered csv": joined(spans_page.csv_rows(powered)), "other layers": difference_chart(longer),
        "durations": [duration_text(seconds) for seconds in (1.0, 7199.0, 7200.0, 172_799.0, 172_800.0, 86_399_999.0,
                                                             8.64e7, 9e8)],
        "apart": [apart_text(predicted_s, 1.0) for predicted_s in (1.0049, 1.005, 0.9, 2.0, 2.01, 0.5, 0.49, 1.3)],
        "html without ops": view_html(replace(done, phases=done.phases[:1])),
    }  # fmt: skip


TOLD_OF = {
    "runs": of_runs, "prediction": of_prediction, "frames": frames, "profiles": of_profiles, "compared": compared,
    "load": load, "spans": of_spans, "planned": planned, "prepared": was_prepared, "explained": explained,
    "roofline": roofed,
}  # fmt: skip


def told_of(name):
    """As JSON has it, texts line by line; only digits beyond the seventh are left out."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.get_terminal_size", lambda *_: os.terminal_size((120, 40)))
        patch.setattr("sys.stdout.isatty", lambda: False, raising=False)
        made = TOLD_OF[name]()
    made = json.loads(json.dumps(made), parse_float=lambda text: float(f"{float(text):.7g}"))
    return {key: value.split("\n") if isinstance(value, str) else value for key, value in made.items()}


def flat(value, path=()):
    if isinstance(value, list):
        value = dict(enumerate(value))
    if not isinstance(value, dict):
        return {path: value}
    return {at: leaf for key, inner in value.items() for at, leaf in flat(inner, (*path, str(key))).items()}


@pytest.mark.parametrize("name", sorted(TOLD_OF))
def test_the_report_is_as_it_was(name):
    wanted, found = flat(json.loads(TOLD.read_text(encoding="utf-8"))[name]), flat(told_of(name))
    off = {
        at: (found.get(at), wanted.get(at))
        for at in wanted.keys() | found.keys()
        if found.get(at) != wanted.get(at)
        and not (isinstance(found.get(at), float) and found[at] == pytest.approx(wanted.get(at), rel=1e-5))
    }
    assert off == {}


if __name__ == "__main__":
    rows = (f" {json.dumps(name)}: {json.dumps(told_of(name), ensure_ascii=False)}" for name in sorted(TOLD_OF))
    TOLD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
