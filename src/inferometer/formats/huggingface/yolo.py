"""YOLOv8, layer by layer as its config lists them, in Ultralytics' module names."""

from inferometer.core.graph import Block, Op, Tensor
from inferometer.formats.huggingface import nn
from inferometer.formats.huggingface.cnn import conv_bn, pixels_of
from inferometer.formats.huggingface.config import Config


def yolo(config: Config) -> nn.Body:
    pixels, tables = pixels_of(config), config.tables("layers")
    made: list[Tensor] = []
    blocks: list[Block] = []
    for number, table in enumerate(tables):
        # What a layer reads: −1 is the one before it, other numbers count from the start.
        chosen = []
        for place in table.wholes("from", least=-1):
            if place >= len(made):
                raise table.error("from", f"names layer {place}, which does not come before")
            chosen.append(pixels if not made else made[place])
        inputs = tuple(chosen)
        ops = _layer(config, table, f"model.{number}", inputs)
        blocks.append(Block(name=f"model.{number}", ops=tuple(ops)))
        made.append(nn.output(ops))
    return nn.Body(
        blocks=tuple(blocks),
        inputs=(pixels,),
        outputs=(made[-1],),
        metadata={"layers": len(tables), "default_sizes": {"image": config.whole("image_size")}},
    )


def _layer(config: Config, table: Config, at: str, inputs: tuple[Tensor, ...]) -> list[Op]:
    x, function = inputs[0], config.text("hidden_act")
    match table.text("module"):
        case "conv":
            shape = nn.square(table.whole("out"), table.whole("kernel"), stride=table.whole("stride", 1))
            return _conv(at, x, shape, function)
        case "c2f":
            return _c2f(table, at, x, function)
        case "sppf":
            # three max pools in a row see ever larger neighbourhoods
            half, kernel = nn.channels_of(x) // 2, table.whole("kernel")
            ops = _conv(f"{at}.cv1", x, nn.square(half, 1), function)
            kept = [nn.output(ops)]
            for number in range(3):
                ops.append(nn.pool(f"{at}.m.{number}", kept[-1], "max", (kernel, 1, kernel // 2)))
                kept.append(nn.output(ops))
            ops.append(nn.copy(f"{at}.concat", "concat", tuple(kept), nn.BATCH, 4 * half, *x.shape[2:]))
            return [*ops, *_conv(f"{at}.cv2", nn.output(ops), nn.square(table.whole("out"), 1), function)]
        case "upsample":
            scale = table.whole("scale", most=16)
            return [nn.resize(at, x, "nearest", tuple(side * scale for side in x.shape[2:]))]
        case "concat":
            channels = sum(nn.channels_of(part) for part in inputs)
            return [nn.copy(at, "concat", inputs, nn.BATCH, channels, *x.shape[2:])]
        case "detect":
            return _detect(config, at, inputs, function)
        case other:
            raise table.error(
                "module", f"is {other[:40]!r}, and only conv, c2f, sppf, upsample, concat, detect are known"
            )


def _conv(at: str, x: Tensor, shape: nn.ConvFilter, function: str) -> list[Op]:
    return conv_bn((f"{at}.conv", f"{at}.bn"), x, shape, function)


def _c2f(table: Config, at: str, x: Tensor, function: str) -> list[Op]:
    """Half of the channels pass a chain of bottlenecks; every stage of the chain is kept and joined at the end."""
    out = table.whole("out")
    half, repeats = out // 2, table.layers("repeats")
    if not half:
        raise table.error("out", "must be at least 2")
    ops = _conv(f"{at}.cv1", x, nn.square(2 * half, 1), function)
    shape = (nn.BATCH, half, *nn.output(ops).shape[2:])
    halves = nn.split(f"{at}.halves", ops, a=shape, b=shape)
    ops.append(halves)
    kept, last = list(halves.outputs), halves.outputs[1]
    for number in range(repeats):
        inside = f"{at}.m.{number}"
        ops += _conv(f"{inside}.cv1", last, nn.square(half, 3), function)
        ops += _conv(f"{inside}.cv2", nn.output(ops), nn.square(half, 3), function)
        if table.flag("shortcut"):
            ops.append(nn.add(f"{inside}.add", last, ops))
        last = nn.output(ops)
        kept.append(last)
    ops.append(nn.copy(f"{at}.concat", "concat", tuple(kept), nn.BATCH, half * len(kept), *shape[2:]))
    return [*ops, *_conv(f"{at}.cv2", nn.output(ops), nn.square(out, 1), function)]


def _detect(config: Config, at: str, inputs: tuple[Tensor, ...], function: str) -> list[Op]:
    """Boxes and classes at every scale; a box side is the mean of a distribution over `reg_max` places."""
    labels, places = config.whole("num_labels"), config.whole("reg_max")
    first = nn.channels_of(inputs[0])
    branches = (
        ("cv2", max(16, first // 4, 4 * places), 4 * places),
        ("cv3", max(first, min(labels, 100)), labels),
    )
    ops: list[Op] = []
    boxes: list[Tensor] = []
    for scale, x in enumerate(inputs):
        for branch, width, out in branches:
            module = f"{at}.{branch}.{scale}"
            ops += _conv(f"{module}.0", x, nn.square(width, 3), function)
            ops += _conv(f"{module}.1", nn.output(ops), nn.square(width, 3), function)
            ops.append(nn.convolution(f"{module}.2", ops, nn.square(out, 1), f"{module}.2", bias=True))
            cells = nn.output(ops).shape[2] * nn.output(ops).shape[3]
            ops.append(nn.view(f"{module}.cells", ops, nn.BATCH, out, cells))
            if branch == "cv2":
                boxes.append(nn.output(ops))
            else:
                ops.append(nn.activation(f"{module}.sigmoid", ops, "sigmoid"))
    total = boxes[0].shape[-1]
    for box in boxes[1:]:
        total = total + box.shape[-1]
    joined = nn.copy(f"{at}.concat", "concat", tuple(boxes), nn.BATCH, places, 4, total)
    chances = nn.tensor(f"{at}.softmax", *nn.output(joined).shape)
    spread = Op(name=f"{at}.softmax", kind="softmax", inputs=(nn.output(joined),), outputs=(chances,))
    return [
        *ops,
        joined,
        spread,
        nn.convolution(f"{at}.dfl.conv", spread, nn.square(1, 1), f"{at}.dfl.conv"),
    ]
