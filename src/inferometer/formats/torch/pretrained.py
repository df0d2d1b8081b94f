"""Hugging Face modules from their config alone: built on the meta device, where weights take no memory, and exported.

Attention and experts are asked for under our own name, through the registries transformers has for that. In their
place stand two operators that compute nothing and say everything: heads, window, cap, what is cached. So a mask is not
built, keys are not repeated for grouped queries, and routing does not depend on data, which torch.export could not
trace. Everything else is the module's own code.

One graph serves prefill and decode: a causal model is traced without a cache (`use_cache=False`), and its attention
reads `context` tokens more than the `query` it is given. Logits are computed for the last position.
"""

import inspect
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError, MissingDependencyError
from inferometer.core.graph import Block, Graph, Tensor
from inferometer.formats.torch.convert import program_graph
from inferometer.formats.torch.program import format_of
from inferometer.formats.torch.scope import rewritten
from inferometer.formats.torch.walk import program_of

# Live modules. This is the one module that imports torch, and only when a module is read.

_NAME = re.compile(r"[A-Za-z_][\w.]*")


def import_torch() -> Any:
    try:
        return import_module("torch")
    except ImportError as error:
        raise MissingDependencyError(
            f"Reading a live module needs torch, which cannot be imported: {error}.",
            remedy="pip install 'inferometer[torch]'",
        ) from None


def read_module(
    module: Any,
    example_inputs: tuple[Any, ...],
    *,
    kwargs: Mapping[str, Any] | None = None,
    name: str | None = None,
    dynamic_shapes: Any = None,
) -> Graph:
    """The graph of a `torch.nn.Module`, traced by torch.export with inputs of the shapes it takes.

    Tracing computes shapes only: neither weights nor inputs are touched, and a module on the meta device needs no
    memory at all. `dynamic_shapes` is torch.export's; sizes that it names (`torch.export.Dim("batch")`) keep their
    names in the graph. Without it every size is fixed. The module is traced in the mode it is in: `eval()` it first.
    """
    exported = export_module(module, example_inputs, kwargs=kwargs, dynamic_shapes=dynamic_shapes)
    given = _named_axes(module, example_inputs, kwargs or {}, dynamic_shapes)
    return program_graph(program_of(exported, name=name or type(module).__name__, given=given))


def read_exported(exported: Any, *, name: str = "program") -> Graph:
    """The graph of a `torch.export.ExportedProgram` that is in memory."""
    return program_graph(program_of(exported, name=name))


def export_module(
    module: Any, example_inputs: tuple[Any, ...], *, kwargs: Mapping[str, Any] | None = None, dynamic_shapes: Any = None
) -> Any:
    """The exported program of a module. Torch's errors while tracing are rephrased."""
    torch = import_torch()
    if not isinstance(module, torch.nn.Module):
        raise FormatError(
            f"A torch.nn.Module was expected, and this is a {type(module).__name__}.",
            remedy="Give a module and a tuple of inputs, or the path of a .pt2 file.",
        )
    if not isinstance(example_inputs, tuple):
        raise FormatError(
            f"Example inputs must be a tuple, and are a {type(example_inputs).__name__}.",
            remedy="Write (x,) for one input.",
        )
    try:
        with warnings.catch_warnings(), torch.no_grad():
            warnings.simplefilter("ignore")  # torch's remarks on how a module is written are no news about its work
            return torch.export.export(
                module, example_inputs, dict(kwargs or {}), dynamic_shapes=dynamic_shapes, strict=False
            )
    except Exception as error:
        # The first paragraph of a long message; torch appends how to debug torch.
        text = str(error).strip().split("\n\n")[0]
        text = " ".join(text.split())
        first_words = text if len(text) <= 600 else f"{text[:600]}…"
        raise FormatError(
            f"torch.export cannot trace {type(module).__name__}: {type(error).__name__}: {first_words}",
            remedy="If the message names a size, give it in dynamic_shapes or fix it; if it names control flow that "
            "depends on data, rewrite that with torch.cond, or export a part of the module that has none.",
        ) from error


def _named_axes(
    module: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], dynamic_shapes: Any
) -> dict[tuple[str, int], str]:
    """The names that `dynamic_shapes` gives to axes of inputs. Torch calls an input by its argument and its place."""
    try:
        arguments = inspect.signature(module.forward).bind(*args, **kwargs).arguments
    except (TypeError, ValueError):
        return {}
    if isinstance(dynamic_shapes, list | tuple):
        dynamic_shapes = dict(zip(arguments, dynamic_shapes, strict=False))
    if not isinstance(dynamic_shapes, Mapping):
        return {}
    return {
        (path, axis): name
        for argument, value in arguments.items()
        for path, axis, name in _axes(argument, value, dynamic_shapes.get(argument))
    }


def _axes(path: str, value: Any, spec: Any) -> Iterator[tuple[str, int, str]]:
    """Named axes under one argument: a tensor's own, or those of the tensors in a list or dict."""
    if hasattr(value, "dtype"):
        axes = enumerate(spec) if isinstance(spec, list | tuple) else spec.items() if isinstance(spec, Mapping) else ()
        for axis, dim in axes:
            name = getattr(dim, "__name__", None)
            if isinstance(name, str) and _NAME.fullmatch(name):
                yield path, axis, name
    elif isinstance(value, Mapping) and isinstance(spec, Mapping):
        for key, item in value.items():
            yield from _axes(f"{path}_{key}", item, spec.get(key))
    elif isinstance(value, list | tuple) and isinstance(spec, list | tuple):
        for index, (item, inner) in enumerate(zip(value, spec, strict=False)):
            yield from _axes(f"{path}_{index}", item, inner)


_OURS = "inferometer"
_BATCH, _QUERY = 2, 16  # traced with these; both stay open
_SIDE = 224  # pixels of an image, where a config does not say
_CLASSES = {
    "ForCausalLM": "AutoModelForCausalLM",
    "LMHeadModel": "AutoModelForCausalLM",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForImageClassification": "AutoModelForImageClassification",
    "Model": "AutoModel",
}


def read_pretrained_config(
    source: Mapping[str, Any] | Path | str, *, name: str | None = None, dtype: str | None = None
) -> Graph:
    """The graph of a transformers model from a config (a dict, a `config.json`, or a folder with one).

    `dtype` is torch's name for the format of the weights; else the config's own, else bfloat16. The class is the one
    the config's `architectures` names, a causal language model where it names none. Code that a checkpoint brings
    along is not run.
    """
    torch, transformers = import_torch(), _import_transformers()
    config = _config(transformers, source)
    chosen = _torch_format(torch, dtype or getattr(config, "dtype", None) or "bfloat16")
    _register()
    module = _built(torch, transformers, config, chosen)
    kwargs, shapes = _inputs(torch, module, config, chosen)
    exported = export_module(module, (), kwargs=kwargs, dynamic_shapes=shapes)
    given = {("input_ids", 0): "batch", ("input_ids", 1): "query", ("pixel_values", 0): "batch"}
    title = name or getattr(config, "name_or_path", "") or config.model_type
    graph = program_graph(
        program_of(exported, name=Path(title).name, given=given),
        architecture=config.model_type,
        context_limit=getattr(config, "max_position_embeddings", None),
    )
    return _opened(graph, format_of(str(chosen).removeprefix("torch."), chosen.itemsize))


def _import_transformers() -> Any:
    try:
        return import_module("transformers")
    except ImportError as error:
        raise MissingDependencyError(
            f"Reading a Hugging Face module needs transformers, which cannot be imported: {error}.",
            remedy="pip install transformers 'inferometer[torch]'",
        ) from None


def _config(transformers: Any, source: Mapping[str, Any] | Path | str) -> Any:
    what = "this config" if isinstance(source, Mapping) else repr(str(source))
    try:
        if not isinstance(source, Mapping):
            return transformers.AutoConfig.from_pretrained(str(source), local_files_only=True, trust_remote_code=False)
        given = dict(source)
        return transformers.AutoConfig.for_model(given.pop("model_type"), **given)
    except KeyError as error:
        raise FormatError(f"The config has no {error}.", remedy="It needs transformers' `model_type`.") from None
    except Exception as error:  # whatever its code makes of a config that it does not expect
        raise FormatError(
            f"transformers cannot read {what}: {error}", remedy="Give a config.json of an architecture it knows."
        ) from error


def _torch_format(torch: Any, name: Any) -> Any:
    dtype = getattr(torch, name, None) if isinstance(name, str) else name
    if not isinstance(dtype, torch.dtype):
        raise FormatError(f"Torch has no number format {name!r}.", remedy="Say for example 'bfloat16'.")
    return dtype


def _built(torch: Any, transformers: Any, config: Any, chosen: Any) -> Any:
    """The module on the meta device, ready to infer."""
    wanted = next(iter(getattr(config, "architectures", None) or ()), "ForCausalLM")
    kind = next((name for ending, name in _CLASSES.items() if wanted.endswith(ending)), None)
    if kind is None:
        raise FormatError(
            f"{wanted} takes inputs that are not known here.",
            remedy="Build the module under torch.device('meta') and say read_module(module, inputs).",
        )
    extra = {"experts_implementation": _OURS} if hasattr(config, "_experts_implementation") else {}
    factory = getattr(transformers, kind)
    try:
        with torch.device("meta"):
            module = factory.from_config(config, dtype=chosen, attn_implementation=_OURS, **extra)
    except Exception as error:
        raise FormatError(
            f"transformers cannot build {wanted} from its config: {error}",
            remedy="Check the config against the architecture, or upgrade transformers.",
        ) from error
    return module.eval()


def _inputs(torch: Any, module: Any, config: Any, chosen: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Inputs on the meta device, and which of their sizes stay open."""
    limit = getattr(config, "max_position_embeddings", None)
    batch = torch.export.Dim("batch")
    query = torch.export.Dim("query", min=2, max=limit) if isinstance(limit, int) else torch.export.Dim("query")
    if getattr(config, "is_encoder_decoder", False):
        raise FormatError(
            f"{type(module).__name__} has an encoder and a decoder, which run apart.",
            remedy="Read each with read_module(module, inputs).",
        )
    if module.main_input_name == "pixel_values":
        side, channels = getattr(config, "image_size", _SIDE), getattr(config, "num_channels", 3)
        height, width = side if isinstance(side, list | tuple) else (side, side)
        pixels = torch.empty(_BATCH, channels, height, width, device="meta", dtype=chosen)
        return {"pixel_values": pixels}, {"pixel_values": {0: batch}}
    if module.main_input_name != "input_ids":
        raise FormatError(
            f"{type(module).__name__} takes {module.main_input_name}, whose shape a config does not say.",
            remedy="Say read_module(module, inputs) with a module built under torch.device('meta').",
        )
    kwargs: dict[str, Any] = {"input_ids": torch.empty(_BATCH, _QUERY, dtype=torch.long, device="meta")}
    takes = inspect.signature(module.forward).parameters
    kwargs |= {name: value for name, value in {"use_cache": False, "logits_to_keep": 1}.items() if name in takes}
    return kwargs, {name: {0: batch, 1: query} if name == "input_ids" else None for name in kwargs}


@cache
def _register() -> None:
    """Define the two operators, and offer them to transformers. Both last as long as the process."""
    torch, transformers = import_torch(), _import_transformers()
    torch.library.define(
        f"{_OURS}::attention",
        "(Tensor query, Tensor key, Tensor value, bool causal, int window, bool soft_cap, bool cached) -> Tensor",
    )
    torch.library.define(
        f"{_OURS}::experts",
        "(Tensor hidden, Tensor chosen, Tensor scores, Tensor[] weights, int intermediate, bool gated, str function)"
        " -> Tensor",
    )
    torch.library.register_fake(f"{_OURS}::attention", _attention_shape)
    torch.library.register_fake(f"{_OURS}::experts", lambda hidden, *_: hidden.new_empty(hidden.shape))
    operators = torch.ops.inferometer

    def attention(module: Any, query: Any, key: Any, value: Any, mask: Any, **given: Any) -> tuple[Any, None]:
        del mask
        causal = given.get("is_causal")
        causal = bool(getattr(module, "is_causal", True) if causal is None else causal)
        window, capped = given.get("sliding_window") or 0, given.get("softcap") is not None
        return operators.attention(query, key, value, causal, int(window), capped, causal), None

    def experts(module: Any, hidden: Any, chosen: Any, scores: Any) -> Any:
        stacks = dict(module.named_parameters(recurse=False))
        down = next(stack for name, stack in stacks.items() if "down" in name and stack.dim() == 3)
        intermediate = down.shape[1] * down.shape[2] // hidden.shape[-1]
        function = str(getattr(module.config, "hidden_act", None) or "silu")
        gated = bool(getattr(module, "has_gate", True))
        return operators.experts(hidden, chosen, scores, list(stacks.values()), intermediate, gated, function)

    transformers.AttentionInterface.register(_OURS, attention)
    transformers.AttentionMaskInterface.register(_OURS, lambda *_, **__: None)
    if interface := getattr(import_module("transformers.integrations.moe"), "ExpertsInterface", None):
        interface.register(_OURS, experts)


def _attention_shape(query: Any, key: Any, value: Any, *_: Any) -> Any:
    """[batch, heads, query, head_dim] gives [batch, query, heads, value_dim]."""
    del key
    batch, heads, tokens, _width = query.shape
    return query.new_empty((batch, tokens, heads, value.shape[-1]))


def _opened(graph: Graph, precision: str | None) -> Graph:
    """The graph with the model's own format left to the workload: a config is not a stored file."""

    def tensor(found: Tensor) -> Tensor:
        return replace(found, dtype=None) if found.dtype == precision else found

    def block(found: Block) -> Block:
        return replace(found, ops=tuple(rewritten(op, tensor) for op in found.ops))

    return replace(
        graph,
        blocks=tuple(block(found) for found in graph.blocks),
        inputs=tuple(tensor(found) for found in graph.inputs),
        outputs=tuple(tensor(found) for found in graph.outputs),
        precision=precision,
    )
