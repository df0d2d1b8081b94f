"""The rows of families: every one is used, whole, and known by its classes."""

import json
import re
import tomllib
from dataclasses import fields
from importlib.resources import files
from pathlib import Path

from fakes.every import every
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.family import Family, families, family_of
from inferometer.formats.huggingface.graph import graph_from_config
from inferometer.formats.huggingface.layer import Norms
from unit.formats.huggingface.examples import LLAMA

ROWS = {
    name: row
    for entry in (files("inferometer.formats.huggingface") / "families").iterdir()
    if entry.name.endswith(".toml")
    for name, row in tomllib.loads(entry.read_text(encoding="utf-8")).items()
}
RECORDED = Path(__file__).parents[3] / "data" / "huggingface"
WANTED = """
    llama mistral qwen2 qwen3 phi3 phi gemma2 gemma3_text gpt2 gpt_neox opt falcon mixtral qwen3_moe deepseek_v2
    deepseek_v3 gpt_oss mamba mamba2 jamba bert roberta distilbert modernbert t5 whisper vit swin siglip clip llava
    qwen2_vl unet_2d_condition dit flux sd3 resnet mobilenet_v2 mobilenet_v3 efficientnet convnext vgg alexnet densenet
    squeezenet yolov8
""".split()


def test_the_families_that_were_promised_are_there():
    assert set(WANTED) <= set(families())


def test_rows_have_only_known_features():
    known = {entry.name for entry in fields(Family)} | {"like", "variants", "abstract"}
    for name, row in ROWS.items():
        assert set(row) <= known, name
        for variant in row.get("variants", ()):
            assert set(variant) <= known | {"when"}, name


def test_every_row_is_like_a_row_that_exists():
    assert all(row["like"] in ROWS for row in ROWS.values() if "like" in row)


def test_abstract_rows_are_parts_of_others_and_no_architecture():
    abstract = {name for name, row in ROWS.items() if row.get("abstract")}
    parts = {part for row in ROWS.values() for part in row.get("parts", {}).values()}
    assert abstract <= parts
    assert not abstract & set(families())


def test_class_names_are_not_claimed_twice():
    claimed = [start for row in ROWS.values() for start in row.get("classes", ())]
    assert len(claimed) == len(set(claimed))


@every(sorted(RECORDED.glob("*.json")), name=lambda path: path.stem)
def test_a_familys_class_names_lead_to_it(path):
    if path.stem == "cases":
        return
    config = json.loads(path.read_text())["config"]
    if "model_type" not in config:
        return
    asked = {key: value for key, value in config.items() if key != "model_type"}
    assert family_of(Config(name="x", values=asked)).name == config["model_type"]


def test_norm_slots_are_those_a_layer_has():
    slots = {slot for slot in Norms.__slots__ if slot not in {"kind", "bias"}}
    used = {name for row in ROWS.values() for name in row.get("names", {}) if re.match(r"(pre|post|sum|scale)_", name)}
    assert used <= slots


def test_a_variant_holds_only_where_the_config_says_so():
    plain = graph_from_config(LLAMA, name="x")
    biased = graph_from_config({**LLAMA, "attention_bias": True}, name="x")
    assert biased.parameters - plain.parameters == 4 * (64 + 16 + 16 + 64)


def test_reading_does_not_depend_on_what_was_read_before():
    first = graph_from_config(LLAMA, name="x")
    graph_from_config({**LLAMA, "attention_bias": True, "mlp_bias": True}, name="x")
    assert graph_from_config(LLAMA, name="x") == first
