"""A model with an encoder and a decoder (Whisper, T5): its decoder called as a language model is, once it has encoded.

What the decoder reads of the encoder in every layer, keys and values over its states, is made where the encoder runs,
once a request, as serving engines do and as it is predicted. transformers would make it in the decoder's first pass.
"""

from __future__ import annotations

import inspect
from importlib import import_module
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import EngineError
from inferometer.engines.torch.engine import PRECISIONS, import_transformers

if TYPE_CHECKING:
    from inferometer.engines.torch.host import TorchHost

_CROSS = (".encoder_attn", ".EncDecAttention")  # what transformers calls attention to the encoder: BART's and T5's kin


def encodes(config: Any) -> bool:
    return bool(getattr(config, "is_encoder_decoder", False))


class Seq2Seq:
    """Holds the encoder's states and the keys and values over them: the same tensors from one request to the next."""

    def __init__(self, host: TorchHost) -> None:
        self._host, self._model, self._torch = host, host.module.model, host.torch
        self._encoder = self._model.get_encoder()
        self._takes_positions = "decoder_position_ids" in inspect.signature(self._model.forward).parameters
        # What makes keys and values, a layer after the other, with the width of a head.
        self._readers: list[tuple[int, Any]] = []
        for name, module in self._model.named_modules():
            if name.endswith(_CROSS):
                t5 = hasattr(module, "key_value_proj_dim")
                width = module.key_value_proj_dim if t5 else module.head_dim
                self._readers += [
                    (width, each) for each in ((module.k, module.v) if t5 else (module.k_proj, module.v_proj))
                ]
        if not self._readers:
            raise EngineError(
                f"{type(self._model).__name__} attends to its encoder in a way that is not known here.",
                remedy="Export the model with torch.export and profile the .pt2 file.",
            )
        self._states: Any = None
        self._kept: Any = None  # a cache of transformers with the keys and values over the states

    @property
    def takes(self) -> frozenset[str]:
        """Of a language model's arguments, those that the decoder has."""
        return frozenset({"past_key_values", *(["position_ids"] if self._takes_positions else [])})

    @property
    def reads_prompt(self) -> bool:
        """Whether the encoder reads the tokens of a prompt; else sound, or a picture, and the decoder reads them."""
        return self._host.module.inputs[0].name == "input_ids"

    @property
    def start(self) -> tuple[int, ...]:
        """What the decoder begins with where the encoder has the prompt."""
        config = self._model.config
        return (int(getattr(config, "decoder_start_token_id", None) or 0),)

    def source(self, prompt: tuple[int, ...]) -> Any:
        """What the encoder reads, on the host: the prompt's tokens, or noise of the shape that the model takes."""
        torch, target, port = self._torch, self._host.target, self._host.module.inputs[0]
        if self.reads_prompt:
            return torch.tensor([prompt], dtype=torch.long).expand(target.batch, len(prompt)).contiguous()
        draw = torch.Generator().manual_seed(target.seed)
        kind = getattr(torch, PRECISIONS[self._host.module.precision])
        return torch.randn((target.batch, *port.shape[1:]), generator=draw).to(kind)

    def encode(self, source: Any, *, in_place: bool = False) -> None:
        """In place where there is room already: a graph and a compiled step read where they were made."""
        states = self._encoder(source).last_hidden_state
        batch, count, _ = states.shape
        made = [each(states).view(batch, count, -1, width).transpose(1, 2) for width, each in self._readers]
        if in_place and self._states is not None and self._states.shape == states.shape:
            layers = self._kept.layers
            room = [self._states, *(each for layer in layers for each in (layer.keys, layer.values))]
            for old, new in zip(room, [states, *made], strict=True):
                old.copy_(new)
            return
        self._states, self._kept = states, import_transformers().DynamicCache()
        for place, (keys, values) in enumerate(zip(made[::2], made[1::2], strict=True)):
            self._kept.update(keys, values, place)

    def score(self, ids: tuple[int, ...]) -> Any:
        """Logits after each of the decoder's tokens; the encoder reads the same where it reads tokens."""
        source, device = self.source(ids)[:1].to(self._host.place.device), self._host.place.device
        given = {self._host.module.inputs[0].name: source}
        return self._model(**given, decoder_input_ids=self._torch.tensor([ids], device=device), use_cache=False).logits

    def cache(self, own: Any = None) -> Any:
        """The decoder's own cache, beside what it reads of the encoder."""
        library = import_transformers()
        return library.EncoderDecoderCache(library.DynamicCache() if own is None else own, self._kept)

    def __call__(self, *, input_ids: Any, past_key_values: Any = None, use_cache: bool = True, **given: Any) -> Any:
        """As a language model is called; without a cache of its own yet it begins one."""
        states = import_module("transformers.modeling_outputs").BaseModelOutput(last_hidden_state=self._states)
        positions = {"decoder_position_ids": given["position_ids"]} if "position_ids" in given else {}
        return self._model(
            encoder_outputs=states, decoder_input_ids=input_ids, use_cache=use_cache, **positions,
            past_key_values=self.cache() if past_key_values is None else past_key_values,
        )  # fmt: skip
