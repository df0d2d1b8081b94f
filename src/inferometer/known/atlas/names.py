"""Names of models, as others write them → what `predict` is asked for.

One normal form makes the many spellings of a name equal: `meta-llama/Llama-3.2-1B-Instruct`, `llama_v3_2_1b_instruct`
and `Llama 3.2:1b` are `llama3p2p1b`. It is looked up among the catalog's names, timm's names, and the aliases of
`data/aliases.toml`, which say what no rule can know. None means that nobody knows the name.
"""

import json
import re
import tomllib
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from inferometer.known.files import rows_of
from inferometer.known.zoo import PREFIXES

DATA = Path(__file__).parents[1] / "data" / "atlas"

# Words of a language model's name that leave its architecture as it is: how it was tuned, packed or quantised.
_TUNED = frozenset((
    "instruct", "chat", "it", "hf", "gguf", "base", "qat", "sft", "dpo", "awq", "gptq", "exl2", "mlx", "ov", "pt",
    "bf16", "f16", "fp16", "f32", "fp32", "fp8", "fp4", "nvfp4", "mxfp4", "int8", "int4", "quantized", "kv", "dynamic",
    "dyn", "ud", "i1", "qlora", "spinquant", "unsloth", "ubergarm", "imatrix", "moe", "sym", "asym", "text", "model",
    "thinking", "reasoning", "preview", "ssd", "finetuned", "eagle3", "alpha1", "edge", "0528", "2407", "2409",
    "2410", "2411", "2501", "2503", "2506",
    "2507", "2508", "2512", "1m", "4k", "8k", "16k", "32k", "128k", "pytorch", "tf", "onnx", "caffe",
))  # fmt: skip
_QUANTISED = re.compile(
    r"(?i)(?<![a-z0-9])(?:i?q[1-8]|tq[12])(?:_[0-9a-z]+)*(?:\s*-\s*(?:small|medium|large))?(?![a-z])"
)
_SIZE = re.compile(r"^(?:\d+x)?\d+(?:p\d+)?[bm]$")
_OWNER = re.compile(r"^[\w.-]+/")


def normal_form(name: str) -> str:
    """Letters and digits only; `p` stands between two numbers, and a `v` before one is dropped."""
    words = re.sub(r"[^a-z0-9]+", "-", name.casefold()).strip("-")
    words = re.sub(r"(?<![a-z])v(?=\d)|(?<=[a-z])-?v(?=\d)", "", words)
    return re.sub(r"(?<=\d)-(?=\d)", "p", words).replace("-", "")


def match_model(name: str, *, dataset: str | None = None, part: str | None = None) -> str | None:
    """What `predict` is asked for: a catalog name, or a package's (`timm:NAME`); None where nobody knows the name.

    `dataset` is where the name is from: `vision_transformer` means something in ncnn's list that it means nowhere else.
    A part that has a graph of its own is `NAME/PART`; any other part has its model's name, which is the whole of it.
    """
    whole = _match(name.strip(), dataset)
    return whole if part is None else _part(name.strip(), part, whole, dataset)


def _part(name: str, part: str, whole: str | None, dataset: str | None) -> str | None:
    aliased = _aliases(dataset).get(normal_form(name))  # of a model that is only there in parts
    models = (whole, aliased, name, untuned(name))
    forms = (normal_form(f"{model}/{part}") for model in models if model is not None)
    found = (_known(_aliases(dataset).get(form) or form) for form in forms)
    return next((known for known in found if known is not None), whole)


@cache
def _match(name: str, dataset: str | None) -> str | None:
    if name.startswith(PREFIXES):
        return name
    for spelling in (name, _without_owner(name), untuned(name)):
        form = normal_form(spelling)
        alias = _aliases(dataset).get(form) or _aliases(None).get(form)
        found = (None if alias else _of_form(form)) or _known(alias or form)
        if found is not None:
            return _preferred(found)
    return next((known for spelling in (name, untuned(name)) if (known := _timm_form(spelling))), None)


def _known(target: str) -> str | None:
    """The target of an alias, or a normal form, as the catalog has it; packages know their own."""
    if target.startswith(PREFIXES):
        return target
    return _of_form(normal_form(target))


def _of_form(form: str) -> str | None:
    """What has this normal form. The form of a form may be another one: a `v` that stood before a hyphen is a word."""
    return _catalog_forms().get(form) or _net_forms().get(form)


def same_models(name: str) -> frozenset[str]:
    """Every name that means the same architecture: `resnet50` and `timm:resnet50`."""
    preferred = _preferred(name)
    return frozenset({name, preferred, *(other for other, mine in _equal().items() if mine == preferred)})


def untuned(name: str) -> str:
    """The name of a language model without what was done to its weights: `Llama-3-8B Q4_K_M` → `Llama-3-8B`."""
    bare = _QUANTISED.sub(" ", _without_owner(name))
    words = [word for word in re.split(r"[\s_\-:/]+|(?<=[a-zA-Z])\.(?=[a-zA-Z])|(?<=\d[bB])\.", bare) if word]
    kept = [word for word in words if word.casefold().strip("()") not in _TUNED]
    return "-".join(kept)


def _without_owner(name: str) -> str:
    """`Qwen/Qwen2-7B` → `Qwen2-7B`; `Meta-Llama-3-8B` is Llama's own way of naming its maker."""
    return re.sub(r"(?i)^meta[- ](?=llama)", "", _OWNER.sub("", name))


def _preferred(name: str) -> str:
    """The name that timm has, where a catalog row is the same architecture: one model has one name in the table."""
    return _equal().get(name, name)


@cache
def _file() -> Mapping[str, Any]:
    return tomllib.loads((DATA / "aliases.toml").read_text(encoding="utf-8"))


@cache
def _equal() -> Mapping[str, str]:
    """Catalog and torchvision names that are one of timm's. JSON, since every prediction looks here."""
    equal: dict[str, str] = json.loads((DATA / "same_architecture.json").read_text(encoding="utf-8"))
    return equal


@cache
def _aliases(dataset: str | None) -> Mapping[str, str]:
    table = _file()["models"]
    own = table.get(dataset, {}) if dataset else {key: value for key, value in table.items() if isinstance(value, str)}
    return {normal_form(key): value for key, value in own.items()}


@cache
def _catalog_forms() -> Mapping[str, str]:
    """Catalog names, aliases and titles in normal form. A form that two rows share belongs to the first."""
    forms: dict[str, str] = {}
    rows = rows_of("models")
    for name, row in rows.by_name.items():
        spellings: Iterable[str] = (name, *row.names("aliases"), str(row.fields.get("title", name)))
        for spelling in spellings:
            for form in (normal_form(spelling), normal_form(_without_owner(spelling)), normal_form(untuned(spelling))):
                if not _SIZE.match(form):
                    forms.setdefault(form, name)
    return forms


@cache
def _net_forms() -> Mapping[str, str]:
    """The networks whose graphs come with the package under names of their own: `yolov8s`, `mobilesam/encoder`."""
    return {normal_form(name): name for name in (DATA / "nets.txt").read_text(encoding="utf-8").split()}


@cache
def timm_names() -> frozenset[str]:
    return frozenset((DATA / "timm.txt").read_text(encoding="utf-8").split())


@cache
def _timm_forms() -> Mapping[str, str]:
    forms: dict[str, str] = {}
    for name in sorted(timm_names(), key=lambda known: (len(known), known)):
        forms.setdefault(normal_form(name), name)
    return forms


def _timm_form(name: str) -> str | None:
    known = name if name in timm_names() else _timm_forms().get(normal_form(name))
    return f"timm:{known}" if known else None


def ncnn_inputs() -> Mapping[str, int]:
    """The side of the image that nets of ncnn's benchmark get, where it is not 224 pixels."""
    inputs: Mapping[str, int] = _file()["ncnn_inputs"]
    return inputs
