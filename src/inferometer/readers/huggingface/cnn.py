"""Convolutional classifiers: ResNet, ConvNeXt, DenseNet, VGG, AlexNet, SqueezeNet, in torchvision's module names."""

from inferometer.core.graph import Block, Op, Tensor
from inferometer.readers.huggingface.body import Body, ending_in, function_of, labels_of
from inferometer.readers.huggingface.config import MANY_LAYERS, Config
from inferometer.readers.huggingface.family import Family
from inferometer.readers.huggingface.parts import (
    BATCH,
    IMAGE,
    Filter,
    activation,
    add,
    channel_norm,
    channels_of,
    convolution,
    copy,
    linear,
    multiply,
    norm,
    output,
    pool,
    square,
    tensor,
    view,
    weight,
)

__all__ = [
    "classified",
    "conv_bn",
    "convnext",
    "densenet",
    "fully_connected",
    "pixels_of",
    "plain",
    "resnet",
    "squeezenet",
]


def pixels_of(config: Config) -> Tensor:
    return tensor("pixel_values", BATCH, config.whole("num_channels"), IMAGE, IMAGE)


def classified(config: Config, blocks: list[Block], pixels: Tensor, *, layers: int) -> Body:
    """A network that ends in its last block."""
    return Body(
        blocks=tuple(blocks),
        inputs=(pixels,),
        outputs=(output(blocks[-1].ops),),
        metadata={"layers": layers, "default_sizes": {"image": config.whole("image_size")}},
    )


def conv_bn(names: tuple[str, str], x: Tensor, shape: Filter, function: str = "") -> list[Op]:
    """A convolution without bias, a batch norm, and an activation if any. `names` of convolution and norm."""
    conv, bn = names
    ops = [convolution(conv, x, shape, conv)]
    ops.append(channel_norm(bn, output(ops), "batch", bn))
    if function:
        ops.append(activation(f"{bn}.act", output(ops), function_of(function)))
    return ops


def resnet(config: Config) -> Body:
    """Stages of residual blocks; the first of a stage may halve the plane, the others are equal."""
    if config.text("layer_type") not in {"basic", "bottleneck"}:
        raise config.error("layer_type", "must be basic or bottleneck")
    function, pixels = config.text("hidden_act"), pixels_of(config)
    stem = conv_bn(("conv1", "bn1"), pixels, square(config.whole("embedding_size"), 7, stride=2), function)
    stem.append(pool("maxpool", output(stem), "max", (3, 2, 1)))
    blocks, x, stages = [Block(name="stem", ops=tuple(stem))], output(stem), _stages(config)
    for stage, (features, depth) in enumerate(stages):
        stride = 2 if stage or config.flag("downsample_in_first_stage") else 1
        name = f"layer{stage + 1}"
        first = _residual(config, f"{name}.{{}}", x, features, stride)
        x = tensor(f"{name}.hidden", *output(first).shape)
        blocks.append(Block(name=name, ops=ending_in(first, x.name)))
        if depth > 1:
            rest = _residual(config, f"{name}.{{}}", x, features, 1)
            blocks.append(Block(name=name, ops=ending_in(rest, x.name), count=depth - 1, first=1))
    blocks.append(Block(name="head", ops=_pooled_head(config, x, "fc")))
    return classified(config, blocks, pixels, layers=sum(depth for _, depth in stages))


def _stages(config: Config) -> list[tuple[int, int]]:
    """Width and depth of each stage."""
    widths, depths = config.wholes("hidden_sizes"), config.wholes("depths")
    if len(widths) != len(depths):
        raise config.error("depths", f"has {len(depths)} entries for {len(widths)} stages")
    return list(zip(widths, depths, strict=True))


def _residual(config: Config, at: str, x: Tensor, features: int, stride: int) -> list[Op]:
    function = config.text("hidden_act")
    if config.text("layer_type") == "bottleneck":
        ops = _bottleneck(config, at, x, features, stride)
    else:
        ops = conv_bn((f"{at}.conv1", f"{at}.bn1"), x, square(features, 3, stride=stride), function)
        ops += conv_bn((f"{at}.conv2", f"{at}.bn2"), output(ops), square(features, 3))
    inner = output(ops)
    if stride != 1 or channels_of(x) != features:
        names = (f"{at}.downsample.0", f"{at}.downsample.1")
        ops += conv_bn(names, x, square(features, 1, stride=stride))
        x = output(ops)
    joined = add(f"{at}.add", inner, x)
    return [*ops, joined, activation(f"{at}.relu", output(joined), function_of(function))]


def _bottleneck(config: Config, at: str, x: Tensor, features: int, stride: int) -> list[Op]:
    """1 × 1 to a quarter, 3 × 3, 1 × 1 back. The stride is in the 3 × 3 unless the config says otherwise."""
    if features % 4:
        raise config.error("hidden_sizes", f"has {features}, which is not a multiple of four")
    function, narrow = config.text("hidden_act"), features // 4
    early = stride if config.flag("downsample_in_bottleneck") else 1
    ops = conv_bn((f"{at}.conv1", f"{at}.bn1"), x, square(narrow, 1, stride=early), function)
    ops += conv_bn((f"{at}.conv2", f"{at}.bn2"), output(ops), square(narrow, 3, stride=stride // early), function)
    return [*ops, *conv_bn((f"{at}.conv3", f"{at}.bn3"), output(ops), square(features, 1))]


def _pooled_head(config: Config, x: Tensor, module: str) -> tuple[Op, ...]:
    pooled = pool("avgpool", x, "average")
    return pooled, linear(module, output(pooled), labels_of(config), module, bias=True)


def convnext(config: Config) -> Body:
    """Depthwise 7 × 7, norm, a wide pointwise MLP and a learned scale; 2 × 2 convolutions between stages."""
    pixels, stages, blocks = pixels_of(config), _stages(config), list[Block]()
    size, x = config.whole("patch_size"), pixels
    for stage, (features, depth) in enumerate(stages):
        at, name = f"features.{2 * stage}", f"features.{2 * stage + 1}"
        if stage:
            ops = [channel_norm(f"{at}.0", x, "layer", f"{at}.0")]
            halve = square(features, 2, stride=2, padding=0)
            ops.append(convolution(f"{at}.1", output(ops), halve, f"{at}.1", bias=True))
        else:
            patch = square(features, size, stride=size, padding=0)
            ops = [convolution(f"{at}.0", x, patch, f"{at}.0", bias=True)]
            ops.append(channel_norm(f"{at}.1", output(ops), "layer", f"{at}.1"))
        x = tensor(f"{name}.hidden", *output(ops).shape)
        blocks.append(Block(name=at, ops=ending_in(ops, x.name)))
        blocks.append(Block(name=name, ops=_next_block(config, f"{name}.{{}}", x), count=depth))
    pooled = pool("avgpool", x, "average")
    normed = norm("classifier.0", output(pooled), "layer", "classifier.0", bias=True)
    last = linear("classifier.2", output(normed), labels_of(config), "classifier.2", bias=True)
    blocks.append(Block(name="head", ops=(pooled, normed, last)))
    return classified(config, blocks, pixels, layers=sum(depth for _, depth in stages))


def _next_block(config: Config, at: str, x: Tensor) -> tuple[Op, ...]:
    features, inside = channels_of(x), f"{at}.block"
    conv = convolution(f"{inside}.0", x, square(features, 7, groups=features), f"{inside}.0", bias=True)
    turned = copy(f"{inside}.1", "transpose", (output(conv),), BATCH, *x.shape[2:], features)
    ops = [conv, turned, norm(f"{inside}.2", output(turned), "layer", f"{inside}.2", bias=True)]
    ops.append(linear(f"{inside}.3", output(ops), 4 * features, f"{inside}.3", bias=True))
    ops.append(activation(f"{inside}.4", output(ops), function_of(config.text("hidden_act"))))
    ops.append(linear(f"{inside}.5", output(ops), features, f"{inside}.5", bias=True))
    ops.append(copy(f"{inside}.6", "transpose", (output(ops),), *x.shape))
    ops.append(multiply(f"{at}.layer_scale", output(ops), weights=(weight(f"{at}.layer_scale", features, 1, 1),)))
    return (*ops, add(f"{at}.add", x, output(ops), out=x.name))


def densenet(config: Config) -> Body:
    """Every layer reads the outputs of all before it; a transition halves width and plane."""
    depths, pixels, function = config.wholes("block_config"), pixels_of(config), config.text("hidden_act")
    if sum(depths) > MANY_LAYERS:
        raise config.error("block_config", f"has more than {MANY_LAYERS} layers")
    first = square(config.whole("num_init_features"), 7, stride=2)
    stem = conv_bn(("features.conv0", "features.norm0"), pixels, first, function)
    stem.append(pool("features.pool0", output(stem), "max", (3, 2, 1)))
    blocks, x = [Block(name="stem", ops=tuple(stem))], output(stem)
    for stage, depth in enumerate(depths, start=1):
        for number in range(1, depth + 1):
            ops = _dense_layer(config, f"features.denseblock{stage}.denselayer{number}", x)
            blocks.append(Block(name=f"denseblock{stage}", ops=tuple(ops)))
            x = output(ops)
        if stage < len(depths):
            at = f"features.transition{stage}"
            ops = _preactivated((f"{at}.norm", f"{at}.conv"), x, square(channels_of(x) // 2, 1), function)
            ops.append(pool(f"{at}.pool", output(ops), "average", (2, 2, 0)))
            blocks.append(Block(name=f"transition{stage}", ops=tuple(ops)))
            x = output(ops)
    normed = channel_norm("features.norm5", x, "batch", "features.norm5")
    act = activation("features.relu5", output(normed), function_of(function))
    blocks.append(Block(name="head", ops=(normed, act, *_pooled_head(config, output(act), "classifier"))))
    return classified(config, blocks, pixels, layers=sum(depths))


def _dense_layer(config: Config, at: str, x: Tensor) -> list[Op]:
    growth, function = config.whole("growth_rate"), config.text("hidden_act")
    inner = config.whole("bn_size") * growth
    ops = _preactivated((f"{at}.norm1", f"{at}.conv1"), x, square(inner, 1), function)
    ops += _preactivated((f"{at}.norm2", f"{at}.conv2"), output(ops), square(growth, 3), function)
    shape = (channels_of(x) + growth, *x.shape[2:])
    return [*ops, copy(f"{at}.concat", "concat", (x, output(ops)), BATCH, *shape)]


def _preactivated(names: tuple[str, str], x: Tensor, shape: Filter, function: str) -> list[Op]:
    """Norm and activation come before the convolution. `names` of norm and convolution."""
    bn, conv = names
    normed = channel_norm(bn, x, "batch", bn)
    act = activation(f"{bn}.act", output(normed), function_of(function))
    return [normed, act, convolution(conv, output(act), shape, conv)]


def plain(family: Family, config: Config) -> Body:
    """VGG and AlexNet: convolutions with bias, max pools, fully connected layers. Modules are numbered in order."""
    pixels, function = pixels_of(config), function_of(config.text("hidden_act"))
    ops: list[Op] = []
    number = layers = 0

    def push(op: Op) -> None:
        nonlocal number
        ops.append(op)
        number += 1

    for stage in config.tables("stages"):
        kernel, stride = stage.whole("kernel"), stage.whole("stride", 1)
        pad = stage.whole("padding", (kernel - 1) // 2, least=0)
        shape = square(stage.whole("out"), kernel, stride=stride, padding=pad)
        for _ in range(stage.layers("repeats", 1)):
            x = output(ops) if ops else pixels
            push(convolution(f"features.{number}", x, shape, f"features.{number}", bias=True))
            if config.flag("batch_norm"):
                push(channel_norm(f"features.{number}", output(ops), "batch", f"features.{number}"))
            push(activation(f"features.{number}", output(ops), function))
            layers += 1
        if window := stage.whole("pool", 0, least=0):
            push(pool(f"features.{number}", output(ops), "max", (window, 2, 0)))
    blocks = [Block(name="features", ops=tuple(ops)), _connected(family, config, output(ops))]
    return classified(config, blocks, pixels, layers=layers + len(config.wholes("classifier")))


def _connected(family: Family, config: Config, x: Tensor) -> Block:
    side, channels = config.whole("pool_size"), channels_of(x)
    fixed = tensor("avgpool", BATCH, channels, side, side)
    attributes = {"function": "average", "kernel": None}  # adaptive: whatever comes becomes this size
    adaptive = Op(name="avgpool", kind="pool", inputs=(x,), outputs=(fixed,), attributes=attributes)
    ops = [adaptive, view("flatten", fixed, BATCH, channels * side * side)]
    places, widths = family.names["classifier"].split(), config.wholes("classifier")
    if len(widths) > len(places):
        raise config.error("classifier", f"has {len(widths)} layers, and {family.name} at most {len(places)}")
    return fully_connected(ops, places[-len(widths) :], widths, config.text("hidden_act"))


def fully_connected(ops: list[Op], places: list[str], widths: tuple[int, ...], function: str) -> Block:
    """The head: after `ops` a layer a width, with an activation behind all but the last."""
    for place, features in zip(places, widths, strict=True):
        at = f"classifier.{place}"
        ops.append(linear(at, output(ops), features, at, bias=True))
        if place != places[-1]:
            ops.append(activation(f"{at}.act", output(ops), function_of(function)))
    return Block(name="head", ops=tuple(ops))


def squeezenet(config: Config) -> Body:
    """Fire modules: 1 × 1 to few channels, then 1 × 1 and 3 × 3 side by side. The head is a convolution."""
    pixels, function, stem = pixels_of(config), function_of(config.text("hidden_act")), config.table("stem")
    pad = stem.whole("padding", 0, least=0)
    shape = square(stem.whole("out"), stem.whole("kernel"), stride=stem.whole("stride", 1), padding=pad)
    ops = [convolution("features.0", pixels, shape, "features.0", bias=True)]
    ops.append(activation("features.1", output(ops), function))
    ops.append(pool("features.2", output(ops), "max", (3, 2, 0), ceil=True))
    number, modules = 3, config.tables("blocks")
    for fire in modules:
        ops += _fire(f"features.{number}", output(ops), fire, function)
        number += 1
        if fire.get("pool") is True:
            ops.append(pool(f"features.{number}", output(ops), "max", (3, 2, 0), ceil=True))
            number += 1
    head = convolution("classifier.1", output(ops), square(labels_of(config), 1), "classifier.1", bias=True)
    act = activation("classifier.2", output(head), function)
    ops += [head, act, pool("classifier.3", output(act), "average")]
    return classified(config, [Block(name="features", ops=tuple(ops))], pixels, layers=2 + 2 * len(modules))


def _fire(at: str, x: Tensor, fire: Config, function: str) -> list[Op]:
    narrow = convolution(f"{at}.squeeze", x, square(fire.whole("squeeze"), 1), f"{at}.squeeze", bias=True)
    act = activation(f"{at}.squeeze.act", output(narrow), function)
    ops, wide = [narrow, act], list[Tensor]()
    for key, name, kernel in (("expand1", "expand1x1", 1), ("expand3", "expand3x3", 3)):
        module = f"{at}.{name}"
        ops.append(convolution(module, output(act), square(fire.whole(key), kernel), module, bias=True))
        ops.append(activation(f"{module}.act", output(ops), function))
        wide.append(output(ops))
    both = sum(channels_of(part) for part in wide)
    return [*ops, copy(f"{at}.concat", "concat", tuple(wide), BATCH, both, *wide[0].shape[2:])]
