"""Every option of a prediction changes the answer, or is refused: none is accepted and ignored."""

from dataclasses import fields, replace

import pytest

from fakes.every import every
from inferometer.core.errors import DomainError
from inferometer.core.workload import MOST, Parallel, Precision, Workload
from inferometer.formats.networks.named import shipped_nets
from inferometer.known import devices, link
from inferometer.known.atlas.looking import atlas
from inferometer.known.engines import engines, known_engine
from inferometer.predict.applicable import meaningful
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.flags import FLAGS, options_from
from inferometer.predict.options import EnergyCosts, Hosting, Options, Speculative
from inferometer.predict.sweep import sweep
from unit.predict.machines import machine

VISION, LANGUAGE, ENCODER = "resnet50", "llama-3.2-1b", "bert-base"


def given(name):
    """One option, as `ask` takes it."""
    options = {
        "chunk": lambda: Options(chunk=64),
        "cached_prefix": lambda: Options(cached_prefix=64),
        "speculative": lambda: Options(
            speculative=Speculative(draft=model_graph("smollm2-135m"), length=4, acceptance=0.7)
        ),
    }
    if name in options:
        return {"options": options[name]()}
    if name == "prefill_on":
        return {"prefill_on": "nvidia-l4", "options": Options(link=link("infiniband-ndr"))}
    values = {"weights": "i8", "activations": "i8", "kv": "i8", "batch": 4, "prompt": 64, "generate": 8, "context": 700,
              "image": 96, "tp": 2, "pp": 2, "ep": 2, "dp": 2}  # fmt: skip
    return {name: values[name], **({"batch": 2} if name == "dp" else {})}


OPTIONS = ("weights", "activations", "kv", "batch", "prompt", "generate", "context", "image", "tp", "pp", "ep", "dp",
           "chunk", "cached_prefix", "speculative", "prefill_on")  # fmt: skip
REFUSED = {
    VISION: {"kv", "prompt", "generate", "context", "tp", "ep", "chunk", "cached_prefix", "speculative", "prefill_on"},
    LANGUAGE: {"image", "ep"},
    ENCODER: {"kv", "generate", "context", "image", "ep", "chunk", "cached_prefix", "speculative", "prefill_on"},
}


@pytest.mark.parametrize("model", REFUSED)
@pytest.mark.parametrize("option", OPTIONS)
def test_an_option_changes_the_answer_or_is_refused(model, option):
    def answered(**more):
        found = ask(model, on="nvidia-h200", calibrated=False, **more).answer()
        return found.summary, [phase.time_s for phase in found.phases]

    if option in REFUSED[model]:
        with pytest.raises(DomainError) as caught:
            answered(**given(option))
        assert caught.value.remedy or option == "ep"
    else:
        plain = {"batch": 2} if option == "dp" else {}
        assert answered(**given(option)) != answered(**plain)


@every(name for name, described in engines().items() if described.takes in {"all", "tokens"})
def test_blocks_of_gguf_files_run_where_such_files_open(runtime):
    opens = engines()[runtime].opens
    homes = {name: found for name, found in devices().items() if engines()[runtime].runs_on(found)}
    on = "nvidia-h200" if "nvidia-h200" in homes else next(iter(homes))
    for name in ("weights", "kv"):
        question = ask(LANGUAGE, on=on, runtime=runtime, calibrated=False, **{name: "q8_0"})
        rows = sweep(LANGUAGE, on, runtimes=runtime, calibrated=False, **{name: "q8_0"})
        if opens and "gguf" not in opens:
            with pytest.raises(DomainError, match=r"q8_0 is a format of GGUF files.*--runtime llamacpp"):
                question.answer()
            assert "q8_0 is a format of GGUF files" in rows["reason"][0]
        else:
            assert question.answer().summary.tpot_s == pytest.approx(float(rows["tpot_s"][0]))


@pytest.mark.parametrize(
    ("model", "on", "runtime", "said"),
    [
        (VISION, "hailo-8", "rknn", "Rockchip RKNN does not run on Hailo-8: it is for Rockchip npu."),
        (VISION, "nvidia-jetson-nano-cpu", "tensorrt", "it is for NVIDIA gpu."),
        (VISION, "qualcomm-snapdragon-8-gen-3-gpu", "torch-eager", "Intel gpu and apple-m gpu and intel-gaudi npu"),
        (VISION, "apple-a17-pro-gpu", "torch-graph", "it is for NVIDIA gpu and AMD gpu and Intel gpu"),
        (VISION, "rockchip-rk3588-gpu", "tensorflow", "TensorFlow does not run on"),
        (VISION, "nvidia-h200", "openvino", "it is for any cpu and Intel gpu and Intel npu."),
        (VISION, "nvidia-h200", "whispercpp", "whisper.cpp runs models of speech, and resnet50 is none."),
        (VISION, "rockchip-rk3588-npu", "rkllm", "runs models that write tokens, and resnet50 is none."),
        (LANGUAGE, "google-coral-edge-tpu", "edgetpu", "runs networks that answer in one pass, and llama-3.2-1b is"),
    ],
)
def test_an_engine_is_refused_where_it_does_not_run_with_one_that_does(model, on, runtime, said):
    question = ask(model, on=on, runtime=runtime)
    for verb in (question.answer, question.fit):
        with pytest.raises(DomainError, match=r"Use --runtime \w+.*, or leave --runtime out") as caught:
            verb()
        assert said in str(caught.value)
    rows = sweep(models=[question.graph], devices=[question.device], runtimes=[runtime])
    assert said in str(rows["reason"][0])


def test_no_engine_is_refused_on_a_device_that_it_was_measured_on():
    table, known = atlas(), devices()
    for runtime, on in {*zip(table["engine"], table["device"], strict=True)}:
        described = known_engine(runtime) if runtime else None
        if described is not None and on in known:
            assert described.runs_on(known[on]), (runtime, on)


def test_where_no_engine_is_named_the_format_of_the_weights_chooses_it_in_every_door():
    for weights, runtime in (("q4_0", "llamacpp"), ("i4", "vllm")):
        assert ask(LANGUAGE, on="nvidia-h200", weights=weights).runtime_name == runtime
    rows = sweep(LANGUAGE, "nvidia-h200", weights=["q4_0", "i4"], calibrated=False)
    assert [str(name) for name in rows["runtime"]] == ["llamacpp", "vllm"]


@pytest.mark.parametrize("size", ["prompt", "generate", "context", "image"])
def test_a_sweep_refuses_sizes_that_none_of_its_models_has(size):
    models = [VISION] if size != "image" else [LANGUAGE]
    with pytest.raises(DomainError, match=f"{size} means nothing to {models[0]}"):
        sweep(models, "nvidia-h200", **{size: [64, 128]})
    assert len(sweep([VISION, LANGUAGE], "nvidia-h200", calibrated=False, **{size: [64]})) == 2


def test_names_are_known_in_any_case():
    one = ask("LLaMA-3.2-1B", on="NVIDIA-H200", runtime="Torch-Compile", weights="INT8", kv="F16")
    other = ask("llama-3.2-1b", on="nvidia-h200", runtime="torch-compile", weights="i8", kv="f16")
    assert replace(one.answer(), provenance=None) == replace(other.answer(), provenance=None)  # which says when


def test_what_a_profile_or_a_form_states_for_all_models_is_left_out_where_it_means_nothing():
    stated = Workload(
        batch=2, prompt=64, generate=8, context=700, image=96, precision=Precision(weights="i8", kv="f16")
    )
    kept = {name: meaningful(stated, model_graph(name)) for name in (VISION, LANGUAGE, ENCODER)}
    assert kept[VISION] == Workload(batch=2, image=96, precision=Precision(weights="i8"))
    assert kept[LANGUAGE] == replace(stated, image=None)
    assert kept[ENCODER] == Workload(batch=2, prompt=64, precision=Precision(weights="i8"))


# numbers that are slips of the pen


NUMBERS = [name for name, flag in FLAGS.items() if flag.takes in {"whole", "number", "share"}]


@pytest.mark.parametrize("name", NUMBERS)
def test_every_number_among_the_options_has_a_limit_and_says_it(name):
    flags = {name: 10**23, **({"draft": LANGUAGE} if name in {"draft_length", "acceptance"} else {})}
    with pytest.raises(DomainError, match=r"must be a number from .* to .*, and is 1000"):
        options_from(flags)


@pytest.mark.parametrize("name", [field.name for field in fields(Parallel)] + [*MOST])
def test_every_size_of_a_workload_has_a_limit_in_every_door(name):
    with pytest.raises(DomainError, match=r"must be a whole number from [01] to [\d,]+, and is 1000"):
        ask(VISION if name == "image" else LANGUAGE, on="nvidia-h200", **{name: 10**23})
    if name in MOST:
        with pytest.raises(DomainError, match=f"from [01] to {MOST[name]:,}, and one is"):
            sweep(VISION if name == "image" else LANGUAGE, "nvidia-h200", **{name: [MOST[name] + 1]})


@pytest.mark.parametrize("name", ["battery", "storage", "tokenise", "sampling", "detokenise"])
def test_a_quantity_without_its_unit_is_refused(name):
    with pytest.raises(DomainError, match=r"--\w+: '50' has no unit\. Accepted: "):
        options_from({name: "50"})


def test_an_image_of_a_few_pixels_is_refused_with_the_least_that_is_not():
    with pytest.raises(DomainError, match=r"leaves nothing for resnet50 to look at.*--image 16 or more, up to 16384"):
        ask(VISION, on="nvidia-l4", image=15).answer()
    assert ask(VISION, on="nvidia-l4", image=16).answer().summary.latency_s


@pytest.mark.parametrize(("runtime", "times"), [("llamacpp", 1), ("vllm", 4)])
def test_a_window_may_be_filled_and_not_overrun(runtime, times):
    def asked(**sizes):
        question = ask("tinyllama-1.1b", on="nvidia-h200", runtime=runtime, calibrated=False, **sizes)
        profile = question.answer()
        assert question.fit().fits  # memory is asked about in the same window
        return profile

    limit = times * 2048
    assert asked(prompt=limit, generate=1).summary.ttft_s  # the token that is written is not read again
    assert asked(context=limit).summary.tpot_s
    for sizes in ({"prompt": limit, "generate": 2}, {"prompt": limit + 1, "generate": 1}, {"context": limit + 1}):
        with pytest.raises(DomainError, match=f"has a window of 2048 tokens.*would be {limit + 1}"):
            asked(**sizes)


@pytest.mark.parametrize("model", [*[name for name in shipped_nets() if "/" not in name][::6], "yolos-tiny"])
def test_a_batch_is_counted_or_refused_in_every_door(model):
    question = ask(model, on="nvidia-h200", runtime="ideal", batch=64, calibrated=False)
    rows = sweep(model, "nvidia-h200", runtimes="ideal", batch=[1, 64], calibrated=False)
    if "batch" in question.graph.symbols:
        summary, column = question.answer().summary, "latency_s" if rows["tpot_s"][0] != rows["tpot_s"][0] else "e2e_s"
        assert getattr(summary, column) == pytest.approx(float(rows[column][1]))
        assert rows[column][1] > rows[column][0]
    else:
        with pytest.raises(DomainError, match=f"The batch of {model} is fixed, so a batch of 64"):
            question.answer()
        assert "is fixed" in rows["reason"][1]


def test_a_few_numbers_in_double_precision_need_no_peak_and_a_model_in_it_does():
    assert ask("rtdetr-r50", on="nvidia-t4", runtime="torch-eager").answer().summary.latency_s
    with pytest.raises(DomainError, match="no peak for f64"):
        ask(VISION, on="nvidia-t4", runtime="torch-eager", weights="f64", activations="f64").answer()


def test_what_needs_a_power_is_refused_where_none_is_known_or_two_machines_share_a_request():
    graph, dark = model_graph(LANGUAGE), machine(power_w=None)
    counted = EnergyCosts(joules_per_flop=1e-12, joules_per_byte=1e-11)
    for options, says in (
        (Options(cooling_w=30.0), "so neither is the speed that its cooling allows"),
        (Options(place=Hosting(grid="eu")), "so neither is the carbon of its energy"),
        (Options(cooling_w=30.0, energy=counted), "so neither is the speed that its cooling allows"),
        (Options(place=Hosting(grid="eu"), energy=counted), None),
        (Options(), None),
    ):
        if says is None:
            ask(graph, on=dark, options=options)
        else:
            with pytest.raises(DomainError, match=says):
                ask(graph, on=dark, options=options)
        ask(graph, on=machine(), options=options)
    for options in (Options(cooling_w=30.0), Options(energy=counted), Options(place=Hosting(grid="eu"))):
        with pytest.raises(DomainError, match="Energy is not predicted where two machines share a request"):
            ask(graph, on=machine(), prefill_on=machine(), options=options)
