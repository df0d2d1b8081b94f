"""A module from what the target names: a config (random weights), a folder of weights, or an exported program."""

from __future__ import annotations

import inspect
import logging
import platform
import re
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from inferometer.core.errors import EngineError, FormatError
from inferometer.core.frozen import frozen
from inferometer.core.json_text import parse_json
from inferometer.engines.base import Port, Target
from inferometer.engines.torch.capture import Calls
from inferometer.engines.torch.convert import load_program
from inferometer.engines.torch.engine import PRECISIONS, TorchDevice, choose_precision, import_transformers, translated
from inferometer.formats.torch.reader import ABOUT
from inferometer.known import models
from inferometer.known.machine.detect import detect_host

# What a package of AOTInductor says of itself, and whether it can run here.
#
# The library in a package is made for one architecture, its vector instructions, one system and one version of PyTorch.
# Elsewhere it would end the process, or fail with a message about a symbol: it is refused before it is loaded.

AGAIN = "Prepare the model on this machine: inferometer prepare MODEL --for torch-compile -o PACKAGE.pt2."
_FLAGS = {"avx512": "avx512f", "sve128": "sve", "sve256": "sve"}  # where the compiler has another word for a flag


@frozen
class CompiledPackage:
    """`machine`, `system` and `instructions` are what it was compiled for; `unit` is cpu or cuda."""

    machine: str
    system: str
    instructions: str
    torch: str
    unit: str
    precision: str
    inputs: tuple[Port, ...]
    calls: Calls


def open_package(path: Path) -> CompiledPackage:
    try:
        with zipfile.ZipFile(path) as archive:
            name = next((name for name in archive.namelist() if name.endswith(f"/{ABOUT}") or name == ABOUT), None)
            about: dict[str, Any] = parse_json(archive.read(name)) if name is not None else {}
        if not about:
            raise FormatError(f"The package {str(path)!r} does not say what it takes.", remedy=AGAIN)
        ports = tuple(Port(name=name, dtype=kind, shape=tuple(shape)) for name, kind, shape in about["inputs"])
        calls = tuple((str(name), tuple(map(str, layers))) for name, layers in about["calls"])
        words = {key: str(about[key]) for key in ("machine", "system", "instructions", "torch", "unit", "precision")}
        return CompiledPackage(**words, inputs=ports, calls=calls)
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError) as error:
        raise FormatError(f"The package {str(path)!r} cannot be read: {error}.", remedy=AGAIN) from error


def require_here(package: CompiledPackage, path: Path, *, place: TorchDevice, version: str) -> None:
    """Refuse what was compiled for another machine, and say how it differs."""
    here = {"machine": platform.machine(), "system": platform.system(), "torch": version}
    there = {"machine": package.machine, "system": package.system, "torch": package.torch}
    differs = [f"{there[key]} and not {here[key]}" for key in here if here[key] != there[key]]
    # Vector instructions that are known to be missing here.
    cpu = detect_host().cpu
    words = package.instructions.casefold().split()
    lacking = [word.upper() for word in words if cpu.has(_FLAGS.get(word, word)) is False]
    differs += [f"{word} instructions, which this processor has not" for word in lacking]
    if package.unit == "cuda" and not place.cuda:
        differs.append("a CUDA device, and it would run on the CPU here")
    if differs:
        raise EngineError(f"{path.name!r} was compiled for {'; for '.join(differs)}.", remedy=AGAIN)


# Networks that the catalog names as torchvision does; the others are named as transformers does.
_TORCHVISION = frozenset(
    "alexnet convnext densenet efficientnet mobilenet_v2 mobilenet_v3 resnet squeezenet vgg".split()  # noqa: SIM905 - a list of names reads better as text
)
_STAGED = frozenset({"stem", "blocks", "stages", "block_config", "layers"})  # no configuration class reads these
_SEQ2SEQ = ("ForConditionalGeneration", "Model", "MTModel")  # classes with an encoder and a decoder
_FREE = frozenset({"dtype", "torch_dtype", "image_size"})  # what a network of one name may differ in


@frozen
class Module:
    """`model` takes `inputs` by name, or by position where `positional`."""

    model: Any
    precision: str
    inputs: tuple[Port, ...]
    config: Any = None
    positional: bool = False
    folder: Path | None = None  # where a tokeniser may lie
    notes: tuple[str, ...] = ()
    given: Mapping[str, Any] = field(default_factory=dict)  # arguments that every call has
    padded: bool = False  # an encoder of texts, which may have padding: it takes a mask
    calls: Calls | None = None  # kernels of what was compiled ahead of time, with their layers; else None


def find_module(target: Target, place: TorchDevice, torch: Any) -> Callable[[], Module]:
    """What builds the module: libraries are imported and the config is understood, but nothing is made yet."""
    if not target.path.exists():
        raise FormatError(f"There is no model at {str(target.path)!r}.", remedy="Give the path of one.")
    if target.format == "pt2":
        return partial(_exported, target, place, torch)
    if target.format == "aoti":
        return partial(_packaged, target, place, torch)
    raw = config_of(target.path)
    named = torchvision_name(raw)
    if target.format == "config" and named is not None and not target.text:
        if find_spec("torchvision") is not None:
            import_module("torchvision")
            return partial(_from_torchvision, target, place, torch, raw, named)
        if _STAGED & set(raw):
            raise EngineError(
                f"{raw.get('model_type')!r} is not a configuration of transformers; torchvision has it as {named}, and "
                "is not installed.",
                remedy="pip install torchvision, or profile it on onnxruntime, which needs no such package.",
            )
    config, kind = transformers_class(target)
    return partial(_from_transformers, target, place, torch, config, kind)


def config_of(path: Path) -> Mapping[str, Any]:
    """The config.json at a path, or in that folder, or beside that file of weights."""
    beside = path.suffix == ".safetensors" or path.name.endswith(".index.json")
    file = path / "config.json" if path.is_dir() else path.parent / "config.json" if beside else path
    try:
        config = parse_json(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FormatError(
            f"{str(path)!r} has no config that can be read: {error}.",
            remedy="Give a config.json, or a folder with one.",
        ) from None
    if not isinstance(config, dict):
        raise FormatError(f"{str(file)!r} holds no JSON object.", remedy="Give a transformers config.json.")
    return config


def torchvision_name(config: Mapping[str, Any]) -> str | None:
    """What torchvision calls this network: as `architecture` says, or as the catalog's row with these very values."""
    architecture = str(config.get("architecture", ""))
    if architecture.startswith("torchvision/"):
        return architecture.removeprefix("torchvision/")
    if config.get("model_type") not in _TORCHVISION:
        return None
    for row in models().values():
        same = all(config.get(key) == value for key, value in row.config.items() if key not in _FREE)
        if same and row.config.get("model_type") == config.get("model_type"):
            return next((name[12:] for name in row.aliases if name.startswith("torchvision/")), None)
    return None


def _from_torchvision(target: Target, place: TorchDevice, torch: Any, raw: Mapping[str, Any], name: str) -> Module:
    precision = choose_precision(target, place, raw.get("dtype") or raw.get("torch_dtype"))
    with translated(torch, f"building torchvision's {name}"), seeded(torch, target.seed):
        model = import_module("torchvision.models").get_model(name, weights=None)
    model = model.to(place.device, getattr(torch, PRECISIONS[precision])).eval()
    side = int(raw.get("image_size", 224))
    port = Port(name="pixel_values", dtype=numpy_name(precision), shape=("batch", 3, side, side))
    return Module(
        model=model, precision=precision, inputs=(port,), positional=True,
        notes=(f"torchvision's {name} with random weights (seed {target.seed}).",),
    )  # fmt: skip


def spare_masks() -> None:
    """Let transformers write no mask where none is given, whatever records the pass.

    Its releases before 5.20 or so write one that hides nothing as soon as a graph is captured or compiled, and no fused
    kernel takes it: 64 images through a ViT-B take 18 ms in bf16 on an H200 and not 7. Newer ones look first, as here.
    """
    try:
        masks: Any = import_module("transformers.masking_utils")
        before = masks._ignore_bidirectional_mask_sdpa  # noqa: SLF001 - as above
    except (ImportError, AttributeError):  # a release that writes its masks elsewhere
        return
    if getattr(before, "spares", False):
        return

    def ignored(padding_mask: Any, kv_length: int, local_attention_size: int | None = None, **more: Any) -> bool:
        whole = local_attention_size is None or kv_length < local_attention_size
        return (padding_mask is None and whole) or before(padding_mask, kv_length, local_attention_size, **more)

    ignored.spares = True  # type: ignore[attr-defined]  # so that it is put there once
    masks._ignore_bidirectional_mask_sdpa = ignored  # noqa: SLF001 - as above


_SCANS = {"mamba_ssm": "mamba-ssm", "causal_conv1d": "causal-conv1d", "fla": "flash-linear-attention"}


def scan_notes(kind: Any, place: TorchDevice) -> Iterator[str]:
    """Whether recurrent layers run kernels of a package, or transformers' own code: a scan in a few ops a token."""
    source = inspect.getsource(import_module(kind.__module__))
    wanted = {package: name for package, name in _SCANS.items() if re.search(rf"\b({package}|{name})\b", source)}
    missing = [name for package, name in wanted.items() if find_spec(package) is None]
    if not wanted:
        return
    own = f"The recurrent layers of {kind.__name__} ran transformers' own code, op by op"
    if not place.cuda:
        yield f"{own}: kernels of {', '.join(wanted.values())} are for GPUs."
    elif missing:
        yield f"{own}, which is much slower; not installed: {', '.join(missing)}."
    else:
        yield f"The recurrent layers of {kind.__name__} ran kernels of {', '.join(wanted.values())}."


def _from_transformers(target: Target, place: TorchDevice, torch: Any, config: Any, kind: Any) -> Module:
    folder = target.path if target.path.is_dir() else target.path.parent
    spare_masks()
    # A network of arrays that states no format is one of single precision, as transformers loads it and we predict it.
    stated = getattr(config, "dtype", None) or (None if target.text else "float32")
    precision = choose_precision(target, place, stated)
    dtype = getattr(torch, PRECISIONS[precision])
    notes: tuple[str, ...] = ()
    with translated(torch, f"building {kind.__name__} from {str(target.path)!r}"), quiet(), seeded(torch, target.seed):
        if target.format == "safetensors":
            model = kind.from_pretrained(
                str(folder), config=config, dtype=dtype, local_files_only=True, use_safetensors=True
            )
            model = model.to(place.device)
        else:
            model = _materialised(torch, kind, config, dtype, place.device)
            notes = (f"Random weights (seed {target.seed}) at the exact shapes: times hold, outputs mean nothing.",)
    notes = (*notes, *scan_notes(kind, place))
    model.eval()
    inputs, given = _ports(model, config, precision)
    texts = [port.name for port in inputs] == ["input_ids"] and "attention_mask" in _takes(model)
    mutual = any(getattr(each, "is_causal", None) is False for each in model.modules())
    return Module(
        model=model, precision=precision, inputs=inputs, config=config, folder=folder, notes=notes, given=given,
        padded=texts and mutual,
    )  # fmt: skip


def transformers_class(target: Target) -> tuple[Any, Any]:
    """The configuration, and the class of transformers that is built from it."""
    transformers, raw = import_transformers(), config_of(target.path)
    config = _configuration(transformers, raw, target)
    return config, _class_of(transformers, config, raw, text=target.text)


def _configuration(transformers: Any, raw: Mapping[str, Any], target: Target) -> Any:
    known = set(import_module("transformers.models.auto.configuration_auto").CONFIG_MAPPING_NAMES)
    kind = raw.get("model_type")
    if kind not in known or _STAGED & set(raw) - {"layers"}:
        causal = import_module("transformers.models.auto.modeling_auto").MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
        raise EngineError(
            f"{str(target.path)!r} says model_type {kind!r}, whose network transformers {transformers.__version__} "
            f"does not build. It builds {len(known)} types: {len(causal)} that generate text (llama, qwen2, gpt2 …), "
            "and encoders and vision models (bert, vit, resnet, swin …).",
            remedy="Give a config of one of those types, or profile the model on another runtime.",
        )
    values = {key: value for key, value in raw.items() if key not in {"model_type", "transformers_version"}}
    try:
        return transformers.AutoConfig.for_model(kind, **values)
    except Exception as error:  # whatever its code makes of values that it does not expect
        raise FormatError(
            f"transformers cannot read the config of {str(target.path)!r}: {error}",
            remedy="Check the values against the architecture.",
        ) from error


def _class_of(transformers: Any, config: Any, raw: Mapping[str, Any], *, text: bool) -> Any:
    """The class the config names, where it fits what was asked; else the one transformers has for the task."""
    autos = import_module("transformers.models.auto.modeling_auto")
    wanted = str(next(iter(raw.get("architectures") or ()), ""))
    named = getattr(transformers, wanted, None) if wanted else None
    if not (isinstance(named, type) and issubclass(named, transformers.PreTrainedModel)):
        named = None  # the module has functions too, and a config may name anything
    if not text:
        chosen = named or getattr(transformers, _first(autos.MODEL_MAPPING_NAMES.get(config.model_type)), None)
    else:
        causal = _first(autos.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(config.model_type))
        fits = wanted.endswith(("ForCausalLM", "LMHeadModel")) or not wanted
        if getattr(config, "is_encoder_decoder", False) and (wanted.endswith(_SEQ2SEQ) or not wanted):
            causal = _first(
                autos.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.get(config.model_type)
                or autos.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES.get(config.model_type)
            )
            fits = True
        chosen = (named or getattr(transformers, causal, None)) if causal and fits else None
    if chosen is None and text and hasattr(config, "vision_config"):
        raise EngineError(
            f"{wanted or config.model_type} reads pictures beside its prompt, and PyTorch's engines are given prompts "
            "alone here.",
            remedy="Give a config of its language model (`text_config`), or predict it.",
        )
    if chosen is None:
        what = "as a language model that generates" if text else "as a model of arrays"
        raise EngineError(
            f"{wanted or config.model_type} cannot be opened {what} in transformers {transformers.__version__}.",
            remedy="Ask for it the other way, or name a class of transformers in `architectures`.",
        )
    return chosen


def _first(names: Any) -> str:
    return str(names[0] if isinstance(names, list | tuple) else names or "")


# What configurations call the number of their experts.
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def _materialised(torch: Any, kind: Any, config: Any, dtype: Any, device: str) -> Any:
    """Built without memory, then given it on the device and filled as the library fills a fresh model.

    Its own `initialize_weights` also recomputes what is no weight and is not stored, such as rotary frequencies.
    """
    with torch.device("meta"):
        model = kind._from_config(config, dtype=dtype)  # noqa: SLF001 - what AutoModel.from_config calls
    model = model.to_empty(device=device)
    model.tie_weights()
    for module in model.modules():
        module._is_hf_initialized = False  # noqa: SLF001 - building on meta may have marked it as filled
        for tensor in (*module.parameters(recurse=False), *module.buffers(recurse=False)):
            tensor._is_hf_initialized = False  # noqa: SLF001 - as above
    with torch.no_grad():
        for tensor in (*model.parameters(), *model.buffers()):
            tensor.zero_()  # what an initialiser leaves out holds no garbage
        model.initialize_weights()
        _restore_rotary(model, config, device)
        for parameter in model.parameters():
            if parameter.dim() > 1 and not bool(parameter.any()):
                parameter.normal_(0.0, 0.02)
        if any(getattr(config.get_text_config(), name, None) for name in _EXPERTS):
            _keep_apart(model)
    return model


def _keep_apart(model: Any) -> None:
    """Let the tokens of a mixture choose among all experts, as those of a trained model do.

    Behind random weights what all tokens share soon outweighs what each of them is: 512 tokens chose half of OLMoE's
    experts from the second layer on, and a third of 128. Embeddings that are a thousand times what layers add to them
    keep tokens apart; behind norms products have the same numbers as before.
    """
    model.get_input_embeddings().weight.mul_(1000.0)


def _restore_rotary(model: Any, config: Any, device: str) -> None:
    """Rotary frequencies that the library's initialiser left empty, from a module built anew."""
    for module in model.modules():
        frequencies = getattr(module, "inv_freq", None)
        if "Rotary" in type(module).__name__ and frequencies is not None and not bool(frequencies.any()):
            module.inv_freq = type(module)(getattr(module, "config", config)).inv_freq.to(device)
            module.original_inv_freq = module.inv_freq


def _ports(model: Any, config: Any, precision: str) -> tuple[tuple[Port, ...], dict[str, Any]]:
    takes = _takes(model)
    known = {
        "input_ids": lambda: Port(name="input_ids", dtype="int64", shape=("batch", "query")),
        "decoder_input_ids": lambda: Port(name="decoder_input_ids", dtype="int64", shape=("batch", "target")),
        "pixel_values": lambda: Port(
            name="pixel_values", dtype=numpy_name(precision), shape=("batch", *_image(config))
        ),
        "input_features": lambda: Port(
            name="input_features", dtype=numpy_name(precision),
            shape=("batch", config.num_mel_bins, 2 * config.max_source_positions),
        ),
    }  # fmt: skip
    wanted = [model.main_input_name]
    if getattr(config, "is_encoder_decoder", False):
        wanted.append("decoder_input_ids")
    elif hasattr(config, "text_config") and hasattr(config, "vision_config"):
        wanted = ["input_ids", "pixel_values"]
    missing = [name for name in wanted if name not in known or name not in takes]
    if missing:
        raise EngineError(
            f"{type(model).__name__} takes {', '.join(missing)}, whose shape a config does not say.",
            remedy="Export the model with torch.export and profile the .pt2 file.",
        )
    given = {"use_cache": False} if "use_cache" in takes else {}
    return tuple(known[name]() for name in wanted), given


def _takes(model: Any) -> Mapping[str, inspect.Parameter]:
    return inspect.signature(model.forward).parameters


def _image(config: Any) -> tuple[int, int, int]:
    inner = getattr(config, "vision_config", config)
    side = getattr(inner, "image_size", 224)
    height, width = side if isinstance(side, list | tuple) else (side, side)
    return int(getattr(inner, "num_channels", 3)), int(height), int(width)


def _exported(target: Target, place: TorchDevice, torch: Any) -> Module:
    if target.text:
        raise EngineError(
            f"{str(target.path)!r} is an exported program, which takes and gives arrays; it does not generate.",
            remedy="Open it without asking for text, or give the folder with its config and weights.",
        )
    program = load_program(torch, target.path, trusted=target.trusted)
    if place.cuda:
        with translated(torch, f"moving {target.path.name} to {place.device}"):
            program = import_module("torch.export.passes").move_to_device_pass(program, place.device)
    notes: tuple[str, ...] = ()
    model = program.module()
    if target.instrument:
        try:
            model = torch.export.unflatten(program)
        except Exception as error:  # noqa: BLE001 - a program whose calls do not nest fails in many ways
            notes = (f"The program does not come apart into its modules ({error}); kernels have no layer.",)
    precision = stored_precision(program)
    if target.precision not in {None, precision}:
        kept = f"The program computes in {precision}, as it was exported; {target.precision} was asked for."
        notes = (*notes, kept)
    ports = tuple(
        program_port(node) for node in program.graph.nodes if node.name in program.graph_signature.user_inputs
    )
    return Module(model=model, precision=precision, inputs=ports, positional=True, notes=notes)


def _packaged(target: Target, place: TorchDevice, torch: Any) -> Module:
    """A package of AOTInductor: a callable that is compiled already."""
    package = open_package(target.path)
    if target.text:
        words = f"{str(target.path)!r} is a package that takes and gives arrays; it does not generate."
        raise EngineError(words, remedy="Open it without asking for text.")
    require_here(package, target.path, place=place, version=str(torch.__version__))
    with translated(torch, f"loading the package {target.path.name}"):
        loaded = torch._inductor.aoti_load_package(str(target.path))  # noqa: SLF001 - the only name it has
    model = torch.nn.Module()
    model.forward = loaded
    notes = () if package.calls else ("The package does not say what its kernels stand for; they have no layer.",)
    return Module(
        model=model, precision=package.precision, inputs=package.inputs, positional=True,
        notes=("It was compiled ahead of time, and nothing is compiled.", *notes), calls=package.calls,
    )  # fmt: skip


def stored_precision(program: Any) -> str:
    weights = [str(tensor.dtype).removeprefix("torch.") for tensor in program.state_dict.values()]
    most = max(set(weights), key=weights.count) if weights else "float32"
    return next((ours for ours, theirs in PRECISIONS.items() if theirs == most), most)


def program_port(node: Any) -> Port:
    value = node.meta["val"]
    shape = tuple(size if isinstance(size, int) else str(size) for size in value.shape)
    return Port(name=node.name, dtype=str(value.dtype).removeprefix("torch."), shape=shape)


def numpy_name(precision: str) -> str:
    """What an array of it is in numpy, which has no bfloat16: those are given and taken as float32."""
    return {"f16": "float16", "f64": "float64"}.get(precision, "float32")


@contextmanager
def seeded(torch: Any, seed: int) -> Iterator[None]:
    """Random numbers from a seed; the process's own sequence goes on as if nothing had been drawn."""
    with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
        torch.manual_seed(seed)
        yield


@contextmanager
def quiet() -> Iterator[None]:
    """The library's remarks about what it loads are not ours to print."""
    bars = import_module("transformers.utils.logging")
    shown, logger = bars.is_progress_bar_enabled(), logging.getLogger("transformers")
    before = logger.level
    logger.setLevel(logging.ERROR)
    bars.disable_progress_bar()
    try:
        yield
    finally:
        logger.setLevel(before)
        if shown:
            bars.enable_progress_bar()
