"""What transformers calls the modules of networks whose ops have torchvision's names here.

Each is a map from an op's name to the module's, with `{}` for the index within a stage in both. It stands in the
graph's metadata as `modules`: checkpoints and profilers of transformers' classes speak of those.
"""

from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.family import class_name

_BARE = ("Model", "Backbone")  # classes without a classifier, whose modules have no module around them


def resnet_modules(config: Config, *, stages: int, convolutions: int) -> dict[str, str]:
    """`convolutions` are those of a residual block: two, or three in a bottleneck."""
    body = _body(config, "resnet.")
    stem = f"{body}embedder.embedder"
    names = {"maxpool": f"{body}embedder.pooler", "avgpool": f"{body}pooler", "fc": "classifier.1"}
    names |= _normed("conv1", "bn1", stem)
    for stage in range(stages):
        ours, theirs = f"layer{stage + 1}.{{}}", f"{body}encoder.stages.{stage}.layers.{{}}"
        for number in range(convolutions):
            names |= _normed(f"{ours}.conv{number + 1}", f"{ours}.bn{number + 1}", f"{theirs}.layer.{number}")
        names |= _normed(f"{ours}.downsample.0", f"{ours}.downsample.1", f"{theirs}.shortcut")
        names[f"{ours}.relu"] = f"{theirs}.activation"
    return names


def _normed(convolution: str, norm: str, module: str) -> dict[str, str]:
    return {
        convolution: f"{module}.convolution", norm: f"{module}.normalization", f"{norm}.act": f"{module}.activation"
    }  # fmt: skip


def convnext_modules(config: Config, *, stages: int) -> dict[str, str]:
    body = _body(config, "convnext.")
    names = {
        "features.0.0": f"{body}embeddings.patch_embeddings", "features.0.1": f"{body}embeddings.layernorm",
        "classifier.0": f"{body}layernorm", "classifier.2": "classifier",
    }  # fmt: skip
    parts = {
        "block.0": "dwconv", "block.2": "layernorm", "block.3": "pwconv1", "block.4": "act", "block.5": "pwconv2",
        "layer_scale": "layer_scale_parameter",
    }  # fmt: skip
    for stage in range(stages):
        theirs = f"{body}encoder.stages.{stage}"
        names |= {f"features.{2 * stage}.{part}": f"{theirs}.downsampling_layer.{part}" for part in (0, 1) if stage}
        names |= {f"features.{2 * stage + 1}.{{}}.{op}": f"{theirs}.layers.{{}}.{part}" for op, part in parts.items()}
    return names


def is_bare(config: Config) -> bool:
    return class_name(config).endswith(_BARE)


def _body(config: Config, prefix: str) -> str:
    return "" if is_bare(config) else prefix
