"""Engine rows, the order they are chosen in, and descriptors that plug-ins bring."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from inferometer import predict
from inferometer.core.engine import EngineDescriptor, RuntimeEffects
from inferometer.core.errors import CatalogError, DomainError, PluginError, UnknownNameError
from inferometer.core.graph import Graph, Op, Tensor
from inferometer.known import device, devices, engines
from inferometer.known.engines import (
    default_runtime,
    engine,
    engine_or_ideal,
    engine_ranks,
    known_engine,
    ranked_engines,
    read_engine,
    require_effects,
    runtime_effects,
    serving_engine,
)
from inferometer.known.files import rows_of
from inferometer.predict.ask import model_graph
from unit.predict.decoders import LLAMA_3_1_8B

H200, PI, MAC = device("nvidia-h200"), device("raspberry-pi-5"), device("apple-m2-ultra-gpu")
PICTURES = Graph(name="pictures", blocks=())


def row(folder, text, name="abacus"):
    file = folder / "abacus.toml"
    file.write_text(text, encoding="utf-8")
    return read_engine(file, name)


def test_an_unknown_runtime_is_an_error_that_names_the_known_ones():
    with pytest.raises(UnknownNameError, match="Did you mean torch-compile") as caught:
        runtime_effects("torch-compiled")
    assert "Known: aitemplate, coreml, ctranslate2, deepspeed-mii, edgetpu, esp-dl" in str(caught.value)
    with pytest.raises(DomainError, match="neither"):
        require_effects(3)
    assert known_engine("torch-compiled") is None
    assert engine_or_ideal("torch-compiled") == engine_or_ideal(None) == engine("ideal")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('title = "A"\nopenss = ["x"]', "abacus.toml: engines.abacus.openss: is not a known key. Did you mean opens?"),
        ('title = "A"\nfusion = "some"', "engines.abacus.fusion: is 'some'. Known: none, chains, epilogues."),
        ('title = "A"\nfirst_for = ["npu"]', "engines.abacus.first_for: is 'npu'. Known: gpu, accelerator, tokens"),
        ('title = "A"\ncalibrated = { cpu = "dice" }', "engines.abacus.calibrated.cpu: is 'dice'. Known: files"),
        ('title = "A"\ngpu = { kernel = "1 us" }', "has no source"),
        *(
            (f'title = "A"\narm = {{ {key} = "x" }}', f"engines.abacus.arm.{key}: is not a known key.")
            for key in ("name", "overheads", "sets", "opens")
        ),
        ('opens = ["x"]', "title is missing"),
    ],
)
def test_a_row_that_does_not_hold_says_where(tmp_path, text, words):
    with pytest.raises(CatalogError) as caught:
        row(tmp_path, f"[engines.abacus]\n{text}\n")
    assert words in str(caught.value)


def test_a_file_without_the_row_says_what_it_has(tmp_path):
    with pytest.raises(UnknownNameError, match="It has: abacus"):
        row(tmp_path, '[engines.abacus]\ntitle = "A"\n', name="soroban")


# which engine answers where none is named


@pytest.mark.parametrize(
    ("on", "makes_tokens", "ranked"),
    [
        (H200, True, ("vllm", "torch-compile", "onnxruntime", "llamacpp", "torch-eager", "openvino")),
        (PI, True, ("llamacpp", "onnxruntime", "torch-eager", "openvino")),
        (PI, False, ("onnxruntime", "llamacpp", "torch-eager", "openvino")),
        (MAC, True, ("llamacpp", "onnxruntime", "torch-eager", "openvino")),
        (replace(PI, unit="npu"), True, ("ideal", "onnxruntime", "llamacpp", "torch-eager", "openvino")),
    ],
)
def test_the_order_of_engines_depends_on_the_device_and_the_kind_of_model(on, makes_tokens, ranked):
    assert ranked_engines(on, makes_tokens=makes_tokens) == ranked
    assert ranked_engines(on, makes_tokens=makes_tokens, format="config") == ranked  # its weights are made up


@pytest.mark.parametrize(
    ("file", "on_a_cpu", "on_a_gpu"),
    [
        ("onnx", ("onnxruntime", "openvino"), ("onnxruntime", "openvino")),
        ("gguf", ("llamacpp",), ("llamacpp",)),
        ("tflite", ("litert", "openvino"), ("litert", "openvino")),
        ("pt2", ("torch-eager", "torch-compile", "torch-graph"), ("torch-compile", "torch-eager", "torch-graph")),
        ("safetensors", ("torch-eager", "torch-compile"), ("torch-compile", "torch-eager")),
    ],
)
def test_engines_that_open_a_file_come_first_and_among_them_those_whose_own_format_it_is(file, on_a_cpu, on_a_gpu):
    assert ranked_engines(PI, makes_tokens=True, format=file)[: len(on_a_cpu)] == on_a_cpu
    assert ranked_engines(H200, makes_tokens=True, format=file)[: len(on_a_gpu)] == on_a_gpu


def test_what_runs_on_a_microcontroller_says_so():
    """vLLM was answered for on a chip of 1 MB."""
    bare = [each for each in devices().values() if each.kind == "microcontroller" and each.unit == "cpu"]
    assert len(bare) > 5
    for each in bare:
        running = {name for name, engine in engines.engines().items() if engine.runs_on(each)}
        assert running - {"stedgeai", "esp-dl"} == {"litert", "executorch", "ideal"}
        assert default_runtime(each, PICTURES) in running - {"ideal"}
        assert default_runtime(each, LLAMA_3_1_8B) == "ideal"


def test_the_default_runtime_is_the_first_of_them():
    assert default_runtime(H200) == "vllm"
    assert default_runtime(PI, LLAMA_3_1_8B) == "llamacpp"
    assert default_runtime(PI, PICTURES) == "onnxruntime"
    assert default_runtime(PI, model_graph("whisper-base")) == "whispercpp", "llama.cpp hears nothing"
    assert default_runtime(PI, replace(model_graph("whisper-base"), metadata={"format": "onnx"})) != "whispercpp"
    assert default_runtime(PI, replace(PICTURES, metadata={"format": "tflite"})) == "litert"
    assert default_runtime(H200, replace(LLAMA_3_1_8B, metadata={"format": "gguf"})) == "llamacpp"
    assert all(default_runtime(each) in engines.engines() for each in devices().values())


@pytest.mark.parametrize(
    ("name", "network", "language"),
    [
        ("rockchip-rk3588-npu", "rknn", "rkllm"), ("hailo-8", "hailort", "hailort"),
        ("nvidia-jetson-agx-orin-64gb", "tensorrt", "llamacpp"), ("nvidia-jetson-nano-cpu", "onnxruntime", "llamacpp"),
        ("qualcomm-snapdragon-8-elite-npu", "qnn", "genie"), ("apple-m4-ane", "coreml", "coreml"),
        ("google-coral-edge-tpu", "edgetpu", "ideal"), ("intel-core-ultra-7-155h-npu", "openvino", "openvino-genai"),
        ("aws-inferentia2", "neuron", "neuron"), ("intel-gaudi-3", "habana", "habana"),
        ("st-stm32h7a3", "stedgeai", "ideal"), ("google-tpu-v5e", "xla", "vllm"),
        ("samsung-exynos-2400-npu", "enn", "ideal"),
    ],
)  # fmt: skip
def test_a_device_is_asked_about_with_the_engine_that_its_owners_run(name, network, language):
    assert default_runtime(device(name), PICTURES) == network
    assert default_runtime(device(name), LLAMA_3_1_8B) == language


def test_an_onnx_file_is_converted_by_the_vendor_s_tool_and_another_file_is_run_by_what_opens_it():
    jetson = device("nvidia-jetson-agx-orin-64gb")
    assert default_runtime(jetson, replace(PICTURES, metadata={"format": "onnx"})) == "tensorrt"
    assert default_runtime(jetson, replace(PICTURES, metadata={"format": "tflite"})) == "litert"


def test_every_default_engine_runs_on_its_device_and_takes_the_model():
    for each in devices().values():
        for graph, takes in ((PICTURES, {"all", "arrays"}), (LLAMA_3_1_8B, {"all", "tokens", "texts"})):
            chosen = engine(default_runtime(each, graph))
            assert chosen.runs_on(each), (each.name, chosen.name)
            assert chosen.takes in takes, (each.name, chosen.name)


def test_every_vendor_s_engine_is_known_to_run_on_a_device_of_the_catalog_and_not_on_all():
    for described in engines.engines().values():
        if described.only_on and described.name != "ideal":
            homes = [each for each in devices().values() if described.runs_on(each)]
            assert homes, described.name
            assert len(homes) < len(devices())


# plug-ins


@pytest.fixture
def plugin(monkeypatch):
    """Stands for an installed package with the runtime `abacus`; called with what its `engine` is."""

    def install(given):
        runtime = SimpleNamespace(name="abacus") if given is None else SimpleNamespace(name="abacus", engine=given)
        listed = SimpleNamespace(name="abacus", package="abacus-runtime")
        monkeypatch.setattr(engines, "listed", lambda _: (listed,))
        monkeypatch.setattr(engines, "load_listed", lambda _: runtime)

    caches = (engines.known_engine, engines.engines, engines._ranked, engines._usual)
    for each in caches:
        each.cache_clear()
    engines._defaults.clear()
    yield install
    for each in caches:
        each.cache_clear()
    engines._defaults.clear()


OWN = EngineDescriptor(effects=RuntimeEffects(name="abacus", title="Abacus"), opens=("beads",), packages=("abacus",))


def test_a_plug_in_brings_its_descriptor_or_the_path_of_one(plugin, tmp_path):
    file = tmp_path / "abacus.toml"
    file.write_text('[engines.abacus]\ntitle = "Abacus"\nopens = ["beads"]\npackages = ["abacus"]\n')
    for given in (OWN, file, str(file)):
        plugin(given)
        engines.known_engine.cache_clear()
        assert engine("abacus") == OWN
    assert engines.engines()["abacus"] == OWN
    assert ranked_engines(PI, makes_tokens=True, format="beads")[0] == "abacus"
    assert "abacus" not in ranked_engines(PI, makes_tokens=True)


def test_a_plug_in_without_a_descriptor_is_said_to_have_none(plugin):
    plugin(None)
    with pytest.raises(UnknownNameError, match=r"no engine descriptor named 'abacus'.*run, and not predicted"):
        engine("abacus")
    assert "abacus" not in engines.engines()


def test_a_descriptor_of_another_engine_is_refused(plugin):
    plugin(replace(OWN, effects=replace(OWN.effects, name="soroban")))
    with pytest.raises(PluginError, match="'abacus' of package abacus-runtime"):
        engine("abacus")
    plugin(42)
    with pytest.raises(PluginError, match="42"):
        engine("abacus")
    assert "abacus" not in engines.engines()


def test_the_few_lines_that_rank_an_engine_say_what_its_row_says():
    for rank in engine_ranks():
        described = engine(rank.name)
        assert (rank.opens, rank.rank, rank.first_for) == (described.opens, described.rank, described.first_for)
    assert {rank.name for rank in engine_ranks()} == set(rows_of("engines").by_name)


def test_who_serves_where_nobody_is_named_is_the_one_engine_that_says_so():
    assert serving_engine() == "vllm"
    assert [each.name for each in engine_ranks() if "served" in each.first_for] == ["vllm"]


def test_each_table_of_numbers_is_read_as_its_own(tmp_path):
    names = ("passes", "calls", "lone", "tokenwise", "scores", "reference")
    tables = "".join(f"[engines.abacus.{name}]\nlinear = {2 + place}\n" for place, name in enumerate(names))
    head = '[sources.s]\ntitle = "S"\ndate = "2026"\norigin = "measured"\n[engines.abacus]\ntitle = "A"\nsource = "s"\n'
    effects = row(tmp_path, head + tables).effects
    assert {name: dict(getattr(effects, name)) for name in names} == {
        name: {"linear": 2 + place} for place, name in enumerate(names)
    }


def test_a_row_may_say_what_an_engine_does_on_one_instruction_set(tmp_path):
    found = row(
        tmp_path,
        """[sources.s]
title = "S"
date = "2026"
origin = "measured"
[engines.abacus]
title = "A"
source = "s"
fused = ["norm"]
cpu = { kernel = "1 us", step = "9 us" }
[engines.abacus.arithmetic]
i8 = ["i8"]
[engines.abacus.arm]
fused = []
widened = { i8 = "f16" }
cpu = { kernel = "5 us" }
arithmetic = { "i8/f32" = ["f16"] }
""",
    ).effects
    there, here = found.at(PI), found.at(device("intel-emerald-rapids-1-vcpu"))
    assert (here.fused, dict(here.widened), here.on("cpu").kernel_s.value) == ({"norm"}, {}, 1e-6)
    assert (there.fused, dict(there.widened), there.on("cpu").kernel_s.value) == (set(), {"i8": "f16"}, 5e-6)
    assert there.on("cpu").step_s.value == 9e-6
    assert there.rule("linear", "i8") == ("i8",)
    assert there.rule("linear", "i8/f32") == ("f16",)
    assert found.at(H200) is found.at(MAC) is here is found


@pytest.mark.parametrize(
    ("name", "merged", "apart"),
    [
        ("ncnn", ("relu", "relu6", "clip", "leaky_relu", "sigmoid", "mish"), ("hardswish", "swish", "silu", "tanh")),
        ("mnn", ("relu", "relu6", "clip"), ("leaky_relu", "sigmoid", "hardswish", "silu")),
    ],
)
def test_an_engine_merges_the_activations_that_its_converter_does(name, merged, apart):
    """And only into products: an activation behind a pool or a sum is a layer of its own."""
    effects = runtime_effects(name)
    ops = {word: Op(name=word, kind="activation", attributes={"function": word}) for word in (*merged, *apart)}
    convolution, linear, pool = (Op(name=kind, kind=kind) for kind in ("convolution", "linear", "pool"))
    for product in (convolution, linear):
        assert [word for word in ops if effects.fuses(ops[word], product)] == [*merged]
    assert not any(effects.fuses(op, pool) for op in ops.values())
    norm = Op(name="bn", kind="norm", attributes={"norm": "batch"})
    assert (effects.fuses(norm, convolution), effects.fuses(norm, pool)) == (True, False)


@pytest.mark.parametrize(("function", "of_floats", "of_bytes"), [("sigmoid", True, False), ("relu", True, True)])
def test_a_convolution_of_bytes_merges_less(function, of_floats, of_bytes):
    """QLinearConv limits its result and no more."""
    effects = runtime_effects("onnxruntime")
    op = Op(name="a", kind="activation", attributes={"function": function})
    for name, merged in (("f32", of_floats), ("i8", of_bytes)):
        reads = Tensor(name="x", shape=(1, 8, 4, 4), dtype=name)
        assert effects.fuses(op, Op(name="c", kind="convolution", inputs=(reads,))) is merged


def test_the_default_engine_of_every_device_runs_there_and_runs_the_model():
    for each in devices().values():
        for name in ("resnet50", "llama-3.2-1b", "whisper-tiny", "t5-small"):
            graph = model_graph(name)
            usual = engine(default_runtime(each, graph))
            assert usual.name == "ideal" or usual.runs_on(each), (each.name, name, usual.name)
            assert graph.architecture not in usual.lacks, (each.name, name, usual.name)
            assert not (name.startswith("whisper") and usual.takes == "tokens"), (each.name, usual.name)


def test_a_gpu_before_volta_is_answered_by_no_engine_whose_kernels_need_a_newer_one():
    pascal, turing = device("nvidia-gtx-1080-ti"), device("nvidia-t4")
    assert default_runtime(pascal, model_graph("llama-3.2-1b")) == "llamacpp"
    assert default_runtime(turing, model_graph("llama-3.2-1b")) == "vllm"
    for name in ("torch-compile", "vllm", "sglang", "trtllm"):
        assert not engine(name).runs_on(pascal)
    with pytest.raises(DomainError, match="pascal is too old for it"):
        predict("resnet50", on="nvidia-gtx-1080-ti", runtime="torch-compile")
