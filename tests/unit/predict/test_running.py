"""Threads of a CPU, the layout of images, the host of a GPU: used or refused, and the same through every door."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import inferometer as im
from fakes.recorded_machine import load_machine
from inferometer.cli.commands.predict import command
from inferometer.core.errors import DomainError
from inferometer.known import device
from inferometer.known.engines import engines
from inferometer.known.machine.detect import detect_host
from inferometer.measure.calibrate.job import device_to_calibrate
from inferometer.predict.ask import ask, device_for
from inferometer.predict.basis.calibrations import calibration_for, choose_calibration
from inferometer.predict.basis.files import read_calibration, write_calibration
from inferometer.predict.options import Options
from inferometer.predict.running import engine_notes
from unit.hub.web.samples import hub

HOSTS = Path(__file__).parents[2] / "data" / "hosts"
BOARD = {"on": "raspberry-pi-5", "runtime": "ncnn"}
EAGER = {"on": "nvidia-h200", "runtime": "torch-eager", "weights": "bf16", "activations": "bf16"}
ONE_CPU = {"on": "intel-emerald-rapids-1-vcpu", "runtime": "onnxruntime"}


def seconds(model, **asked):
    return im.predict(model, **asked).summary.latency_s


def refusal(model, **asked):
    with pytest.raises(DomainError) as caught:
        im.predict(model, **asked)
    assert caught.value.remedy
    return caught.value.message


def eager_calibration(**changes):
    changes = {"host_call_s": None, **changes}
    return replace(calibration_for("nvidia-h200", "torch-eager", "bf16").calibration, **changes)


# threads


def test_each_thread_more_of_a_cpu_takes_less_time():
    one, two, four = (seconds("resnet50", threads=count, **BOARD) for count in (1, 2, 4))
    assert one > 1.4 * two > 1.4 * 1.2 * four


@pytest.mark.parametrize("on", ["raspberry-pi-5", "rockchip-rk3588-cpu", "intel-core-i7-13700k-cpu"])
def test_who_names_no_threads_has_all_cores(on):
    """Published runs of ncnn name theirs: without a number, what they say of the device was lost."""
    cores = sum(group.count for group in device(on).core_groups)
    asked = {"on": on, "runtime": "ncnn"}
    assert seconds("resnet50", **asked) == pytest.approx(seconds("resnet50", threads=cores, **asked), rel=1e-9)


def test_a_calibration_answers_for_the_threads_it_was_made_with():
    assert ask("resnet50", threads=1, **ONE_CPU).basis().calibration.threads == 1
    assert seconds("resnet50", threads=1, **ONE_CPU) == seconds("resnet50", **ONE_CPU)


def test_of_two_calibrations_the_one_with_as_many_threads_is_taken(tmp_path, monkeypatch):
    monkeypatch.setenv("INFEROMETER_DATA", str(tmp_path))
    shipped = calibration_for("intel-emerald-rapids-1-vcpu", "onnxruntime", "f32").calibration
    for threads, created in ((2, "2026-01-01T00:00:00+00:00"), (4, "2026-02-01T00:00:00+00:00")):
        own = replace(shipped, device="raspberry-pi-5", threads=threads, created=created)
        write_calibration(own, tmp_path / "calibrations")
    board = {"on": "raspberry-pi-5", "runtime": "onnxruntime"}
    assert ask("resnet50", threads=2, **board).basis().calibration.threads == 2
    assert ask("resnet50", **board).basis().calibration.threads == 4
    assert any("with 3 of 4 cores" in note for note in ask("resnet50", threads=3, **board).basis().notes)
    newest = choose_calibration("raspberry-pi-5", "onnxruntime", "f32", folders=(tmp_path / "calibrations",))
    told = refusal("resnet50", threads=3, calibration=newest.calibration, **board)
    assert told == "The calibration of 2026-02-01 was made with 4 threads, and is not used for 3."


@pytest.mark.parametrize(
    ("model", "asked", "told"),
    [
        ("resnet50", {**BOARD, "threads": 5}, "raspberry-pi-5 has 4 cores: 5 threads would share them."),
        ("resnet50", {"on": "nvidia-h200", "threads": 2}, "and nvidia-h200 is a gpu."),
    ],
)
def test_threads_that_nobody_measured_are_refused(model, asked, told):
    assert told in refusal(model, **asked)


# the layout of images


def test_a_layout_is_known_where_published_tables_tell_them_apart():
    card = {"on": "nvidia-rtx-4090", "runtime": "torch-eager", "weights": "f16", "activations": "f16", "batch": 64}
    first, last = (seconds("resnet50", options=Options(layout=layout), **card) for layout in ("nchw", "nhwc"))
    assert first == seconds("resnet50", **card)
    assert last < first
    assert "nothing to it" in refusal("bert-base", options=Options(layout="nhwc"), **card)
    assert "Nothing is known of ncnn" in refusal("resnet50", options=Options(layout="nhwc"), **BOARD)
    with pytest.raises(DomainError, match="nchw or nhwc"):
        Options(layout="hwcn")


def test_a_calibration_of_one_layout_says_nothing_of_another():
    profile = im.predict("resnet50", options=Options(layout="nhwc"), **EAGER)
    assert profile.judged_by.calibration is None
    assert "The calibration of 2026-11-16 was made with images in nchw" in " ".join(profile.provenance.notes)


# the host


def test_a_step_that_waits_for_its_host_takes_as_long_as_the_host_is_slow():
    usual = seconds("resnet50", **EAGER)
    assert seconds("resnet50", options=Options(host_speed=0.5), **EAGER) == pytest.approx(2 * usual, rel=0.02)
    large = {**EAGER, "batch": 128}
    assert seconds("resnet50", options=Options(host_speed=0.5), **large) == seconds("resnet50", **large)


def test_a_launch_takes_a_host_as_long_in_every_format():
    """A host starts the same kernels whatever the numbers in them are: a calibration that says otherwise was made on a
    host that others shared."""
    asked = {"on": "nvidia-h200", "runtime": "torch-eager", "prompt": 16, "generate": 4}
    narrow, wide = (im.predict("qwen2.5-0.5b", weights=form, activations=form, **asked) for form in ("bf16", "f32"))
    for phase in ("prefill", "decode"):
        assert narrow.phase(phase).parts["launch"] == pytest.approx(wide.phase(phase).parts["launch"], rel=0.01)


@pytest.mark.parametrize("runtime", ["torch-compile", "torch-graph", "torch-eager"])
def test_every_part_of_a_generation_on_a_gpu_is_predicted_and_they_add_up(runtime):
    """By the names that a profile measures them under: each stands beside its measurement."""
    asked = {"on": "nvidia-h200", "runtime": runtime, "prompt": 256, "generate": 8}
    profile = im.predict("qwen2.5-0.5b", **asked)
    named = {"prefill": ["write", "launch", "run", "read"], "decode": ["launch", "run", "read", "between"]}
    for name, parts in named.items():
        phase = profile.phase(name)
        assert list(phase.parts) == parts
        assert sum(phase.parts.values()) == pytest.approx(phase.time_s)
    assert list(im.predict("resnet50", **EAGER).phase("forward").parts) == ["launch", "run"]


def test_a_graph_takes_longer_to_launch_the_more_kernels_it_has_and_the_slower_its_host_is():
    asked = {"on": "nvidia-h200", "runtime": "torch-compile", "prompt": 256, "generate": 8}
    half = Options(host_speed=0.5)
    short, long, slow = (
        im.predict(model, options=options, **asked).phase("decode").parts["launch"]
        for model, options in (("qwen2.5-0.5b", Options()), ("llama-3.2-3b", Options()), ("qwen2.5-0.5b", half))
    )
    assert 4.5e-6 < short < long < 1e-4
    assert slow == pytest.approx(2 * short)


def test_the_figure_of_a_host_counts_over_that_of_the_calibration():
    known = eager_calibration(host_call_s=1e-6)
    by_figure = im.predict("resnet50", calibration=known, options=Options(host_call_s=4e-6), **EAGER)
    by_ratio = im.predict("resnet50", calibration=known, options=Options(host_speed=0.5), **EAGER)
    assert by_figure.summary.latency_s == by_ratio.summary.latency_s
    unknown = {"calibration": eager_calibration(), "options": Options(host_call_s=4e-6)}
    assert "was not recorded" in refusal("resnet50", **unknown, **EAGER)
    with pytest.raises(DomainError, match="twice"):
        Options(host_speed=1.0, host_call_s=1e-6)


def test_an_answer_says_which_host_it_assumes():
    def told(**asked):
        notes = im.predict("resnet50", **EAGER, **asked).provenance.notes
        return [note for note in notes if "for the host" in note]

    (assumed,) = told()
    assert "the one that was calibrated on 2026-11-16 (750 ns a call) is assumed" in assumed
    (known,) = told(calibration=eager_calibration(host_call_s=1.6e-6))
    assert "(1.6 µs a call)" in known
    (given,) = told(options=Options(host_speed=0.8))
    assert "0.8 times as fast" in given
    assert told(batch=128) == []


def test_a_host_that_starts_no_kernels_is_refused():
    graph = {**EAGER, "runtime": "torch-graph"}
    assert "changes nothing" in refusal("resnet50", options=Options(host_speed=0.5), **graph)
    assert "changes nothing" in refusal("resnet50", options=Options(host_speed=0.5), **BOARD)


def test_the_host_that_a_run_had_is_taken_without_being_asked():
    def answered(calibration, host_call_s, options=None, **asked):
        question = ask("resnet50", calibration=calibration, options=options, **{**EAGER, **asked})
        return replace(question, host_call_s=host_call_s).answer().summary.latency_s

    known = eager_calibration(host_call_s=1e-6)
    usual = answered(known, None)
    assert answered(known, 4e-6) == seconds("resnet50", calibration=known, options=Options(host_speed=0.5), **EAGER)
    assert answered(known, 2e-6) > usual
    assert answered(known, 2e-6, Options(host_speed=1.0)) == usual, "what is asked for comes before what was there"
    unknown = eager_calibration()
    assert answered(unknown, 2e-6) == answered(unknown, None), "one figure alone compares nothing"
    graph = {"calibration": None, "runtime": "torch-graph"}
    assert answered(host_call_s=2e-6, **graph) == answered(host_call_s=None, **graph), "nor is it refused in a graph"
    moved = replace(ask("resnet50", calibration=known, **EAGER), host_call_s=2e-6).changed("on=nvidia-a100-80gb")
    assert moved.host_call_s is None


def test_what_its_host_took_during_a_run_comes_before_what_it_took_beside_it():
    known = eager_calibration(host_call_s=0.75e-6)
    question = ask("resnet50", calibration=known, **EAGER)

    def answered(**host):
        return replace(question, **host).answer().summary.latency_s

    quiet = answered(host_module_s=14.8e-6)
    assert quiet == pytest.approx(answered(), rel=0.01)
    assert answered(host_module_s=29.6e-6) == pytest.approx(2 * quiet, rel=0.02), (
        "a step that waits waits twice as long"
    )
    assert answered(host_module_s=14.8e-6, host_call_s=3e-6) == quiet
    assert replace(question, host_module_s=1e-5).changed("on=nvidia-a100-80gb").host_module_s is None


def test_a_prompt_takes_an_eager_host_longer_than_a_token():
    shipped = im.predict("smollm2-135m", on="nvidia-h200", runtime="torch-eager", prompt=16, generate=4)
    ratio = shipped.phase("prefill").parts["launch"] / shipped.phase("decode").parts["launch"]
    assert ratio == pytest.approx(1.13, rel=0.02)


def test_this_machines_devices_have_this_machines_host(monkeypatch):
    cards = {"local:gpu": device("nvidia-h200"), "nvidia-h200": device("nvidia-h200")}
    monkeypatch.setattr("inferometer.predict.ask.device_named", lambda name: cards.get(name) or device(name))
    monkeypatch.setattr("inferometer.predict.ask._host_here", lambda: 3e-6)
    assert ask("resnet50", on="local:gpu").host_call_s == 3e-6
    assert ask("resnet50", on="nvidia-h200").host_call_s is None
    assert ask("resnet50", on="raspberry-pi-5").host_call_s is None


def test_the_figure_is_kept_with_a_calibration_and_older_files_are_still_valid(tmp_path):
    path = write_calibration(eager_calibration(host_call_s=1.5e-6), tmp_path)
    assert read_calibration(path).host_call_s == 1.5e-6
    assert eager_calibration().host_call_s is None


# the doors


def by_command(model, asked, *flags):
    words = [text for name, value in asked.items() for text in (f"--{name}", str(value))]
    ran = CliRunner().invoke(command, [model, *words, *flags, "--format", "json"], catch_exceptions=False)
    return json.loads(ran.stdout)["summary"]["latency_s"]


def by_sweep(model, asked, options=None, **axes):
    lists = {"devices": asked["on"], "runtimes": asked["runtime"], "weights": asked.get("weights")}
    rows = im.sweep(models=model, activations=asked.get("activations"), options=options, **lists, **axes)
    return next(iter(rows.records()))


def test_every_door_gives_the_same_answer(tmp_path):
    card = {"on": "nvidia-t4", "runtime": "torch-eager", "weights": "f16", "activations": "f16"}
    cases = [
        (BOARD, {"threads": 2}, None, ["--threads", "2"], {"threads": 2}),
        (card, {}, Options(layout="nhwc"), ["--layout", "nhwc"], {"layout": "nhwc"}),
        (EAGER, {}, Options(host_speed=0.7), ["--host-speed", "0.7"], {"host_speed": "0.7"}),
    ]
    with hub(tmp_path) as (_, client):
        for asked, axes, options, flags, sent in cases:
            wanted = seconds("resnet50", options=options, **asked, **axes)
            assert wanted != pytest.approx(seconds("resnet50", **asked), rel=0.01)
            assert by_command("resnet50", asked, *flags) == wanted
            row = by_sweep("resnet50", asked, options, **axes)
            assert row["latency_s"] == pytest.approx(wanted, rel=1e-9)
            assert row["threads"] == axes.get("threads")
            body = {"model": "resnet50", "devices": [asked["on"]], **{k: v for k, v in asked.items() if k != "on"}}
            answer = client.post("/api/v1/predict", json={**body, **sent}).json()["answers"][0]
            assert answer["summary"]["latency_s"] == wanted


def test_a_sweep_over_threads_says_where_they_mean_nothing():
    rows = im.sweep(models="resnet50", devices=["raspberry-pi-5", "nvidia-l4"], runtimes="ncnn", threads=[1, 4])
    found = [(row["device"], row["threads"], row["reason"]) for row in rows.records()]
    assert [reason is None for _, _, reason in found] == [True, True, False, False]
    assert [threads for _, threads, _ in found] == [1, 4, 1, 4]
    assert "Threads are those of an engine on a CPU" in found[2][2]


@pytest.mark.parametrize("runtime", ["litert", "mnn", "onnxruntime", "openvino"])
def test_fewer_threads_than_anybody_measured_are_a_share_of_the_cores_and_it_says_so(runtime):
    def asked(threads):
        return ask("resnet50", on="raspberry-pi-5", runtime=runtime, threads=threads, calibrated=False).answer()

    times = [asked(threads).summary.latency_s for threads in (1, 2, 4, None)]
    assert times == sorted(times, reverse=True)
    assert times[2] == times[3] < times[0]
    assert any(f"Nobody measured {runtime} with 1 of 4 cores" in note for note in asked(1).provenance.notes)
    assert not any("Nobody measured" in note for note in asked(4).provenance.notes)


@pytest.mark.parametrize("runtime", ["llamacpp", "openvino", "torch-eager"])
@pytest.mark.parametrize("name", ["amd-epyc-9654", "aws-graviton4", "intel-xeon-8480plus", "apple-m2-ultra-cpu"])
def test_tokens_a_second_grow_with_threads_and_one_core_never_has_all_of_a_servers_memory(name, runtime):
    cores = device(name).core_groups[0].count  # beyond them, even parts wait for the slower cores
    bandwidth = device(name).memory.bandwidth_bytes_per_s.value
    counts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count < cores] + [cores]

    def seconds_a_token(threads):
        asked = {"on": name, "runtime": runtime, "threads": threads, "calibrated": False}
        return ask("llama-3.2-1b", weights="f16", **asked).answer().summary.tpot_s

    times = [seconds_a_token(count) for count in counts]
    assert times == sorted(times, reverse=True)
    assert times[0] > 1.5 * times[-1]
    assert 2 * 1.2e9 / times[0] < 0.5 * bandwidth  # bytes a token over seconds: what one core reads


def test_a_model_of_halves_is_answered_in_the_floats_that_an_engine_runs_on_a_cpu_and_by_its_calibration():
    """ONNX Runtime and LiteRT have no kernels of bf16 on a CPU: the default was one that no calibration is of."""
    for name in ("intel-emerald-rapids-1-vcpu", "arm-neoverse-n1-2-cores"):
        for runtime in ("onnxruntime", "litert", "torch-eager"):
            question = ask("qwen3-0.6b", on=name, runtime=runtime)
            assert question.precision.weights == question.precision.activations == "f32"
            assert question.basis().calibration is not None, (name, runtime)
            assert ask("qwen3-0.6b", on=name, runtime=runtime, weights="bf16").precision.weights == "bf16"
    assert ask("qwen3-0.6b", on="nvidia-l4", runtime="onnxruntime").precision.weights != "f32"


@pytest.mark.parametrize(
    "runtime", ["llamacpp", "vllm", "sglang", "ctranslate2", "onnxruntime-genai", "openvino-genai"]
)
def test_an_engine_of_texts_answers_for_no_network_of_pictures(runtime):
    device = "intel-arc-b580" if runtime == "openvino-genai" else "nvidia-a10"
    assert "resnet50 is none" in refusal("resnet50", on=device, runtime=runtime)


@pytest.mark.parametrize("runtime", ["llamacpp", "vllm", "ctranslate2"])
def test_an_engine_of_texts_runs_encoders_of_them(runtime):
    assert seconds("bge-m3", on="nvidia-a10", runtime=runtime, prompt=32) > 0


@pytest.fixture
def gpu_server(monkeypatch):
    """A machine with an H200, as it was recorded: its best unit is not the one that most engines run on."""
    host = detect_host(load_machine(HOSTS / "cloud-vm-h200"))
    monkeypatch.setattr("inferometer.known.machine.local.detect_host", lambda: host)
    monkeypatch.setattr("inferometer.predict.ask.roof_for", lambda _: None)  # its CPU is not here to be measured


@pytest.mark.parametrize("runtime", sorted(name for name, each in engines().items() if each.calibrated))
def test_what_is_asked_of_this_machine_is_what_is_calibrated_on_it(gpu_server, runtime):
    asked = ask("smollm2-135m", on="local", runtime=runtime).device
    assert asked == device_to_calibrate("local", None, runtime)
    assert asked.unit == ("gpu" if "gpu" in engines()[runtime].calibrated else "cpu")


def test_this_machine_is_its_gpu_where_no_engine_says_otherwise(gpu_server):
    assert ask("smollm2-135m", on="local").device.name == "nvidia-h200"
    assert ask("smollm2-135m", on="local", runtime="vllm").device.name == "nvidia-h200"
    assert ask("smollm2-135m", on="local:gpu", runtime="llamacpp").device.name == "nvidia-h200"
    assert device_for("local", ["llamacpp", "torch-eager"]).name == "nvidia-h200"


@pytest.mark.parametrize("weights", ["q4_0", "q8_0"])
def test_what_a_cpu_takes_to_choose_a_token_is_a_part_of_its_step(weights):
    asked = {
        "on": "intel-emerald-rapids-1-vcpu",
        "runtime": "llamacpp",
        "weights": weights,
        "prompt": 16,
        "generate": 8,
    }
    decode = im.predict("smollm2-135m", **asked).phase("decode")
    assert decode.parts["sample"] == pytest.approx(49_152 * 3.3e-9)
    assert sum(decode.parts.values()) == pytest.approx(decode.time_s)
    assert sum(op.time_s for op in decode.ops) <= decode.time_s
    together = im.predict("smollm2-135m", **asked, batch=3)
    for phase in (together.phase("prefill"), together.phase("decode")):
        assert phase.parts["sample"] == pytest.approx(3 * 49_152 * 3.3e-9)  # one sequence after the other
        assert sum(phase.parts.values()) == pytest.approx(phase.time_s)


@pytest.mark.parametrize(
    ("model", "engine", "told"),
    [("jamba-v0.1", "torch-graph", True), ("jamba-v0.1", "torch-compile", True), ("jamba-v0.1", "torch-eager", False),
     ("jamba-v0.1", "vllm", False), ("smollm2-135m", "torch-graph", False), ("mamba-130m", "openvino-genai", False)],
)  # fmt: skip
def test_recurrent_layers_are_said_to_be_launched_where_no_cache_holds_their_state(model, engine, told):
    """A hybrid's decode step took nine times what was predicted, and nothing said that it is not captured."""
    notes = engine_notes(ask(model, on="nvidia-h200", runtime=engine))
    assert any("recurrent state" in note for note in notes) is told


@pytest.mark.parametrize(("weights", "told"), [(None, True), ("i8", False), ("i4", False)])
def test_weights_that_an_engine_makes_by_itself_are_told_of_where_nobody_asked_for_them(weights, told):
    notes = engine_notes(ask("llama-3.2-1b", on="rockchip-rk3588-npu", runtime="rkllm", weights=weights))
    said = "Weights are in i8, as models are made for Rockchip RKLLM; --weights asks for others."
    assert notes == ((said,) if told else ())
