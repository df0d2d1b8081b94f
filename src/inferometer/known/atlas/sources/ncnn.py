"""ncnn's benchmark/README.md: the shortest, longest and mean time of a net, on the CPU or through Vulkan.

Nets whose name ends in `_int8` are quantised. The others are computed in f16 where the unit can, which benchncnn
switches on by itself: on every GPU, and on CPUs since Arm's v8.2; elsewhere in f32. Vulkan has no layers of whole
numbers in ncnn, so a quantised net runs on the CPU whatever adapter is asked for, and is a row of the CPU.
"""

import re
from collections.abc import Collection, Iterator

from inferometer.known.atlas.form import CsvLine, published, published_form, settings
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.names import ncnn_inputs

_HALF = re.compile(r"(?i)\ba(?:55|65|7[5-8]|78|51\d|52\d|71\d|72\d)(?:ae|c)?\b|cortex[- ]?x\d|bcm2712|apple m\d"
                   r"|macbook.*\bm\d|neoverse|kryo ?[3-9]\d\d|kyro ?[3-9]\d\d|snapdragon (?:8[4-9]\d|8 |7[1-9]\d)"
                   r"|orion|oryon|carmel|dimensity|kunpeng 920|azure.*d\d+ps|graviton [2-9]|ampere")  # fmt: skip
OF_RELEASES = "ncnn"  # the table whose lists are of several releases
_DEFAULT_SIDE = 224
_ADDED = "vision_transformer"  # in the spring of 2022: a whole list without it is of an older release
_WHOLE = 12  # nets, of the two or three dozen that a list has


@published_form(
    "ncnn", "ncnn, benchmark/README.md", "device", "num_threads", "powersave", "gpu_device", "model", "min_ms",
    "max_ms", "avg_ms"
)  # fmt: skip
def ncnn(line: CsvLine) -> Iterator[PublishedMeasurement]:
    device, name = line.required("device"), line.required("model")
    net = name.removesuffix("_int8")
    gpu = line.signed("gpu_device", -1) >= 0 and net == name
    computed = "i8" if net != name else "f16" if gpu or _HALF.search(device) else "f32"
    yield published(
        line,
        dataset="ncnn",
        device_published=device,
        unit="gpu" if gpu else "cpu",
        model_published=name,
        model_spelling=net,
        engine_published="ncnn",
        engine="ncnn",
        settings=settings(
            threads=line.whole("num_threads"),
            powersave=line.text("powersave"),
            backend="vulkan" if gpu else None,
            adapter=line.text("gpu_device") if gpu else None,
            loops=line.whole("loop_count"),
        ),
        precision_published="int8" if net != name else None,
        weights=computed,
        activations=computed,
        batch=1,
        image=ncnn_inputs().get(net, _DEFAULT_SIDE),
        quantity="forward",
        figure=line.positive("avg_ms"),
        figure_unit="ms",
        low=line.value("min_ms"),
        high=line.value("max_ms"),
        spread="range",
    )


def is_older(nets: Collection[str]) -> bool | None:
    """Whether the nets that one device's list has are those of a release before 2022; None where they do not tell."""
    return False if _ADDED in nets else True if len(nets) >= _WHOLE else None


FORMS = (ncnn,)
