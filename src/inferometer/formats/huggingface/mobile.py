"""Inverted residuals: MobileNetV2, MobileNetV3 and EfficientNet, in torchvision's module names."""

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.body import Body, function_of
from inferometer.formats.huggingface.cnn import classified, conv_bn, fully_connected, pixels_of
from inferometer.formats.huggingface.config import Config
from inferometer.formats.huggingface.family import Family


def inverted(family: Family, config: Config) -> Body:
    """Stem, blocks, one wide 1 × 1, global average, classifier."""
    pixels, stem = pixels_of(config), config.table("stem")
    shape = nn.square(stem.whole("out"), stem.whole("kernel"), stride=stem.whole("stride"))
    first = conv_bn(("features.0.0", "features.0.1"), pixels, shape, stem.text("act"))
    blocks, x = [Block(name="stem", ops=tuple(first))], nn.output(first)
    tables = config.tables("blocks")
    stages = _stages(family, tables)
    for table, (stage, place) in zip(tables, stages, strict=True):
        module = family.names["block"].replace("{stage}", str(stage)).replace("{place}", str(place))
        ops = _block(family, config, table, x, module)
        blocks.append(Block(name=f"features.{stage}", ops=tuple(ops)))
        x = nn.output(ops)
    at = f"features.{stages[-1][0] + 1}"
    wide = conv_bn((f"{at}.0", f"{at}.1"), x, nn.square(config.whole("last_channels"), 1), config.text("last_act"))
    blocks.append(Block(name=at, ops=tuple(wide)))
    blocks.append(_head(family, config, nn.output(wide)))
    return classified(config, blocks, pixels, layers=len(tables))


def _stages(family: Family, tables: tuple[Config, ...]) -> list[tuple[int, int]]:
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
    act = nn.activation(f"{at}.act", first, function_of(config.text("squeeze_act")))
    second = nn.convolution(f"{at}.fc2", act, nn.square(channels, 1), f"{at}.fc2", bias=True)
    gate = nn.activation(f"{at}.gate", second, function_of(config.text("gate_act")))
    return [pooled, cell, first, act, second, gate, nn.multiply(f"{at}.scale", x, gate)]


def _head(family: Family, config: Config, x: Tensor) -> Block:
    ops = [nn.pool("avgpool", x, "average")]
    places, widths = family.names["classifier"].split(), config.wholes("classifier")
    if len(places) != len(widths):
        raise config.error("classifier", f"has {len(widths)} layers, and {family.name} has {len(places)}")
    return fully_connected(ops, places, widths, config.text("classifier_act"))
