"""Convolutional classifiers: ResNet, ConvNeXt, DenseNet, VGG, AlexNet, SqueezeNet, in torchvision's module names."""

from collections.abc import Mapping

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.config import MANY_LAYERS, Config
from inferometer.formats.huggingface.family import Family, class_name

# What transformers calls the modules of networks whose ops have torchvision's names here.
#
# Each is a map from an op's name to the module's, with `{}` for the index within a stage in both. It stands in the
# graph's metadata as `modules`: checkpoints and profilers of transformers' classes speak of those.

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


def pixels_of(config: Config) -> Tensor:
    return nn.tensor("pixel_values", nn.BATCH, config.whole("num_channels"), nn.IMAGE, nn.IMAGE)


def classified(
    config: Config, blocks: list[Block], pixels: Tensor, *, layers: int, modules: Mapping[str, str] | None = None
) -> nn.Body:
    """A network that ends in its last block. `modules` are transformers' names of its ops, where it has the network."""
    named = {"modules": modules} if modules else {}
    return nn.Body(
        blocks=tuple(blocks),
        inputs=(pixels,),
        outputs=(nn.output(blocks[-1].ops),),
        metadata={"layers": layers, "default_sizes": {"image": config.whole("image_size")}, **named},
    )


def conv_bn(names: tuple[str, str], x: Tensor, shape: nn.ConvFilter, function: str = "") -> list[Op]:
    """A convolution without bias, a batch norm, and an activation if any. `names` of convolution and norm."""
    conv, bn = names
    ops = [nn.convolution(conv, x, shape, conv)]
    ops.append(nn.channel_norm(bn, ops, "batch", bn))
    if function:
        ops.append(nn.activation(f"{bn}.act", ops, nn.function_of(function)))
    return ops


def resnet(config: Config) -> nn.Body:
    """Stages of residual blocks; the first of a stage may halve the plane, the others are equal."""
    if config.text("layer_type") not in {"basic", "bottleneck"}:
        raise config.error("layer_type", "must be basic or bottleneck")
    function, pixels = config.text("hidden_act"), pixels_of(config)
    stem = conv_bn(("conv1", "bn1"), pixels, nn.square(config.whole("embedding_size"), 7, stride=2), function)
    stem.append(nn.pool("maxpool", stem, "max", (3, 2, 1)))
    blocks, x, stages = [Block(name="stem", ops=tuple(stem))], nn.output(stem), _stages(config)
    for stage, (features, depth) in enumerate(stages):
        stride = 2 if stage or config.flag("downsample_in_first_stage") else 1
        name = f"layer{stage + 1}"
        first = _residual(config, f"{name}.{{}}", x, features, stride)
        x = nn.tensor(f"{name}.hidden", *nn.output(first).shape)
        blocks.append(Block(name=name, ops=nn.ending_in(first, x.name)))
        if depth > 1:
            rest = _residual(config, f"{name}.{{}}", x, features, 1)
            blocks.append(Block(name=name, ops=nn.ending_in(rest, x.name), count=depth - 1, first=1))
    blocks.append(Block(name="head", ops=_pooled_head(config, x, "fc")[: 1 if is_bare(config) else None]))
    inside = 3 if config.text("layer_type") == "bottleneck" else 2
    modules = resnet_modules(config, stages=len(stages), convolutions=inside)
    return classified(config, blocks, pixels, layers=sum(depth for _, depth in stages), modules=modules)


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
        ops = conv_bn((f"{at}.conv1", f"{at}.bn1"), x, nn.square(features, 3, stride=stride), function)
        ops += conv_bn((f"{at}.conv2", f"{at}.bn2"), nn.output(ops), nn.square(features, 3))
    inner = nn.output(ops)
    if stride != 1 or nn.channels_of(x) != features:
        names = (f"{at}.downsample.0", f"{at}.downsample.1")
        ops += conv_bn(names, x, nn.square(features, 1, stride=stride))
        x = nn.output(ops)
    joined = nn.add(f"{at}.add", inner, x)
    return [*ops, joined, nn.activation(f"{at}.relu", joined, nn.function_of(function))]


def _bottleneck(config: Config, at: str, x: Tensor, features: int, stride: int) -> list[Op]:
    """1 × 1 to a quarter, 3 × 3, 1 × 1 back. The stride is in the 3 × 3 unless the config says otherwise.

    With a `group_width` the 3 × 3 is a convolution in groups of so many channels, as in ResNeXt and RegNet.
    """
    if features % 4:
        raise config.error("hidden_sizes", f"has {features}, which is not a multiple of four")
    function, narrow = config.text("hidden_act"), features // 4
    early = stride if config.flag("downsample_in_bottleneck") else 1
    ops = conv_bn((f"{at}.conv1", f"{at}.bn1"), x, nn.square(narrow, 1, stride=early), function)
    groups = narrow // config.whole("group_width", narrow)
    window = nn.square(narrow, 3, stride=stride // early, groups=groups)
    ops += conv_bn((f"{at}.conv2", f"{at}.bn2"), nn.output(ops), window, function)
    return [*ops, *conv_bn((f"{at}.conv3", f"{at}.bn3"), nn.output(ops), nn.square(features, 1))]


def _pooled_head(config: Config, x: Tensor, module: str) -> tuple[Op, ...]:
    pooled = nn.pool("avgpool", x, "average")
    return pooled, nn.linear(module, pooled, nn.labels_of(config), module, bias=True)


def convnext(config: Config) -> nn.Body:
    """Depthwise 7 × 7, norm, a wide pointwise MLP and a learned scale; 2 × 2 convolutions between stages."""
    pixels, stages, blocks = pixels_of(config), _stages(config), list[Block]()
    size, x = config.whole("patch_size"), pixels
    for stage, (features, depth) in enumerate(stages):
        at, name = f"features.{2 * stage}", f"features.{2 * stage + 1}"
        if stage:
            ops = [nn.channel_norm(f"{at}.0", x, "layer", f"{at}.0")]
            halve = nn.square(features, 2, stride=2, padding=0)
            ops.append(nn.convolution(f"{at}.1", ops, halve, f"{at}.1", bias=True))
        else:
            patch = nn.square(features, size, stride=size, padding=0)
            ops = [nn.convolution(f"{at}.0", x, patch, f"{at}.0", bias=True)]
            ops.append(nn.channel_norm(f"{at}.1", ops, "layer", f"{at}.1"))
        x = nn.tensor(f"{name}.hidden", *nn.output(ops).shape)
        blocks.append(Block(name=at, ops=nn.ending_in(ops, x.name)))
        blocks.append(Block(name=name, ops=_next_block(config, f"{name}.{{}}", x), count=depth))
    pooled = nn.pool("avgpool", x, "average")
    normed = nn.norm("classifier.0", pooled, "layer", "classifier.0", bias=True)
    last = nn.linear("classifier.2", normed, nn.labels_of(config), "classifier.2", bias=True)
    blocks.append(Block(name="head", ops=(pooled, normed) if is_bare(config) else (pooled, normed, last)))
    modules = convnext_modules(config, stages=len(stages))
    return classified(config, blocks, pixels, layers=sum(depth for _, depth in stages), modules=modules)


def _next_block(config: Config, at: str, x: Tensor) -> tuple[Op, ...]:
    features, inside = nn.channels_of(x), f"{at}.block"
    conv = nn.convolution(f"{inside}.0", x, nn.square(features, 7, groups=features), f"{inside}.0", bias=True)
    turned = nn.copy(f"{inside}.1", "transpose", (conv,), nn.BATCH, *x.shape[2:], features)
    ops = [conv, turned, nn.norm(f"{inside}.2", turned, "layer", f"{inside}.2", bias=True)]
    ops.append(nn.linear(f"{inside}.3", ops, 4 * features, f"{inside}.3", bias=True))
    ops.append(nn.activation(f"{inside}.4", ops, nn.function_of(config.text("hidden_act"))))
    ops.append(nn.linear(f"{inside}.5", ops, features, f"{inside}.5", bias=True))
    ops.append(nn.copy(f"{inside}.6", "transpose", (ops,), *x.shape))
    ops.append(nn.multiply(f"{at}.layer_scale", ops, weights=(nn.weight(f"{at}.layer_scale", features, 1, 1),)))
    return (*ops, nn.add(f"{at}.add", x, ops, out=x.name))


def densenet(config: Config) -> nn.Body:
    """Every layer reads the outputs of all before it; a transition halves width and plane."""
    depths, pixels, function = config.wholes("block_config"), pixels_of(config), config.text("hidden_act")
    if sum(depths) > MANY_LAYERS:
        raise config.error("block_config", f"has more than {MANY_LAYERS} layers")
    first = nn.square(config.whole("num_init_features"), 7, stride=2)
    stem = conv_bn(("features.conv0", "features.norm0"), pixels, first, function)
    stem.append(nn.pool("features.pool0", stem, "max", (3, 2, 1)))
    blocks, x = [Block(name="stem", ops=tuple(stem))], nn.output(stem)
    for stage, depth in enumerate(depths, start=1):
        for number in range(1, depth + 1):
            ops = _dense_layer(config, f"features.denseblock{stage}.denselayer{number}", x)
            blocks.append(Block(name=f"denseblock{stage}", ops=tuple(ops)))
            x = nn.output(ops)
        if stage < len(depths):
            at = f"features.transition{stage}"
            ops = _preactivated((f"{at}.norm", f"{at}.conv"), x, nn.square(nn.channels_of(x) // 2, 1), function)
            ops.append(nn.pool(f"{at}.pool", ops, "average", (2, 2, 0)))
            blocks.append(Block(name=f"transition{stage}", ops=tuple(ops)))
            x = nn.output(ops)
    normed = nn.channel_norm("features.norm5", x, "batch", "features.norm5")
    act = nn.activation("features.relu5", normed, nn.function_of(function))
    blocks.append(Block(name="head", ops=(normed, act, *_pooled_head(config, nn.output(act), "classifier"))))
    return classified(config, blocks, pixels, layers=sum(depths))


def _dense_layer(config: Config, at: str, x: Tensor) -> list[Op]:
    growth, function = config.whole("growth_rate"), config.text("hidden_act")
    inner = config.whole("bn_size") * growth
    ops = _preactivated((f"{at}.norm1", f"{at}.conv1"), x, nn.square(inner, 1), function)
    ops += _preactivated((f"{at}.norm2", f"{at}.conv2"), nn.output(ops), nn.square(growth, 3), function)
    shape = (nn.channels_of(x) + growth, *x.shape[2:])
    return [*ops, nn.copy(f"{at}.concat", "concat", (x, ops), nn.BATCH, *shape)]


def _preactivated(names: tuple[str, str], x: Tensor, shape: nn.ConvFilter, function: str) -> list[Op]:
    """Norm and activation come before the convolution. `names` of norm and convolution."""
    bn, conv = names
    normed = nn.channel_norm(bn, x, "batch", bn)
    act = nn.activation(f"{bn}.act", normed, nn.function_of(function))
    return [normed, act, nn.convolution(conv, act, shape, conv)]


def plain(family: Family, config: Config) -> nn.Body:
    """VGG and AlexNet: convolutions with bias, max pools, fully connected layers. Modules are numbered in order."""
    pixels, function = pixels_of(config), nn.function_of(config.text("hidden_act"))
    ops: list[Op] = []
    number = layers = 0

    def push(op: Op) -> None:
        nonlocal number
        ops.append(op)
        number += 1

    for stage in config.tables("stages"):
        kernel, stride = stage.whole("kernel"), stage.whole("stride", 1)
        pad = stage.whole("padding", (kernel - 1) // 2, least=0)
        shape = nn.square(stage.whole("out"), kernel, stride=stride, padding=pad)
        for _ in range(stage.layers("repeats", 1)):
            x = nn.output(ops) if ops else pixels
            push(nn.convolution(f"features.{number}", x, shape, f"features.{number}", bias=True))
            if config.flag("batch_norm"):
                push(nn.channel_norm(f"features.{number}", ops, "batch", f"features.{number}"))
            push(nn.activation(f"features.{number}", ops, function))
            layers += 1
        if window := stage.whole("pool", 0, least=0):
            push(nn.pool(f"features.{number}", ops, "max", (window, 2, 0)))
    blocks = [Block(name="features", ops=tuple(ops)), _connected(family, config, nn.output(ops))]
    return classified(config, blocks, pixels, layers=layers + len(config.wholes("classifier")))


def _connected(family: Family, config: Config, x: Tensor) -> Block:
    side, channels = config.whole("pool_size"), nn.channels_of(x)
    fixed = nn.tensor("avgpool", nn.BATCH, channels, side, side)
    attributes = {"function": "average", "kernel": None}  # adaptive: whatever comes becomes this size
    adaptive = Op(name="avgpool", kind="pool", inputs=(x,), outputs=(fixed,), attributes=attributes)
    ops = [adaptive, nn.view("flatten", fixed, nn.BATCH, channels * side * side)]
    places, widths = family.names["classifier"].split(), config.wholes("classifier")
    if len(widths) > len(places):
        raise config.error("classifier", f"has {len(widths)} layers, and {family.name} at most {len(places)}")
    return fully_connected(ops, places[-len(widths) :], widths, config.text("hidden_act"))


def fully_connected(ops: list[Op], places: list[str], widths: tuple[int, ...], function: str) -> Block:
    """The head: after `ops` a layer a width, with an activation behind all but the last."""
    for place, features in zip(places, widths, strict=True):
        at = f"classifier.{place}"
        ops.append(nn.linear(at, ops, features, at, bias=True))
        if place != places[-1]:
            ops.append(nn.activation(f"{at}.act", ops, nn.function_of(function)))
    return Block(name="head", ops=tuple(ops))


def squeezenet(config: Config) -> nn.Body:
    """Fire modules: 1 × 1 to few channels, then 1 × 1 and 3 × 3 side by side. The head is a convolution."""
    pixels, function, stem = pixels_of(config), nn.function_of(config.text("hidden_act")), config.table("stem")
    pad = stem.whole("padding", 0, least=0)
    shape = nn.square(stem.whole("out"), stem.whole("kernel"), stride=stem.whole("stride", 1), padding=pad)
    ops = [nn.convolution("features.0", pixels, shape, "features.0", bias=True)]
    ops.append(nn.activation("features.1", ops, function))
    ops.append(nn.pool("features.2", ops, "max", (3, 2, 0), ceil=True))
    number, modules = 3, config.tables("blocks")
    for fire in modules:
        ops += _fire(f"features.{number}", nn.output(ops), fire, function)
        number += 1
        if fire.get("pool") is True:
            ops.append(nn.pool(f"features.{number}", ops, "max", (3, 2, 0), ceil=True))
            number += 1
    head = nn.convolution("classifier.1", ops, nn.square(nn.labels_of(config), 1), "classifier.1", bias=True)
    act = nn.activation("classifier.2", head, function)
    ops += [head, act, nn.pool("classifier.3", act, "average")]
    return classified(config, [Block(name="features", ops=tuple(ops))], pixels, layers=2 + 2 * len(modules))


def _fire(at: str, x: Tensor, fire: Config, function: str) -> list[Op]:
    narrow = nn.convolution(f"{at}.squeeze", x, nn.square(fire.whole("squeeze"), 1), f"{at}.squeeze", bias=True)
    act = nn.activation(f"{at}.squeeze.act", narrow, function)
    ops, wide = [narrow, act], list[Tensor]()
    for key, name, kernel in (("expand1", "expand1x1", 1), ("expand3", "expand3x3", 3)):
        module = f"{at}.{name}"
        ops.append(nn.convolution(module, act, nn.square(fire.whole(key), kernel), module, bias=True))
        ops.append(nn.activation(f"{module}.act", ops, function))
        wide.append(nn.output(ops))
    both = sum(nn.channels_of(part) for part in wide)
    return [*ops, nn.copy(f"{at}.concat", "concat", tuple(wide), nn.BATCH, both, *wide[0].shape[2:])]


# Inverted residuals: MobileNetV2, MobileNetV3 and EfficientNet, in torchvision's module names.


def inverted(family: Family, config: Config) -> nn.Body:
    """Stem, blocks, one wide 1 × 1, global average, classifier."""
    pixels, stem = pixels_of(config), config.table("stem")
    shape = nn.square(stem.whole("out"), stem.whole("kernel"), stride=stem.whole("stride"))
    first = conv_bn(("features.0.0", "features.0.1"), pixels, shape, stem.text("act"))
    blocks, x = [Block(name="stem", ops=tuple(first))], nn.output(first)
    tables = config.tables("blocks")
    stages = _inverted_stages(family, tables)
    for table, (stage, place) in zip(tables, stages, strict=True):
        module = family.names["block"].replace("{stage}", str(stage)).replace("{place}", str(place))
        ops = _block(family, config, table, x, module)
        blocks.append(Block(name=f"features.{stage}", ops=tuple(ops)))
        x = nn.output(ops)
    at = f"features.{stages[-1][0] + 1}"
    wide = conv_bn((f"{at}.0", f"{at}.1"), x, nn.square(config.whole("last_channels"), 1), config.text("last_act"))
    blocks.append(Block(name=at, ops=tuple(wide)))
    ops = [nn.pool("avgpool", nn.output(wide), "average")]
    places, widths = family.names["classifier"].split(), config.wholes("classifier")
    if len(places) != len(widths):
        raise config.error("classifier", f"has {len(widths)} layers, and {family.name} has {len(places)}")
    blocks.append(fully_connected(ops, places, widths, config.text("classifier_act")))
    return classified(config, blocks, pixels, layers=len(tables))


def _inverted_stages(family: Family, tables: tuple[Config, ...]) -> list[tuple[int, int]]:
    """Where each block stands in `features`. EfficientNet groups blocks of one width; the others count them all."""
    if "{place}" not in family.names["block"]:
        return [(number, 0) for number in range(1, len(tables) + 1)]
    places: list[tuple[int, int]] = []
    width, stage, place = 0, 0, 0
    for table in tables:
        out = table.whole("out")
        stage, place = (stage, place + 1) if out == width else (stage + 1, 0)
        width = out
        places.append((stage, place))
    return places


def _block(family: Family, config: Config, table: Config, x: Tensor, module: str) -> list[Op]:
    """Widen, filter each channel alone, weigh the channels, narrow; added to the input where shapes allow."""
    hidden, out, stride = table.whole("hidden"), table.whole("out"), table.whole("stride")
    function, ops, number = table.text("act"), list[Op](), 0
    if hidden != nn.channels_of(x):
        ops += conv_bn((f"{module}.0.0", f"{module}.0.1"), x, nn.square(hidden, 1), function)
        number = 1
    depthwise = nn.square(hidden, table.whole("kernel"), stride=stride, groups=hidden)
    names = (f"{module}.{number}.0", f"{module}.{number}.1")
    ops += conv_bn(names, nn.output(ops) if ops else x, depthwise, function)
    number += 1
    if squeezed := table.whole("squeeze", 0, least=0):
        ops += _squeeze(config, f"{module}.{number}", nn.output(ops), squeezed)
        number += 1
    names = (f"{module}.{number}.0", f"{module}.{number}.1")
    if family.names["layout"] == "flat":  # MobileNetV2's projection and its norm are modules side by side
        names = (f"{module}.{number}", f"{module}.{number + 1}")
    ops += conv_bn(names, nn.output(ops), nn.square(out, 1))
    if stride == 1 and nn.channels_of(x) == out:
        ops.append(nn.add(f"{module}.add", x, ops))
    return ops


def _squeeze(config: Config, at: str, x: Tensor, narrow: int) -> list[Op]:
    """Squeeze and excitation: one weight a channel, from the average of the plane."""
    channels = nn.channels_of(x)
    pooled = nn.pool(f"{at}.avgpool", x, "average")
    cell = nn.view(f"{at}.cell", pooled, nn.BATCH, channels, 1, 1)
    first = nn.convolution(f"{at}.fc1", cell, nn.square(narrow, 1), f"{at}.fc1", bias=True)
    act = nn.activation(f"{at}.act", first, nn.function_of(config.text("squeeze_act")))
    second = nn.convolution(f"{at}.fc2", act, nn.square(channels, 1), f"{at}.fc2", bias=True)
    gate = nn.activation(f"{at}.gate", second, nn.function_of(config.text("gate_act")))
    return [pooled, cell, first, act, second, gate, nn.multiply(f"{at}.scale", x, gate)]
