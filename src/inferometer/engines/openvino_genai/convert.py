"""A Hugging Face checkpoint as a folder of OpenVINO GenAI: its network traced by OpenVINO, with the cache as its state.

The network takes ids, a mask, positions and the order of the beams, and gives logits, as those of optimum-intel do.
"""

import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.engines.order import ToolOrder
from inferometer.engines.torch.checkpoint import offline, whole_checkpoint

NETWORK = "openvino_model.xml"
_BESIDE = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
)  # fmt: skip
_GROUP = 64  # weights that share a scale in four bits; fewer where a row is no multiple of it
_TRACED = (2, 3, 2)  # sequences, tokens and cached tokens of the example that is traced


def convert(order: ToolOrder) -> Iterator[str]:
    offline()
    import openvino  # noqa: PLC0415 - an edge, in a child

    folder, notes = whole_checkpoint(order)
    yield from notes
    network = _network(folder)
    weights = order.options.get("weights")
    if weights in {"i8", "i4"}:
        network = _compressed(network, weights)
    order.target.mkdir()
    openvino.save_model(network, str(order.target / NETWORK), compress_to_fp16=weights == "f16")
    for name in _BESIDE:
        if (folder / name).is_file():
            shutil.copyfile(folder / name, order.target / name)
    if not notes:
        yield from _tokeniser(folder, order.target)


def _network(folder: Path) -> Any:
    import openvino  # noqa: PLC0415 - as above

    torch, transformers = _torch(), _transformers()
    model = _opened(transformers, folder, torch.float32)
    config = model.config
    heads = config.num_key_value_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    batch, tokens, cached = _TRACED
    cache = [tuple(torch.zeros(batch, heads, cached, size) for _ in range(2)) for _ in range(config.num_hidden_layers)]
    example = {
        "input_ids": torch.ones(batch, tokens, dtype=torch.long),
        "attention_mask": torch.ones(batch, cached + tokens, dtype=torch.long),
        "position_ids": torch.arange(cached, cached + tokens).repeat(batch, 1),
        "beam_idx": torch.arange(batch, dtype=torch.int32),
        "past": cache,
    }
    with torch.no_grad():
        try:
            network = openvino.convert_model(_stepped(model), example_input=example)
        except Exception as error:
            raise FormatError(
                f"OpenVINO could not trace {config.model_type}: {' '.join(str(error).split())[:400]}.",
                remedy="Export it with optimum-intel (`optimum-cli export openvino`), and profile that folder.",
            ) from error
    _name_ports(network, heads, size)
    return stateful(network)


def _stepped(model: Any) -> Any:
    """The module that is traced: a cache goes in as tensors and comes out as tensors."""
    caches = _transformers().cache_utils

    def layer(key: Any, value: Any) -> Any:
        made = caches.DynamicLayer()
        made.keys, made.values, made.dtype, made.device = key, value, key.dtype, key.device
        made.is_initialized = True  # it would begin with an empty tensor of another rank
        return made

    def forward(  # noqa: PLR0913, PLR0917 - the inputs of the network, by the names that they shall have
        self: Any, input_ids: Any, attention_mask: Any, position_ids: Any, beam_idx: Any, past: Any
    ) -> Any:
        cache = caches.DynamicCache()
        cache.layers = [layer(*(part.index_select(0, beam_idx) for part in pair)) for pair in past]
        made = self.model(
            input_ids=input_ids, attention_mask=_mask(input_ids, attention_mask), position_ids=position_ids,
            past_key_values=cache, use_cache=True,
        )  # fmt: skip
        return (made.logits, *(part for entry in cache.layers for part in (entry.keys, entry.values)))

    stepped = type("Stepped", (_torch().nn.Module,), {"forward": forward})()
    stepped.model = model
    return stepped


def _opened(transformers: Any, folder: Path, dtype: Any) -> Any:
    """With attention as one operator, which OpenVINO fuses; step by step where the family has no other, as Gemma 2."""
    for way in ("sdpa", "eager"):
        with suppress(ValueError):
            load = transformers.AutoModelForCausalLM.from_pretrained
            return load(
                str(folder), dtype=dtype, attn_implementation=way, use_safetensors=True, trust_remote_code=False
            ).eval()
    raise FormatError(
        "transformers opens the checkpoint with no kind of attention that can be traced.",
        remedy="Prepare the model for another engine: `inferometer runtimes` lists them.",
    )


def _torch() -> Any:
    return import_module("torch")


def _transformers() -> Any:
    return import_module("transformers")


def _mask(input_ids: Any, attention_mask: Any) -> Any:
    """What each token may look at, as numbers to add: itself and those before it that are no padding."""
    torch = _torch()
    tokens, total = input_ids.shape[1], attention_mask.shape[1]
    before = torch.arange(total)[None, None, :] <= (torch.arange(tokens) + (total - tokens))[None, :, None]
    seen = torch.logical_and(before, attention_mask[:, None, :].bool())
    return torch.where(seen, 0.0, torch.finfo(torch.float32).min)[:, None]


def _name_ports(network: Any, heads: int, size: int) -> None:
    import openvino  # noqa: PLC0415 - as above

    names = ("input_ids", "attention_mask", "position_ids", "beam_idx")
    for port, name in zip(network.inputs, names, strict=False):
        port.get_tensor().set_names({name})
        port.get_node().set_friendly_name(name)
    network.outputs[0].get_tensor().set_names({"logits"})
    for index, (port, result) in enumerate(zip(network.inputs[len(names) :], network.outputs[1:], strict=True)):
        part = f"{index // 2}.{'value' if index % 2 else 'key'}"
        port.get_tensor().set_names({f"past_key_values.{part}"})
        result.get_tensor().set_names({f"present.{part}"})
        port.get_node().set_partial_shape(openvino.PartialShape([-1, heads, -1, size]))
    network.validate_nodes_and_infer_types()


def stateful(network: Any) -> Any:
    """The cache as the network's state: empty at first, for as many sequences as there are ids."""
    import numpy as np  # noqa: PLC0415 - as above
    from openvino import opset13  # noqa: PLC0415 - as above
    from openvino._offline_transformations import (  # noqa: PLC0415 - as above; it has no public name
        apply_make_stateful_transformation,
    )

    taken = {name for port in network.inputs for name in port.get_names() if name.startswith("past_key_values.")}
    apply_make_stateful_transformation(network, _pairs(taken))
    rows = opset13.shape_of(network.input("input_ids"), output_type="i64")
    batch = opset13.gather(rows, opset13.constant([0]), opset13.constant(0))
    for operation in network.get_ops():
        if operation.get_type_name() == "ReadValue":
            sizes = [axis.min_length for axis in operation.get_output_partial_shape(0)][1:]
            shape = opset13.concat([batch, opset13.constant(np.array(sizes, np.int64))], axis=0)
            nothing = opset13.constant(0.0, dtype=operation.get_output_element_type(0))
            operation.set_arguments([opset13.broadcast(nothing, shape)])
    network.validate_nodes_and_infer_types()
    return network


def _pairs(taken: set[str]) -> Mapping[str, str]:
    return {name: name.replace("past_key_values.", "present.") for name in sorted(taken)}


def _compressed(network: Any, weights: str) -> Any:
    import nncf  # noqa: PLC0415 - as above

    logging.getLogger("nncf").setLevel(logging.ERROR)
    if weights == "i8":
        return nncf.compress_weights(network, mode=nncf.CompressWeightsMode.INT8_SYM)
    return nncf.compress_weights(network, mode=nncf.CompressWeightsMode.INT4_SYM, group_size=_GROUP, ratio=1.0)


def _tokeniser(folder: Path, target: Path) -> Iterator[str]:
    """The tokeniser as networks of OpenVINO's, so that the folder answers words too."""
    try:
        import openvino  # noqa: PLC0415 - as above
        from openvino_tokenizers import convert_tokenizer  # noqa: PLC0415 - as above
    except ImportError:
        yield "openvino-tokenizers is not installed: the folder takes token ids alone."
        return
    with suppress(Exception):  # many kinds of tokenisers are not convertible, and ids serve without one
        into, back = convert_tokenizer(
            _transformers().AutoTokenizer.from_pretrained(str(folder), trust_remote_code=False), with_detokenizer=True
        )
        openvino.save_model(into, str(target / "openvino_tokenizer.xml"))
        openvino.save_model(back, str(target / "openvino_detokenizer.xml"))
        return
    yield "OpenVINO could not convert the tokeniser: the folder takes token ids alone."
