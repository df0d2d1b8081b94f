"""Record how many operations the products of each tiny model take when transformers or diffusers really runs it.

Run in an environment with torch and the libraries: `python record_products.py [case …]`. Each case of `cases.json` is
built with random weights and run once at sizes that divide nothing; `torch.utils.flop_counter` counts the matrix
products and convolutions that it dispatches. `huggingface_products.json` has the sizes and the counts, by what they
are of: linear layers, convolutions, attention's two products.

Left out are models whose library computes something else than a server would: experts one by one with data-dependent
sizes, and scans as products of a whole chunk.
"""

import json
import sys
from importlib.metadata import version

import torch  # noqa: TID251 - a script that runs it
from record import HERE, build
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: TID251 - as above
from torch.utils.flop_counter import FlopCounterMode  # noqa: TID251 - as above

BATCH, QUERY = 2, 5
IMAGE_TOKEN = 90
# Swin: no multiple of its window in any stage. Qwen2.5-VL: two windows a side, without a rest.
IMAGES = {"swin": 72, "qwen2_vl": 84, "qwen2_5_vl": 224}
LATENT = {"unet_sd15": 24, "unet_sdxl": 20, "dit": 8, "dit_v0": 8, "sd3": 10, "sd3_normed": 10, "sd3_dual": 10}
KINDS = {
    "linear": ("mm", "addmm"),
    "convolution": ("convolution",),
    "attention": ("bmm", "baddbmm"),
}


def main(arguments):
    cases = json.loads((HERE / "cases.json").read_text())
    path = HERE.parent / "huggingface_products.json"  # every JSON file beside this one is a case
    kept = json.loads(path.read_text()) if path.exists() else {"recorded_with": {}, "cases": {}}
    for name in arguments or cases:
        case = cases[name]
        try:
            model = eager(case)
            sizes, inputs = inputs_of(name, case, model)
        except LookupError:
            continue
        kept["cases"][name] = {"sizes": sizes, **counted(model, inputs)}
        kept["recorded_with"] |= {lib: version(lib) for lib in ("torch", case.get("library", "transformers"))}
    lines = ",\n  ".join(f"{json.dumps(name)}: {json.dumps(row)}" for name, row in sorted(kept["cases"].items()))
    path.write_text(f'{{\n "recorded_with": {json.dumps(kept["recorded_with"])},\n "cases": {{\n  {lines}\n }}\n}}\n')


def eager(case):
    """Attention as two products: fused kernels are not all counted."""
    library = case.get("library", "transformers")
    more = {"attn_implementation": "eager"} if library == "transformers" else {}
    if case["config"].get("model_type", "").startswith("qwen2"):
        more["image_token_id"] = IMAGE_TOKEN
    return build(library, case["class"], {**case["config"], **more}).eval()


def counted(model, inputs):
    with FlopCounterMode(display=False) as counter, torch.no_grad(), sdpa_kernel(SDPBackend.MATH):
        model(**inputs)
    counts = {str(op).rpartition(".")[2]: flops for op, flops in counter.get_flop_counts()["Global"].items()}
    unknown = set(counts) - {op for ops in KINDS.values() for op in ops}
    if unknown:
        raise ValueError(unknown)
    return {
        kind: sum(counts.get(op, 0) for op in ops) for kind, ops in KINDS.items() if any(op in counts for op in ops)
    }


def inputs_of(name, case, model):
    config = case["config"]
    kind = config.get("model_type", case["class"])
    if kind in {
        "mamba2",
        "jamba",
        "mixtral",
        "qwen2_moe",
        "qwen3_moe",
        "deepseek_v2",
        "deepseek_v3",
        "gpt_oss",
        "mamba",
    }:
        raise LookupError(kind)
    if case.get("library") == "diffusers":
        return diffusion(name, config)
    ids = torch.ones(BATCH, QUERY, dtype=torch.long)
    sizes = text(QUERY)
    if kind in {"qwen2_vl", "qwen2_5_vl"}:
        return packed_images(name, config)
    if kind in {"llava", "gemma3"}:
        return images_in_text(config, model)
    if kind in {"clip", "siglip"}:
        image = config["vision_config"]["image_size"]
        pixels = torch.randn(BATCH, 3, image, image)
        return {**sizes, "image": image}, {"input_ids": ids, "pixel_values": pixels}
    if model.main_input_name == "pixel_values":
        image = IMAGES.get(name, config["image_size"])
        return {"batch": BATCH, "image": image}, {"pixel_values": torch.randn(BATCH, 3, image, image)}
    if model.main_input_name == "input_features":
        frames = 2 * config["max_source_positions"]
        features = torch.randn(BATCH, config["num_mel_bins"], frames)
        return {**sizes, "frames": frames, "encoder": frames // 2}, {
            "input_features": features,
            "decoder_input_ids": ids,
        }
    if kind in {"t5", "mt5"} and "Encoder" not in case["class"]:
        told = torch.ones(BATCH, 7, dtype=torch.long)
        return {**sizes, "encoder": 7}, {"input_ids": told, "decoder_input_ids": ids}
    if "Encoder" in case["class"]:
        return sizes | {"encoder": QUERY}, {"input_ids": ids}
    if case["class"].endswith("SequenceClassification"):
        model.config.pad_token_id = 0
    return sizes, {"input_ids": ids}


def packed_images(name, config):
    """One image a sequence, cut into patches; its tokens stand in the text."""
    image, vision = IMAGES[name], config["vision_config"]
    side = image // vision["patch_size"]
    each = vision["in_channels"] * vision["temporal_patch_size"] * vision["patch_size"] ** 2
    seen = (side // vision["spatial_merge_size"]) ** 2
    ids = torch.full((BATCH, seen + QUERY), 1, dtype=torch.long)
    ids[:, :seen] = IMAGE_TOKEN
    inputs = {
        "input_ids": ids,
        "pixel_values": torch.randn(BATCH * side * side, each),
        "image_grid_thw": torch.tensor([[1, side, side]] * BATCH),
        "mm_token_type_ids": (ids == IMAGE_TOKEN).long(),
    }
    return text(seen + QUERY) | {"image": image}, inputs


def images_in_text(config, model):
    image = config["vision_config"]["image_size"]
    seen = model.config.mm_tokens_per_image if config["model_type"] == "gemma3" else (image // 8) ** 2
    ids = torch.ones(BATCH, seen + QUERY, dtype=torch.long)
    ids[:, :seen] = model.config.image_token_id
    pixels = torch.randn(BATCH, 3, image, image)
    return text(seen + QUERY) | {"image": image}, {"input_ids": ids, "pixel_values": pixels}


def text(query):
    return {"batch": BATCH, "query": query, "context": 0, "logits": query}


def diffusion(name, config):
    """A latent, a step of time, and what the text encoders say."""
    side, channels, words = LATENT.get(name, 6), config["in_channels"], torch.randn(BATCH, 7, 20)
    latent, steps = torch.randn(BATCH, channels, side, side), torch.ones(BATCH, dtype=torch.long)
    sizes = {"batch": BATCH, "image": 8 * side, "encoder": 7}
    if name.startswith("unet"):
        added = {"text_embeds": torch.randn(BATCH, 12), "time_ids": torch.ones(BATCH, 6)}
        more = {"added_cond_kwargs": added} if "addition_embed_type" in config else {}
        return sizes, {"sample": latent, "timestep": steps, "encoder_hidden_states": words, **more}
    if name.startswith("dit"):
        return sizes, {"hidden_states": latent, "timestep": steps, "class_labels": steps}
    pooled = {"pooled_projections": torch.randn(BATCH, 18), "encoder_hidden_states": words}
    if name.startswith("sd3"):
        return sizes, {"hidden_states": latent, "timestep": steps, **pooled}
    packed = {"hidden_states": torch.randn(BATCH, side * side, channels), "timestep": steps.float()}
    places = {"img_ids": torch.zeros(side * side, 3), "txt_ids": torch.zeros(7, 3)}
    guided = {"guidance": steps.float()} if config.get("guidance_embeds") else {}
    return sizes | {"image": 16 * side}, {**packed, **pooled, **places, **guided}


if __name__ == "__main__":
    main(sys.argv[1:])
