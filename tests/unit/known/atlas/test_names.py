"""Names as others spell them → the one that `predict` is asked for."""

import tomllib

import pytest

from inferometer.formats.networks.named import net_named
from inferometer.formats.networks.shipped import is_shipped, networks
from inferometer.known.atlas.names import DATA, match_model, normal_form, same_models, timm_names, untuned
from inferometer.known.atlas.sources.timm import current_name
from inferometer.known.zoo import models

# What torch.export does not take, or what was not traced yet
NO_GRAPH = {"mask2former-swin-tiny", "mobilebert-uncased", "gemma-3n-e2b", "gemma-3n-e4b", "yolo26n-cls", "yolo26n-obb"}


@pytest.mark.parametrize(
    "name",
    ["meta-llama/Llama-3.2-1B-Instruct", "llama_v3_2_1b_instruct", "Llama-v3.2-1B-Instruct", "Llama 3.2:1b",
     "Llama-3.2-1B-Instruct-Q4_K_M", "unsloth/Llama-3.2-1B-Instruct-GGUF"],
)  # fmt: skip
def test_many_spellings_are_one_model(name):
    assert match_model(name) == "llama-3.2-1b"


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("LLaMA v3 70B", "llama-3-70b"),
        ("meta-llama/Meta-Llama-3-70B", "llama-3-70b"),
        ("Qwen3-30B-A3B-UD-Q4_K_XL", "qwen3-30b-a3b"),
        ("qwen2.5-coder-0.5b-instruct", "qwen2.5-0.5b"),
        ("Mistral-Small-3.1-24B-Instruct-2503-UD-Q4_K_XL", "mistral-small-24b"),
        ("gpt-oss 20B MXFP4 MoE", "gpt-oss-20b"),
        ("llama-2-7b.Q4_0", "llama-2-7b"),
        ("mistral-7b-instruct-v0.2", "mistral-7b"),
        ("DeepSeek R1 14b", "qwen2.5-14b"),
        ("nvidia/DeepSeek-R1-NVFP4", "deepseek-v3"),
        ("phi-3-mini-4k-instruct", "phi-3-mini"),
        ("YOLOv8n", "yolov8n"),
        ("yolo_v8n", "yolov8n"),
        ("ResNet-50", "timm:resnet50"),
        ("resnet50", "timm:resnet50"),
        ("mobilenet_v2", "timm:mobilenetv2_100"),
        ("efficientvit_b2", "timm:efficientvit_b2"),
        ("EfficientNet-B4", "timm:efficientnet_b4"),
        ("timm:anything_at_all", "timm:anything_at_all"),
    ],
)
def test_a_name_finds_its_model(name, model):
    assert match_model(name) == model


@pytest.mark.parametrize("name", ["mediapipe_pose", "Kimi-K9", "7b", "", "resnet", "Llama-9-8B", "qwen2.5-0.6b"])
def test_a_name_that_nobody_knows_stays_unknown(name):
    assert match_model(name) is None


def test_a_name_may_mean_something_in_one_list_only():
    assert match_model("vision_transformer", dataset="ncnn") == "timm:vit_base_patch16_384"
    assert match_model("vision_transformer") is None


@pytest.mark.parametrize(
    ("dataset", "name", "model"),
    [
        ("qai-hub", "yolov8_seg", "yolov8n-seg"),
        ("qai-hub", "yolov11_det", "yolo11n"),
        ("qai-hub", "yolov7", "yolov7-tiny"),
        ("qai-hub", "resnet_2plus1d", "r2plus1d-18"),
        ("qai-hub", "quicksrnetlarge", "quicksrnet-large"),
        ("qai-hub", "fastsam_x", "fastsam-x"),
        ("hailo", "yolov11m", "yolo11m"),
        ("hailo", "yolov5l_seg", "yolov5l-seg"),
        ("hailo", "yolov5m", "yolov5m-3.0"),
        ("hailo", "yolov5m_6.1", "yolov5m"),
        ("hailo", "clip_vit_b_16_text_encoder", "clip-vit-b-16/text_encoder"),
        ("rknn", "yolov8m-seg", "yolov8m-seg"),
        ("rknn", "yolov7", "yolov7"),
        ("openvino", "resnet-50-pytorch", "timm:resnet50"),
        ("openvino", "yolo-v4-tf", "yolov4"),
        ("openvino", "ssd-resnet34-1200", "ssd-resnet34"),
        ("qai-hub", "resnet34_ssd1200", "ssd-resnet34"),
        ("hailo", "yolov8m_pose", "yolov8m-pose"),
        ("qai-hub", "ffnet_78s", "ffnet-78s"),
        ("qai-hub", "wideresnet50", "timm:wide_resnet50_2"),
        ("ultralytics", "YOLO11l", "yolo11l"),
        ("mlperf", "retinanet", "retinanet-resnext50"),
        ("openvino-llm", "glm-4-9b-chat-hf", "glm-4-9b"),
        ("openvino-llm", "qwen-7b-chat-gptq", "qwen1.5-7b"),
        ("trtllm", "LLaMA v4 Maverick", "llama-4-maverick"),
        ("llamacpp", "Llama-4-Scout-17B-16E-Instruct-UD-Q4_K_XL", "llama-4-scout"),
        ("aiconfigurator", "moonshotai/Kimi-K2.5", "kimi-k2"),
    ],
)
def test_each_table_has_its_own_spellings(dataset, name, model):
    assert match_model(name, dataset=dataset) == model


@pytest.mark.parametrize(
    ("name", "part", "model"),
    [
        ("opus_mt_en_de", "decoder", "opus-mt-en-de/decoder"),
        ("whisper_small_quantized", "encoder", "whisper-small/encoder"),
        ("whisper_large_v3_turbo_quantized", "decoder", "whisper-large-v3-turbo/decoder"),
        ("stable_diffusion_v2_1", "unet", "stable-diffusion-v2-1/unet"),
        ("mediapipe_face", "face_detector", "mediapipe-face/face_detector"),
        ("owlv2", "vision", "owlv2-base-patch16/vision"),
        ("yolov8_det", "a_part_of_tomorrow", "yolov8n"),
        ("a_model_of_tomorrow", "encoder", None),
    ],
)
def test_a_part_has_a_graph_of_its_own_or_its_models_name(name, part, model):
    assert match_model(name, dataset="qai-hub", part=part) == model


def test_sizes_that_differ_by_a_point_differ():
    assert normal_form("qwen2.5-1.5b") == normal_form("Qwen2_5-1_5B") != normal_form("qwen2.5-15b")


def test_what_was_done_to_the_weights_is_no_part_of_a_name():
    assert untuned("gemma-4-26B-A4B-it-UD-Q8_K_XL") == "gemma-4-26B-A4B"


def test_a_catalog_row_and_timms_model_of_the_same_architecture_are_one():
    assert {"resnet50", "timm:resnet50", "torchvision:resnet50"} <= same_models("resnet50")
    assert same_models("timm:resnet50") == same_models("resnet50")
    assert same_models("llama-3.2-1b") == {"llama-3.2-1b"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("gluon_resnet50_v1d", "resnet50d"), ("tv_resnet34", "resnet34"), ("mnasnet_a1", "semnasnet_100"),
     ("jx_nest_base", "nest_base_jx"), ("mobilevitv2_150_384_in22ft1k", "mobilevitv2_150"),
     ("tf_efficientnet_b4_ns", "tf_efficientnet_b4"), ("xcit_tiny_12_p8_384_dist", "xcit_tiny_12_p8_384"),
     ("resnetv2_50x1_bitm_in21k", "resnetv2_50x1_bit"), ("vit_base_patch16_224_miil_in21k", "vit_base_patch16_224"),
     ("vit_large_patch14_224_clip_laion2b", "vit_large_patch14_clip_224"), ("tresnet_m_448", "tresnet_m"),
     ("resnet50.a1_in1k", "resnet50"), ("a_model_of_tomorrow", "a_model_of_tomorrow")],
)  # fmt: skip
def test_timms_older_names_are_todays(old, new):
    assert current_name(old) == new


def _targets(table):
    for value in table.values():
        yield from _targets(value) if isinstance(value, dict) else (value,)


def test_what_an_alias_means_has_a_graph():
    aliases = tomllib.loads((DATA / "aliases.toml").read_text(encoding="utf-8"))["models"]
    assert {target for target in _targets(aliases) if not _has_graph(target)} <= NO_GRAPH


def _has_graph(target):
    if ":" in target:
        return is_shipped(target)
    return match_model(target) is not None or net_named(f"{target}/encoder") is not None


def test_timms_networks_have_graphs_where_timm_is_not_installed():
    no_networks = {"pretrained_cfg_for_features"}
    named = {name for name in timm_names() if not name.startswith(("_", "test_", "naflexvit"))} - no_networks
    assert len(named - set(networks("timm"))) <= 0.1 * len(named)


def test_every_name_of_the_catalog_is_found_by_each_of_its_spellings():
    """Also where the normal form has another normal form: `T2V-1.3B` has a v that stands before a number."""
    for name, row in models().items():
        for spelling in (name, *row.aliases):
            assert match_model(spelling) is not None, (name, spelling)
    assert match_model("Wan-AI/Wan2.1-T2V-1.3B-Diffusers") == "wan2.1-1.3b"
