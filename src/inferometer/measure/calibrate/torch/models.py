"""Probe models for torch: small decoders, encoders and convolutional networks with random weights, run whole.

They do what transformers and torchvision do, op by op, at sizes that no published model has: root-mean-square norms in
single precision, rotary embeddings, a cache of fixed length with a mask if the runtime captures graphs, a growing one
if it does not, batch norms that are not folded. So their steps include what the runtime itself does (fusion, launches,
masks), and no model that predictions are tested on is in the fit. A runtime that calls modules one by one is given
transformers' own, where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from inferometer.core.engine import RuntimeEffects
from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting.points import StepPoint
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate
from inferometer.measure.calibrate.torch.kernels import padding_mask, repeated, routed, torch_dtype
from inferometer.measure.calibrate.torch.timing import Clock, KernelTiming

# Probe models as transformers builds them, for a runtime that calls its modules one by one.
#
# There a step takes as long as its Python does: the calls of modules, and what transformers does around them, are most
# of a small step, and a model of bare functions has none of it.


def builds_modules() -> bool:
    return find_spec("transformers") is not None


def module_weights(net: Any, config: Mapping[str, Any]) -> Any:
    transformers = import_module("transformers")
    stated = {name: value for name, value in config.items() if name not in {"model_type", "architectures"}}
    with net.torch.device(net.place):
        model = getattr(transformers, config["architectures"][0])(
            transformers.AutoConfig.for_model(config["model_type"], **stated)
        )
    return model.to(net.format).eval()


def module_call(net: Any, run: Any, masked: bool, config: Mapping[str, Any]) -> Callable[[], Any]:
    del masked  # the model decides
    torch, model = net.torch, net.weights
    if run.image is not None:
        pixels = net.new(run.batch, config["num_channels"], run.image, run.image)
        return lambda: model(pixel_values=pixels)
    ids = torch.randint(0, config["vocab_size"], (run.batch, run.query), device=net.place)
    if run.phase == "forward":
        return lambda: model(input_ids=ids)
    if not run.context:
        return lambda: model(input_ids=ids, use_cache=True, logits_to_keep=1)
    cache = import_module("transformers").DynamicCache(config=model.config)
    for layer in range(config["num_hidden_layers"]):
        shape = (run.batch, config["num_key_value_heads"], run.context, config["head_dim"])
        cache.update(net.new(*shape), net.new(*shape), layer)

    def step() -> None:
        model(input_ids=ids, past_key_values=cache, use_cache=True)
        cache.crop(-run.query)

    return step


def _decoder(hidden: int, inner: int, layers: int, heads: tuple[int, int, int], vocabulary: int) -> dict[str, Any]:
    return {
        "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": hidden,
        "intermediate_size": inner, "num_hidden_layers": layers, "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1], "head_dim": heads[2], "vocab_size": vocabulary,
        "max_position_embeddings": 65536, "tie_word_embeddings": False, "hidden_act": "silu", "torch_dtype": "float32",
    }  # fmt: skip


def _mixture(
    hidden: int, inner: int, layers: int, heads: tuple[int, int, int], experts: tuple[int, int]
) -> dict[str, Any]:
    """A decoder whose layers have `experts`: how many there are, and how many each token passes through."""
    return {
        **_decoder(hidden, inner, layers, heads, 32768), "model_type": "mixtral",
        "architectures": ["MixtralForCausalLM"], "num_local_experts": experts[0], "num_experts_per_tok": experts[1],
    }  # fmt: skip


def _encoder(hidden: int, layers: int, heads: int) -> dict[str, Any]:
    return {
        "model_type": "bert", "architectures": ["BertModel"], "hidden_size": hidden, "intermediate_size": 4 * hidden,
        "num_hidden_layers": layers, "num_attention_heads": heads, "vocab_size": 8000, "max_position_embeddings": 512,
        "type_vocab_size": 2, "hidden_act": "gelu", "torch_dtype": "float32",
    }  # fmt: skip


def _bottlenecks(sizes: tuple[int, ...], depths: tuple[int, ...]) -> dict[str, Any]:
    return {
        "model_type": "resnet", "architectures": ["ResNetForImageClassification"], "embedding_size": sizes[0] // 4,
        "hidden_sizes": list(sizes), "depths": list(depths), "layer_type": "bottleneck",
        "downsample_in_first_stage": False, "downsample_in_bottleneck": False, "image_size": 224, "num_channels": 3,
        "num_labels": 100, "hidden_act": "relu", "torch_dtype": "float32",
    }  # fmt: skip


PROBES: dict[str, dict[str, Any]] = {
    "probe-decoder-a": _decoder(1536, 6144, 6, (24, 8, 64), 16384),
    "probe-decoder-b": _decoder(2560, 6912, 4, (20, 4, 128), 49152),
    "probe-decoder-c": _decoder(3584, 12288, 3, (28, 28, 128), 32768),
    "probe-decoder-d": _decoder(768, 3072, 8, (12, 2, 64), 65536),
    "probe-mixture-a": _mixture(1536, 640, 5, (24, 6, 64), (48, 6)),
    "probe-mixture-b": _mixture(2304, 896, 3, (18, 3, 128), (96, 8)),
    "probe-encoder-a": _encoder(512, 6, 8),
    "probe-encoder-b": _encoder(1024, 4, 16),
    "probe-cnn-a": _bottlenecks((192, 384, 768, 1536), (2, 2, 3, 2)),
    "probe-cnn-b": _bottlenecks((320, 640, 1280, 2560), (1, 2, 2, 1)),
}
TINY = {
    "probe-decoder-tiny": _decoder(64, 128, 2, (4, 2, 16), 256),
    "probe-mixture-tiny": _mixture(64, 48, 2, (4, 2, 16), (4, 2)),
    "probe-encoder-tiny": _encoder(64, 1, 4),
    "probe-cnn-tiny": _bottlenecks((32, 64), (1, 1)),
}
# (batch, tokens): no powers of two, which kernels are tuned for and requests seldom have; from latency to full units.
_PROMPTS = ((1, 96), (1, 256), (1, 400), (1, 1000), (1, 3000), (1, 10000), (6, 160), (6, 700), (6, 2500))
_STEPS = (
    (1, 100), (1, 1500), (1, 6000), (1, 20000), (6, 300), (6, 3000), (6, 12000), (24, 200), (24, 1500), (48, 700),
)  # fmt: skip
_FORWARDS = ((1, 48), (1, 160), (6, 100), (24, 160), (100, 120), (6, 420))
_IMAGES = (1, 6, 24, 100)  # batches by fours: latency, two between, and full units


@frozen
class _Run:
    model: str
    phase: str
    batch: int
    query: int = 1
    context: int = 0
    image: int | None = None

    @property
    def key(self) -> str:
        return f"step {self.model} {self.phase} {self.batch} x {self.query} + {self.context}"


@dataclass(slots=True, kw_only=True)
class ProbeModels:
    """The provider of whole steps for one runtime and format."""

    clock: Clock
    runtime: RuntimeEffects
    dtype: str
    probes: Mapping[str, dict[str, Any]] = field(default_factory=lambda: PROBES)
    most: int | None = None  # tokens or images of a run, for tests
    _runs: dict[str, _Run] = field(default_factory=dict)
    _kept: tuple[str, Any] | None = None

    def candidates(self) -> list[ProbeCandidate]:
        """Compiling takes seconds a case, so a runtime that compiles is given fewer of them."""
        slow = 8.0 if self.runtime.execution == "compiled" and self.clock.cuda else 1.0
        self._runs = {run.key: run for run in self._all()}
        return [
            ProbeCandidate(
                key=run.key,
                op_class=f"step.{run.phase}",
                seconds=slow,
                probe=run.model,
                weight=1.0 if run.phase == "forward" else 2.0,
            )
            for run in self._runs.values()
        ]

    def _all(self) -> Iterator[_Run]:
        for name, config in self.probes.items():
            for run in _runs_of(name, config, self.dtype):
                if self.most is None or max(run.batch * run.query, run.context) <= self.most:
                    yield run

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        run = self._runs[candidate.key]
        config = self.probes[run.model]
        if self._kept is None or self._kept[0] != run.model:
            self._kept = None  # before the next is made: two may not fit
            form = torch_dtype(self.clock.torch, self.dtype)
            by_modules = self.runtime.execution == "launched" and builds_modules()
            self._kept = (run.model, _made(self.clock, config, form, modules=by_modules))
        with self.clock.torch.inference_mode():
            timing = self._timed(self._kept[1], run, config)
        step = StepPoint(
            model=run.model, phase=run.phase, seconds=timing.seconds, dtype=self.dtype, config=config,
            batch=run.batch, query=run.query, context=run.context, image=run.image,
        )  # fmt: skip
        return CandidateResult(steps=(step,), runs=timing.runs)

    def _timed(self, net: _Net, run: _Run, config: Mapping[str, Any]) -> KernelTiming:
        masked = self.runtime.attention != "flash"
        call = net.prepared(run, masked=masked, config=config)
        if self.runtime.execution == "compiled" and self.clock.cuda:
            self.clock.torch.compiler.reset()
            call = self.clock.torch.compile(call, dynamic=False)
        captured = self.runtime.execution == "captured" or run.phase in self.runtime.on("gpu").captured
        return self.clock.replayed(call, wall=True) if captured else self.clock.wall(call)


def _runs_of(name: str, config: Mapping[str, Any], dtype: str) -> Iterator[_Run]:
    kind = config["model_type"]
    if kind in {"llama", "mixtral"} and dtype != "f32":
        yield from (_Run(model=name, phase="prefill", batch=batch, query=query) for batch, query in _PROMPTS)
        yield from (_Run(model=name, phase="decode", batch=batch, context=context) for batch, context in _STEPS)
    elif kind == "bert":
        yield from (_Run(model=name, phase="forward", batch=batch, query=query) for batch, query in _FORWARDS)
    elif kind == "resnet":
        yield from (_Run(model=name, phase="forward", batch=batch, image=224) for batch in _IMAGES)


@frozen
class _Net:
    torch: Any
    place: str
    format: Any
    weights: Any
    build: Callable[[_Net, _Run, bool, Mapping[str, Any]], Callable[[], Any]]

    def new(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device=self.place, dtype=self.format) * 0.02

    def prepared(self, run: _Run, *, masked: bool, config: Mapping[str, Any]) -> Callable[[], Any]:
        return self.build(self, run, masked, config)


def _made(clock: Clock, config: Mapping[str, Any], form: Any, *, modules: bool = False) -> _Net:
    decoder = (_decoder_weights, _decoder_call)
    makers = {"llama": decoder, "mixtral": decoder, "bert": (_encoder_weights, _encoder_call)}
    weights, call = makers.get(config["model_type"], (_cnn_weights, _cnn_call))
    if modules:
        weights, call = module_weights, module_call
    bare = _Net(torch=clock.torch, place=clock.place, format=form, weights=None, build=call)
    return _Net(torch=clock.torch, place=clock.place, format=form, weights=weights(bare, config), build=call)


# a decoder


def _decoder_weights(net: _Net, config: Mapping[str, Any]) -> dict[str, Any]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    wide, narrow = (config[name] * config["head_dim"] for name in ("num_attention_heads", "num_key_value_heads"))
    shapes: dict[str, tuple[int, ...]] = {
        "q": (wide, hidden),
        "k": (narrow, hidden),
        "v": (narrow, hidden),
        "o": (hidden, wide),
    }
    if experts := config.get("num_local_experts"):
        shapes |= {"router": (experts, hidden), "both": (experts, 2 * inner, hidden), "down": (experts, hidden, inner)}
    else:
        shapes |= {"gate": (inner, hidden), "up": (inner, hidden), "down": (hidden, inner)}
    shapes |= {"norm1": (hidden,), "norm2": (hidden,)}
    layers = [{name: net.new(*shape) for name, shape in shapes.items()} for _ in range(config["num_hidden_layers"])]
    return {
        "embed": net.new(config["vocab_size"], hidden), "head": net.new(config["vocab_size"], hidden),
        "norm": net.new(hidden), "layers": layers,
    }  # fmt: skip


def _decoder_call(net: _Net, run: _Run, masked: bool, config: Mapping[str, Any]) -> Callable[[], Any]:
    torch, held = net.torch, net.weights
    dim, own = config["head_dim"], config["num_key_value_heads"]
    ids = torch.randint(0, config["vocab_size"], (run.batch, run.query), device=net.place)
    length = run.context + run.query
    place = torch.arange(run.context, length, device=net.place)
    angles = place[:, None].float() / 10000.0 ** (torch.arange(0, dim, 2, device=net.place).float() / dim)
    turns = torch.cat([angles, angles], dim=-1)
    cos, sin = turns.cos().to(net.format), turns.sin().to(net.format)
    caches = [[net.new(run.batch, own, length, dim) for _ in range(2)] for _ in held["layers"]] if run.context else None
    mask = _mask(torch, run, net.place) if masked else None

    def call() -> Any:
        x = torch.nn.functional.embedding(ids, held["embed"])
        for number, layer in enumerate(held["layers"]):
            cache = None if caches is None else caches[number]
            x = _decoder_layer(torch, layer, x, (cos, sin), cache, (place, mask, dim))
            inside = _fed_forward if "gate" in layer else partial(_routed_forward, config["num_experts_per_tok"])
            x = x + inside(torch, layer, _rms(torch, x, layer["norm2"]))
        x = _rms(torch, x, held["norm"])
        return torch.nn.functional.linear(x[:, -1:], held["head"])

    return call


def _mask(torch: Any, run: _Run, place: str) -> Any:
    length = run.context + run.query
    reach = torch.arange(run.context, length, device=place)[:, None] >= torch.arange(length, device=place)[None]
    return reach[None, None].expand(run.batch, 1, run.query, length)


def _decoder_layer(  # noqa: PLR0913, PLR0917 - a layer's tensors: attention, and what it is added to
    torch: Any, layer: dict[str, Any], x: Any, turns: Any, cache: Any, rest: tuple[Any, Any, int]
) -> Any:
    place, mask, dim = rest
    linear = torch.nn.functional.linear
    h = _rms(torch, x, layer["norm1"])
    q, k, v = (linear(h, layer[name]).unflatten(-1, (-1, dim)).transpose(1, 2) for name in ("q", "k", "v"))
    q, k = (heads * turns[0] + _turned(torch, heads) * turns[1] for heads in (q, k))
    k, v = _with_cache(torch, k, v, cache, place, fixed=mask is not None)
    attend = torch.nn.functional.scaled_dot_product_attention
    if mask is None:
        attended = attend(q, k, v, is_causal=q.shape[2] > 1, enable_gqa=q.shape[1] != k.shape[1])
    else:
        attended = attend(q, *(repeated(cache, q.shape[1]) for cache in (k, v)), attn_mask=mask)
    return x + linear(attended.transpose(1, 2).flatten(2), layer["o"])


def _fed_forward(torch: Any, layer: dict[str, Any], h: Any) -> Any:
    linear = torch.nn.functional.linear
    inner = torch.nn.functional.silu(linear(h, layer["gate"])) * linear(h, layer["up"])
    return linear(inner, layer["down"])


def _routed_forward(chosen: int, torch: Any, layer: dict[str, Any], h: Any) -> Any:
    rows = h.flatten(0, 1)
    scores = torch.nn.functional.linear(rows, layer["router"]).softmax(dim=-1, dtype=torch.float)
    best, places = scores.topk(chosen, dim=-1)
    weights = (best / best.sum(dim=-1, keepdim=True)).to(h.dtype)
    return routed(torch, rows, places, weights, layer["both"], layer["down"]).view_as(h)


def _rms(torch: Any, x: Any, weight: Any) -> Any:
    wide = x.float()
    wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-5)
    return weight * wide.to(x.dtype)


def _turned(torch: Any, x: Any) -> Any:
    half = x.shape[-1] // 2
    return torch.cat([-x[..., half:], x[..., :half]], dim=-1)


def _with_cache(torch: Any, k: Any, v: Any, cache: Any, place: Any, *, fixed: bool) -> tuple[Any, Any]:  # noqa: PLR0913 - as above
    """Written into a cache of fixed length, or appended to a copy of one that grows."""
    if cache is None:
        return k, v
    keys, values = cache
    if fixed:
        keys.index_copy_(2, place, k)
        values.index_copy_(2, place, v)
        return keys, values
    new = k.shape[2]
    return torch.cat([keys[:, :, :-new], k], dim=2), torch.cat([values[:, :, :-new], v], dim=2)


# an encoder


def _encoder_weights(net: _Net, config: Mapping[str, Any]) -> dict[str, Any]:
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    shapes = {"q": (hidden, hidden), "k": (hidden, hidden), "v": (hidden, hidden), "o": (hidden, hidden),
              "up": (inner, hidden), "down": (hidden, inner)}  # fmt: skip
    layers = [
        {name: (net.new(*shape), net.new(shape[0])) for name, shape in shapes.items()}
        | {name: (net.new(hidden), net.new(hidden)) for name in ("norm1", "norm2")}
        for _ in range(config["num_hidden_layers"])
    ]
    tables = [net.new(config[name], hidden) for name in ("vocab_size", "max_position_embeddings", "type_vocab_size")]
    return {"tables": tables, "norm": (net.new(hidden), net.new(hidden)), "layers": layers,
            "pool": (net.new(hidden, hidden), net.new(hidden))}  # fmt: skip


def _encoder_call(net: _Net, run: _Run, masked: bool, config: Mapping[str, Any]) -> Callable[[], Any]:
    torch, held, hidden = net.torch, net.weights, config["hidden_size"]
    functional = torch.nn.functional
    shape = (run.batch, run.query)
    ids = torch.randint(0, config["vocab_size"], shape, device=net.place)
    places, kinds = (
        torch.arange(run.query, device=net.place)[None],
        torch.zeros(shape, device=net.place, dtype=torch.long),
    )
    mask = padding_mask(torch, run.batch, run.query, net.place) if masked else None

    def call() -> Any:
        words, spots, types = held["tables"]
        x = functional.embedding(ids, words) + functional.embedding(places, spots) + functional.embedding(kinds, types)
        x = functional.layer_norm(x, (hidden,), *held["norm"])
        for layer in held["layers"]:
            q, k, v = (
                functional.linear(x, *layer[name]).unflatten(-1, (config["num_attention_heads"], -1)).transpose(1, 2)
                for name in ("q", "k", "v")
            )
            attended = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).flatten(2)
            x = functional.layer_norm(x + functional.linear(attended, *layer["o"]), (hidden,), *layer["norm1"])
            inner = functional.gelu(functional.linear(x, *layer["up"]))
            x = functional.layer_norm(x + functional.linear(inner, *layer["down"]), (hidden,), *layer["norm2"])
        return torch.tanh(functional.linear(x[:, 0], *held["pool"]))

    return call


# a convolutional network of bottlenecks


def _cnn_weights(net: _Net, config: Mapping[str, Any]) -> Any:
    """As torchvision builds them: convolution, batch norm and ReLU apart, the shortcut added at the end."""
    torch = net.torch
    nn = torch.nn

    def unit(inputs: int, outputs: int, kernel: int, stride: int = 1) -> list[Any]:
        return [nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False), nn.BatchNorm2d(outputs)]

    stem = [*unit(3, config["embedding_size"], 7, 2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    parts: list[Any] = [nn.Sequential(*stem)]
    wide = config["embedding_size"]
    for index, (size, depth) in enumerate(zip(config["hidden_sizes"], config["depths"], strict=True)):
        for number in range(depth):
            stride = 2 if number == 0 and index > 0 else 1
            main = nn.Sequential(
                *unit(wide, size // 4, 1), nn.ReLU(inplace=True), *unit(size // 4, size // 4, 3, stride),
                nn.ReLU(inplace=True), *unit(size // 4, size, 1),
            )  # fmt: skip
            short = nn.Sequential(*unit(wide, size, 1, stride)) if number == 0 else nn.Identity()
            parts.append(nn.ModuleList([main, short]))
            wide = size
    parts.append(nn.Linear(wide, config["num_labels"]))
    return nn.ModuleList(parts).to(net.place, net.format).eval()


def _cnn_call(net: _Net, run: _Run, masked: bool, config: Mapping[str, Any]) -> Callable[[], Any]:
    del masked, config  # nothing to attend to, and the sizes are in the weights
    torch, held = net.torch, net.weights
    side = run.image or 224
    x = torch.randn(run.batch, 3, side, side, device=net.place, dtype=net.format)

    def call() -> Any:
        h = held[0](x)
        for part in list(held)[1:-1]:
            h = torch.relu_(part[0](h) + part[1](h))
        return held[-1](h.mean(dim=(2, 3)))

    return call
