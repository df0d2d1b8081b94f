"""timm's `results/benchmark-infer-*.csv`: a step at a large batch on GPUs, at batch 1 on CPUs.

AMP is autocast: the weights stay f32 and products are f16 (`amp`) or bf16 (`amp_bf16`).
"""

import re
from collections.abc import Iterator

from inferometer.known.atlas.form import CsvLine, LineError, published, published_form, settings
from inferometer.known.atlas.measurement import PublishedMeasurement
from inferometer.known.atlas.names import timm_names

_FORMATS = {
    "amp": ("f32", "f16"), "amp_bf16": ("f32", "bf16"), "bf16": ("bf16", "bf16"), "bfloat16": ("bf16", "bf16"),
    "fp16": ("f16", "f16"), "float16": ("f16", "f16"), "fp32": ("f32", "f32"), "float32": ("f32", "f32"),
}  # fmt: skip
_ENGINES = {"eager": "torch-eager", "dynamo": "torch-compile", "inductor": "torch-compile", "script": "torchscript"}
_APART = 0.05  # the step's time and the rate are rounded apart


@published_form(
    "timm", "timm, benchmark-infer-*.csv", "device", "precision", "layout", "compile", "model", "batch",
    "samples_per_s", "step_ms"
)  # fmt: skip
def timm(line: CsvLine) -> Iterator[PublishedMeasurement]:
    batch, rate, step_ms = line.positive("batch"), line.positive("samples_per_s"), line.positive("step_ms")
    if abs(step_ms / (1e3 * batch / rate) - 1) > _APART:
        raise LineError(f"step_ms is {step_ms:g}, but {batch:g} samples at {rate:g} a second take another time.")
    name, precision, how = line.required("model"), line.required("precision"), line.required("compile")
    cuda = line.text("cuda") or ""
    weights, activations = _FORMATS.get(precision, (None, None))
    gmacs, parameters = line.value("gmacs"), line.value("params_m")
    yield published(
        line,
        dataset="timm",
        place=line.text("file"),
        date="2026-08",
        device_published=line.required("device"),
        unit="cpu" if cuda == "cpu" else "gpu",
        model_published=name,
        model_spelling=f"timm:{current_name(name)}",
        engine_published=f"PyTorch {how}",
        engine=_ENGINES.get(how, how),
        version=_dotted(line.text("torch"), "pt"),
        settings=settings(
            layout=line.text("layout"),
            cuda=_dotted(cuda, "cu") if cuda.startswith("cu") else None,
            autocast=activations if precision.startswith("amp") else None,
        ),
        precision_published=precision,
        weights=weights,
        activations=activations,
        batch=int(batch),
        image=line.whole("img_size"),
        quantity="forward",
        figure=step_ms,
        figure_unit="ms",
        macs=gmacs * 1e9 if gmacs else None,
        parameters=parameters * 1e6 if parameters else None,
    )


def _dotted(text: str | None, prefix: str) -> str | None:
    """`pt240` → `2.4.0`, `pt113` → `1.13`, `cu124` → `12.4`."""
    digits = (text or "").removeprefix(prefix)
    if not digits.isdecimal():
        return text or None
    if prefix == "cu":
        return f"{digits[:-1]}.{digits[-1]}"
    return f"{digits[0]}.{digits[1:]}" if digits[0] == "1" else ".".join(digits)


_ORIGIN = re.compile(r"^(?:tv|ig|ssl|swsl|gluon|ens_adv|adv|jx)_")
_TAUGHT = re.compile(
    r"_(?:in2[12]ft1k|in2[12]k|22k|22kft1k|in1k|miil|iabn|dist|distilled|dino|sam|ap|ns|teacher|clip_laion2b)(?=_|$)"
)
_RENAMED = {
    "mnasnet_a1": "semnasnet_100", "mnasnet_b1": "mnasnet_100", "seresnext26tn_32x4d": "seresnext26t_32x4d",
    "efficientnet_b2a": "efficientnet_b2", "efficientnet_b3a": "efficientnet_b3", "tf_inception_v3": "inception_v3",
    "xception": "legacy_xception", "regnetz_040h": "regnetz_040_h", "vit_base_resnet50_224": "vit_base_r50_s16_224",
    "vit_base_resnet50_384": "vit_base_r50_s16_384",
}  # fmt: skip


def current_name(name: str) -> str:
    """What timm calls an architecture today: earlier releases put the origin of the weights into the name."""
    bare = name.partition(".")[0]
    known = timm_names()
    if bare in known:
        return bare
    plain = re.sub(r"_bitm(?=_|$)", "_bit", _TAUGHT.sub("", _ORIGIN.sub("", bare)))
    plain = re.sub(r"_v1([cdse])$", r"\1", re.sub(r"_v1b$", "", plain))
    plain = _RENAMED.get(plain, plain)
    sized = re.sub(r"^(vit_.*)_(\d+)$", r"\1_clip_\2", plain) if "_clip_" in bare else plain
    guesses = (f"{plain}_jx" if bare.startswith("jx_") else sized, sized, plain, re.sub(r"_\d{3}$", "", plain))
    return next((guess for guess in guesses if guess in known), bare)


FORMS = (timm,)
