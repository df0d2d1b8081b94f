"""Kernels of torch to measure alone: products, attention, convolutions and element-wise ops.

Each case is a `Single` (the op as the cost model sees it) and a torch function that computes it. Weights and key-value
caches are cycled through more memory than any cache holds, so that they come from main memory as they do in a model;
activations are not, because the op before has just written them. Attention runs as the runtime runs it: with a fused
causal kernel, or with a mask and a cache repeated for every query head.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from inferometer.core.errors import DomainError
from inferometer.core.frozen import frozen
from inferometer.measure.calibrate.fitting import single as ops
from inferometer.measure.calibrate.fitting.fit import class_for
from inferometer.measure.calibrate.fitting.points import OpPoint, measured_point
from inferometer.measure.calibrate.fitting.single import Single
from inferometer.measure.calibrate.run import CandidateResult, ProbeCandidate
from inferometer.measure.calibrate.torch.timing import Clock, KernelTiming

if TYPE_CHECKING:
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects

_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_CYCLED_BYTES = 600_000_000  # beyond any cache
_AGAIN = 4  # calls in one replay, if nothing is cycled
_WINDOWS = (  # side, stride, and how many channels share one: all, if 0
    (1, 1, 0), (1, 2, 0), (3, 1, 0), (3, 2, 0), (3, 1, 24), (3, 2, 24), (3, 1, 1), (3, 2, 1), (5, 1, 1), (5, 2, 1),
    (7, 1, 1), (3, 1, 8), (3, 2, 8), (3, 1, 48),
)  # fmt: skip
_WINDOW = 50  # patches: attention over fewer is over one window of an image
_STREAMED_BYTES = 400_000_000  # an op that moves more shows the bandwidth of main memory, not of a cache


@frozen
class KernelSizes:
    """The shapes to measure. Tests pass smaller ones.

    They are the shapes of no well-known model, so that predictions for one are never predictions of what was measured,
    and lie off the powers of two that workloads are usually asked for.
    """

    rows: tuple[int, ...] = (
        1, 2, 4, 7, 12, 20, 32, 48, 80, 128, 192, 256, 320, 448, 640, 896, 1280, 1792, 2560, 3584, 5120, 7168, 10240,
        16384,
    )  # fmt: skip
    weights: tuple[tuple[int, int], ...] = (
        (640, 640), (704, 2816), (2816, 704), (1152, 384), (1152, 1152), (1152, 4608), (4608, 1152), (1728, 1728),
        (1728, 5184), (5184, 1728), (2432, 608), (2432, 2432), (2432, 8512), (8512, 2432), (3328, 832), (3328, 3328),
        (3328, 11648), (11648, 3328), (4608, 4608), (4608, 15360), (15360, 4608), (6656, 6656), (6656, 18432),
        (1152, 60416), (2432, 36864), (4608, 98304),
    )  # fmt: skip
    biased: tuple[tuple[int, int], ...] = (
        (640, 640), (704, 2816), (2816, 704), (1152, 384), (1152, 1152), (1152, 4608), (4608, 1152), (1728, 1728),
        (1728, 5184), (5184, 1728), (2432, 2432), (3328, 3328), (4608, 4608),
    )  # fmt: skip
    experts: tuple[tuple[int, int, int, int], ...] = (
        (1152, 512, 64, 4), (1536, 640, 48, 6), (2304, 896, 96, 8), (3328, 4608, 12, 2),
    )  # fmt: skip
    heads: tuple[tuple[int, int, int], ...] = (
        (20, 5, 128), (18, 18, 64), (28, 7, 128), (10, 10, 64), (36, 36, 128), (15, 3, 64), (24, 6, 64), (12, 6, 256),
        (48, 6, 128),
    )  # fmt: skip
    batches: tuple[int, ...] = (1, 3, 12, 40)  # of sequences
    queries: tuple[int, ...] = (96, 192, 320, 640, 1280, 2560, 5120, 10240)
    contexts: tuple[int, ...] = (96, 384, 1200, 3000, 6000, 12000, 24000, 40000)
    elements: tuple[int, ...] = tuple(int(2 ** (power / 2)) // 1024 * 1024 or 512 for power in (19, *range(21, 59)))
    images: tuple[int, ...] = (1, 3, 12, 40, 100)  # in a batch
    planes: tuple[tuple[int, int, int], ...] = (
        (80, 80, 60), (144, 144, 30), (288, 288, 15), (576, 576, 8), (80, 320, 60), (320, 80, 60), (640, 160, 30),
        (160, 640, 30), (1152, 288, 15), (288, 1152, 15), (2304, 576, 8), (112, 112, 100), (176, 176, 22),
        (416, 416, 15), (72, 144, 100), (336, 336, 52), (56, 224, 60), (24, 24, 116), (40, 160, 72), (736, 120, 8),
        (24, 144, 60), (144, 48, 30), (48, 288, 26), (432, 72, 15), (816, 136, 13), (136, 816, 13), (1104, 1104, 8),
        (600, 2400, 8), (48, 48, 60), (72, 336, 60), (208, 208, 30), (1440, 480, 15), (24, 96, 104), (312, 624, 22),
        (192, 192, 52), (192, 192, 30), (192, 192, 60), (320, 320, 26), (320, 320, 36), (448, 448, 13), (448, 448, 20),
        (704, 704, 9), (192, 768, 26), (768, 192, 26), (960, 320, 13), (192, 576, 44), (384, 768, 18), (1216, 448, 10),
    )  # fmt: skip
    points: tuple[tuple[int, int], ...] = (
        (24, 72), (40, 120), (88, 264), (104, 52), (168, 504), (224, 112), (264, 1056), (304, 76), (352, 704),
        (440, 110), (528, 528), (672, 168), (848, 212), (900, 1800), (1208, 302), (1320, 1320), (1664, 832),
        (2112, 528),
    )  # fmt: skip
    sides: tuple[int, ...] = (9, 11, 18, 20, 22, 26, 36, 44, 68, 92)
    stems: tuple[tuple[int, int, int, int], ...] = (
        (7, 2, 48, 240), (7, 2, 80, 200), (3, 2, 24, 240), (3, 2, 40, 200), (3, 1, 40, 240), (3, 1, 80, 200),
        (16, 16, 640, 240), (16, 16, 1152, 208), (14, 14, 900, 210), (4, 4, 80, 240), (4, 4, 144, 200),
        (8, 8, 400, 240),
    )  # fmt: skip
    patches: tuple[tuple[int, int, int], ...] = (
        (10, 64, 210), (14, 64, 180), (5, 64, 600), (14, 80, 270), (10, 64, 60), (4, 32, 36), (20, 32, 36),
        (6, 64, 101), (18, 64, 150), (10, 64, 257), (14, 64, 330), (8, 32, 36), (14, 32, 64), (3, 32, 64), (24, 48, 64),
        (18, 80, 197), (9, 96, 150), (20, 64, 401),
    )  # fmt: skip
    lookup: tuple[int, int] = (32000, 2048)  # a vocabulary and a width
    most_tokens: int = 65536  # queries by batch: longer ones are many of these
    most_bytes: float = 20e9  # of one case: it leaves room on a card of 24 GB


SIZES = KernelSizes()


def torch_dtype(torch: Any, name: str) -> Any:
    if name not in _NAMES:
        raise DomainError(f"{name} cannot be calibrated with torch.", remedy=f"Known: {', '.join(_NAMES)}.")
    return getattr(torch, _NAMES[name])


@frozen
class KernelCase:
    single: Single
    probe: str
    time: Callable[[], KernelTiming]
    seconds: float  # about how long the measurement takes


class Kernels:
    """The provider of kernel candidates for one runtime and format on one device."""

    def __init__(
        self, clock: Clock, device: Device, runtime: RuntimeEffects, dtype: str, *, sizes: KernelSizes = SIZES
    ) -> None:
        self.clock, self.device, self.runtime, self.dtype, self.sizes = clock, device, runtime, dtype, sizes
        self.torch = clock.torch
        self.format = torch_dtype(self.torch, dtype)
        self._cases: dict[str, KernelCase] = {}

    def candidates(self) -> list[ProbeCandidate]:
        """Every case as a candidate for the scheduler."""
        candidates = []
        for case in self._all():
            work = ops.work_of_single(case.single, self.device, runtime=self.runtime, dtype=self.dtype)
            key = case.single.op.name
            self._cases[key] = case
            candidates.append(
                ProbeCandidate(
                    key=key,
                    op_class=class_for(work.classes),
                    axes=work.axes,
                    seconds=case.seconds,
                    floor_s=work.floor_s,
                )
            )
        return candidates

    def case(self, candidate: ProbeCandidate) -> KernelCase:
        return self._cases[candidate.key]

    def measure(self, candidate: ProbeCandidate) -> CandidateResult:
        case = self._cases[candidate.key]
        work = ops.work_of_single(case.single, self.device, runtime=self.runtime, dtype=self.dtype)
        timing = case.time()
        self.clock.tidy()
        point = measured_point(work, timing.seconds, dtype=self.dtype, probe=case.probe)
        return CandidateResult(points=(replace(point, rates=self._rates(point)),), runs=timing.runs)

    def _rates(self, point: OpPoint) -> dict[str, float]:
        """The rates the op reached, if it is large enough to show the device's peaks."""
        rates = {}
        if point.classes[-1] == "linear":
            rates[f"peak:{self.dtype}"] = point.axes["flops"] / point.seconds
        if point.axes["bytes"] > _STREAMED_BYTES and self.device.memory is not None:
            rates[f"bandwidth:{self.device.memory.level}"] = point.axes["bytes"] / point.seconds
        return rates

    def _all(self) -> Iterator[KernelCase]:
        yield from self._linears()
        yield from self._mixtures()
        yield from self._attentions()
        yield from self._texts()
        # Patches of an image attend to each other without a mask, whatever the runtime does with texts.
        for (heads, dim, query), batch in product(self.sizes.patches, self.sizes.images):
            sequences = batch * (64 if query < _WINDOW else 1)  # windows of an image are many
            yield KernelCase(
                single=ops.attention(sequences, (heads, heads), dim, query=query, cached=False),
                probe=f"patches {heads}x{dim} {query}",
                time=partial(self._mutual, sequences, heads, dim, query),
                seconds=0.1,
            )
        # The two products of attention that no kernel fuses.
        for (heads, dim, query), batch in product(self.sizes.patches, self.sizes.images):
            # Where a window is that small an image has many, and all of them are one call.
            many = batch * heads * (64 if query < _WINDOW else 1)
            for inner, outputs in ((dim, query), (query, dim)):
                if many * query * (inner + 2 * outputs) * self.format.itemsize <= self.sizes.most_bytes:
                    yield KernelCase(
                        single=ops.matmul(many, query, inner, outputs),
                        probe=f"matmul {heads}x{dim} {query}",
                        time=partial(self._matmul, many, query, inner, outputs),
                        seconds=0.1,
                    )
        yield from self._vectors()
        yield from self._convolutions()

    def _new(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device=self.clock.place, dtype=self.format)

    def _cycled(self, nbytes: float) -> int:
        """How many copies to use in turn, so that none is still in a cache."""
        # At most 24: a small matrix would otherwise be made thousands of times before the cache is outrun.
        return max(1, min(24, int(_CYCLED_BYTES // max(nbytes, 1)) + 1)) if self.clock.cuda else 1

    # products

    def _linears(self) -> Iterator[KernelCase]:
        width = self.format.itemsize
        both = [*((size, False) for size in self.sizes.weights), *((size, True) for size in self.sizes.biased)]
        for ((inputs, outputs), bias), rows in product(both, self.sizes.rows):
            # A larger result would only be written at the same rate for longer.
            if rows * outputs * width > min(4e9, self.sizes.most_bytes):
                continue
            yield KernelCase(
                single=ops.linear(rows, inputs, outputs, bias=bias),
                probe=f"{'biased' if bias else 'linear'} {inputs}x{outputs}",
                time=partial(self._linear, rows, inputs, outputs, bias=bias),
                seconds=0.1,
            )

    def _linear(self, rows: int, inputs: int, outputs: int, *, bias: bool) -> KernelTiming:
        """With a bias cuBLAS takes other kernels, which in single precision are up to three times as slow."""
        count = self._cycled(inputs * outputs * self.format.itemsize)
        weights = [(self._new(outputs, inputs), self._new(outputs) if bias else None) for _ in range(count)]
        x = self._new(rows, inputs)

        def call() -> None:
            for weight, added in weights:
                self.torch.nn.functional.linear(x, weight, added)

        return self.clock.replayed(call, calls=count)

    # mixtures of experts

    def _mixtures(self) -> Iterator[KernelCase]:
        for (hidden, inner, experts, chosen), rows in product(self.sizes.experts, self.sizes.rows[::2]):
            if rows * chosen * (hidden + 3 * inner) * self.format.itemsize > min(4e9, self.sizes.most_bytes):
                continue
            yield KernelCase(
                single=ops.mixture(rows, hidden, inner, experts=experts, chosen=chosen),
                probe=f"experts {hidden}x{inner} {chosen} of {experts}",
                time=partial(self._mixture, rows, hidden, inner, experts, chosen),
                seconds=0.2,
            )

    def _mixture(self, rows: int, hidden: int, inner: int, experts: int, chosen: int) -> KernelTiming:
        """As transformers runs one: rows sorted by expert, two grouped products, the results weighed and added up."""
        torch = self.torch
        both, down = self._new(experts, 2 * inner, hidden), self._new(experts, hidden, inner)
        x = self._new(rows, hidden)
        places = torch.rand(rows, experts, device=self.clock.place).topk(chosen, dim=1).indices
        weights = torch.full((rows, chosen), 1 / chosen, device=self.clock.place, dtype=self.format)
        return self.clock.replayed(lambda: routed(torch, x, places, weights, both, down))

    # attention

    def _attentions(self) -> Iterator[KernelCase]:
        sizes, width = self.sizes, self.format.itemsize
        takes = 3.0 if self.runtime.execution == "compiled" and self.clock.cuda else 0.15  # to compile, mostly
        for (heads, kv, dim), batch in product(sizes.heads, sizes.batches):
            probe = f"attention {heads}/{kv}x{dim}"
            for query in sizes.queries:
                scores = batch * query * query * width
                if batch * query <= sizes.most_tokens and scores < sizes.most_bytes:
                    yield KernelCase(
                        single=ops.attention(batch, (heads, kv), dim, query=query),
                        probe=probe,
                        time=partial(self._prompt, batch, (heads, kv), dim, query),
                        seconds=takes,
                    )
            for context in sizes.contexts:
                if 4 * batch * context * heads * dim * width < sizes.most_bytes:
                    yield KernelCase(
                        single=ops.attention(batch, (heads, kv), dim, query=1, context=context),
                        probe=probe,
                        time=partial(self._step, batch, (heads, kv), dim, context),
                        seconds=takes,
                    )

    def _texts(self) -> Iterator[KernelCase]:
        """An encoder's attention over texts that may have padding: a fused kernel reads a mask of the keys."""
        if self.runtime.attention == "flash":
            return
        sizes = self.sizes
        own = [(heads, dim) for heads, kv, dim in sizes.heads if heads == kv]
        for (heads, dim), batch, query in product(own, sizes.batches, sizes.queries):
            if batch * query <= sizes.most_tokens:
                yield KernelCase(
                    single=ops.padded(batch, heads, dim, query=query),
                    probe=f"texts {heads}x{dim}",
                    time=partial(self._text, batch, heads, dim, query),
                    seconds=0.15,
                )

    def _text(self, batch: int, heads: int, dim: int, query: int) -> KernelTiming:
        q, k, v = (self._new(batch, heads, query, dim) for _ in range(3))
        mask = padding_mask(self.torch, batch, query, self.clock.place)
        attend = self.torch.nn.functional.scaled_dot_product_attention
        return self.clock.replayed(self._compiled(lambda: attend(q, k, v, attn_mask=mask)))

    def _matmul(self, many: int, rows: int, inner: int, outputs: int) -> KernelTiming:
        x, y = self._new(many, rows, inner), self._new(many, inner, outputs)
        return self.clock.replayed(lambda: self.torch.bmm(x, y))

    def _mutual(self, batch: int, heads: int, dim: int, query: int) -> KernelTiming:
        q, k, v = (self._new(batch, heads, query, dim) for _ in range(3))
        return self.clock.replayed(lambda: self.torch.nn.functional.scaled_dot_product_attention(q, k, v))

    def _prompt(self, batch: int, heads: tuple[int, int], dim: int, query: int) -> KernelTiming:
        q = self._new(batch, heads[0], query, dim)
        k, v = (self._new(batch, heads[1], query, dim) for _ in range(2))
        attend = self.torch.nn.functional.scaled_dot_product_attention
        if self.runtime.attention == "flash":
            return self.clock.replayed(lambda: attend(q, k, v, is_causal=True, enable_gqa=heads[0] != heads[1]))
        mask = self.torch.ones(query, query, device=self.clock.place, dtype=self.torch.bool).tril()
        mask = mask[None, None].expand(batch, 1, query, query)
        return self.clock.replayed(self._compiled(lambda: _masked(attend, q, k, v, mask)))

    def _step(self, batch: int, heads: tuple[int, int], dim: int, context: int) -> KernelTiming:
        shape = (batch, heads[1], context + 1, dim)
        count = self._cycled(2 * batch * heads[1] * (context + 1) * dim * self.format.itemsize)
        caches = [(self._new(*shape), self._new(*shape)) for _ in range(count)]
        q = self._new(batch, heads[0], 1, dim)
        new = self._new(batch, heads[1], 1, dim)
        attend = self.torch.nn.functional.scaled_dot_product_attention
        if self.runtime.cache != "repeated":
            one: Callable[..., object] = partial(_grown, self.torch, attend, q, new, heads[0] != heads[1])
        else:
            place = self.torch.tensor([context], device=self.clock.place)
            mask = self.torch.ones(batch, 1, 1, context + 1, device=self.clock.place, dtype=self.torch.bool)
            one = self._compiled(lambda k, v: _stored(attend, q, new, place, mask, k, v))

        def call() -> None:
            for k, v in caches:
                one(k, v)

        return self.clock.replayed(call, calls=count)

    def _compiled(self, call: Callable[..., object]) -> Callable[..., object]:
        """As the runtime would run it: compiled where it compiles."""
        if self.runtime.execution != "compiled" or not self.clock.cuda:
            return call
        self.torch.compiler.reset()
        compiled: Callable[..., object] = self.torch.compile(call, dynamic=False)
        return compiled

    # everything that is bound by memory

    def _vectors(self) -> Iterator[KernelCase]:
        for kind, elements in product(("elementwise", "norm", "activation"), self.sizes.elements):
            inputs = 2 if kind == "elementwise" else 1
            if (inputs + 1) * elements * self.format.itemsize > self.sizes.most_bytes:
                continue
            yield KernelCase(
                single=ops.vector(kind, elements, inputs=inputs),
                probe=f"{kind} {elements}",
                time=partial(self._vector, kind, elements, inputs),
                seconds=0.05,
            )
        for features, elements in product((72, 144, 288, 576, 1792), self.sizes.elements[6::3]):
            yield KernelCase(
                single=ops.vector("norm", elements // features * features, features=features),
                probe=f"norm of {features}",
                time=partial(self._vector, "norm", elements // features * features, 1, features),
                seconds=0.05,
            )
        for kind, (channels, _, side), batch in product(
            ("norm", "pool", "reduce", "copy"), self.sizes.planes[::2], self.sizes.images
        ):
            if 2 * batch * channels * side * side * self.format.itemsize <= self.sizes.most_bytes:
                yield KernelCase(
                    single=ops.image_vector(kind, batch, channels, side),
                    probe=f"image {kind} {channels}x{side}",
                    time=partial(self._image_vector, kind, (batch, channels, side, side)),
                    seconds=0.05,
                )
        for rows in self.sizes.rows:
            yield KernelCase(
                single=ops.embedding(rows, *self.sizes.lookup),
                probe=f"embedding {self.sizes.lookup}",
                time=partial(self._embedding, rows),
                seconds=0.05,
            )

    def _vector(self, kind: str, elements: int, inputs: int, features: int = 1024) -> KernelTiming:
        torch = self.torch
        features = min(features, elements)
        held = [self._new(elements // features, features) for _ in range(inputs)]
        does: dict[str, Callable[..., object]] = {
            "elementwise": torch.add,
            "norm": lambda x: torch.nn.functional.layer_norm(x, (features,)),
            "activation": torch.relu,
        }

        def call() -> None:
            for _ in range(_AGAIN):
                does[kind](*held)

        return self.clock.replayed(call, calls=_AGAIN)

    def _image_vector(self, kind: str, shape: tuple[int, int, int, int]) -> KernelTiming:
        torch = self.torch
        x = self._new(*shape)
        mean, variance, weight, bias = (self._new(shape[1]).abs() for _ in range(4))
        does: dict[str, Callable[[], object]] = {
            "norm": lambda: torch.nn.functional.batch_norm(x, mean, variance, weight, bias),
            "pool": lambda: torch.nn.functional.max_pool2d(x, 3, 2, 1),
            "reduce": lambda: x.mean(dim=(2, 3)),
            "copy": lambda: x.permute(0, 2, 3, 1).contiguous(),
        }

        def call() -> None:
            for _ in range(_AGAIN):
                does[kind]()

        return self.clock.replayed(call, calls=_AGAIN)

    def _embedding(self, rows: int) -> KernelTiming:
        table = self._new(*self.sizes.lookup)
        ids = self.torch.randint(0, self.sizes.lookup[0], (1, rows), device=self.clock.place)
        return self.clock.replayed(lambda: self.torch.nn.functional.embedding(ids, table))

    # convolutions

    def _convolutions(self) -> Iterator[KernelCase]:
        for (inputs, outputs, side), batch in product(self.sizes.planes, self.sizes.images):
            for kernel, stride, shared in _WINDOWS:
                if shared and inputs % shared:
                    continue
                groups = inputs // shared if shared else 1
                wide = inputs if shared else outputs
                if batch * side * side * (inputs + wide) * self.format.itemsize > self.sizes.most_bytes:
                    continue
                yield self._convolution(batch, (inputs, wide), side, kernel, stride, groups)
        for (inputs, outputs), side, batch in product(self.sizes.points, self.sizes.sides, self.sizes.images):
            if batch * side * side * (inputs + outputs) * self.format.itemsize <= min(2e8, self.sizes.most_bytes):
                yield self._convolution(batch, (inputs, outputs), side, 1, 1, 1)
        for batch, (kernel, stride, wide, side) in product(self.sizes.images, self.sizes.stems):
            yield self._convolution(batch, (3, wide), side, kernel, stride, 1)

    def _convolution(  # noqa: PLR0913, PLR0917 - what a convolution is
        self, batch: int, channels: tuple[int, int], side: int, kernel: int, stride: int, groups: int
    ) -> KernelCase:
        single = ops.convolution(batch, channels, side, kernel=kernel, stride=stride, groups=groups)
        return KernelCase(
            single=single,
            probe=f"convolution {kernel}/{stride} {channels} {side} {groups}",
            time=partial(self._convolve, batch, channels, side, kernel, stride, groups),
            seconds=0.1,
        )

    def _convolve(  # noqa: PLR0913, PLR0917 - as above
        self, batch: int, channels: tuple[int, int], side: int, kernel: int, stride: int, groups: int
    ) -> KernelTiming:
        shape = (channels[1], channels[0] // groups, kernel, kernel)
        x = self._new(batch, channels[0], side, side)
        weights = [self._new(*shape) for _ in range(_AGAIN)]
        padding = 0 if kernel == stride else kernel // 2

        def call() -> None:
            for weight in weights:
                self.torch.nn.functional.conv2d(x, weight, stride=stride, padding=padding, groups=groups)

        return self.clock.replayed(call, calls=_AGAIN)


def routed(torch: Any, x: Any, places: Any, weights: Any, both: Any, down: Any) -> Any:  # noqa: PLR0913, PLR0917 - its tensors
    """Rows through the experts that `places` names, the results weighed and added up."""
    chosen, experts = places.shape[1], both.shape[0]
    product_of = getattr(torch.nn.functional, "grouped_mm", None) or torch._grouped_mm  # noqa: SLF001 - its name until torch 2.10
    ordered, order = torch.sort(places.reshape(-1))
    rows = x[order // chosen]
    counted = torch.histc(ordered.int() if x.is_cuda else ordered.float(), bins=experts, min=0, max=experts - 1)
    ends = torch.cumsum(counted, dim=0, dtype=torch.int32)
    gate, up = product_of(rows, both.transpose(-2, -1), offs=ends).chunk(2, dim=-1)
    inner = torch.nn.functional.silu(gate) * up
    out = product_of(inner, down.transpose(-2, -1), offs=ends) * weights.reshape(-1)[order][:, None]
    back = torch.empty_like(order)
    back[order] = torch.arange(len(order), device=order.device)
    return out[back].view(x.shape[0], chosen, -1).sum(dim=1)


def padding_mask(torch: Any, batch: int, query: int, place: str) -> Any:
    """Of texts without padding, as transformers writes what a tokeniser gives: one flag a key, the same for all rows.

    One flag a row, stretched over the keys, is what it writes where it is given none: no fused kernel takes that.
    """
    flags = torch.ones(batch, 1, 1, query, device=place, dtype=torch.bool)
    return flags.expand(batch, 1, query, query)


def _masked(attend: Any, q: Any, k: Any, v: Any, mask: Any) -> Any:
    """A prompt as transformers attends to it with a mask: keys and values repeated for every query head."""
    return attend(q, repeated(k, q.shape[1]), repeated(v, q.shape[1]), attn_mask=mask)


def _stored(attend: Any, q: Any, new: Any, place: Any, mask: Any, k: Any, v: Any) -> Any:  # noqa: PLR0913, PLR0917 - its tensors
    """A step with a cache of fixed length: the new token is written into its place, the whole cache is repeated."""
    k.index_copy_(2, place, new)
    v.index_copy_(2, place, new)
    return _masked(attend, q, k, v, mask)


def _grown(torch: Any, attend: Any, q: Any, new: Any, shared: bool, k: Any, v: Any) -> Any:  # noqa: PLR0913, PLR0917 - as above
    """A step with a cache that grows: all of it is copied to append one token."""
    longer = [torch.cat([cache[:, :, :-1], new], dim=2) for cache in (k, v)]
    return attend(q, *longer, enable_gqa=shared)


def repeated(x: Any, heads: int) -> Any:
    batch, own, length, dim = x.shape
    if own == heads:
        return x
    return x[:, :, None].expand(batch, own, heads // own, length, dim).reshape(batch, heads, length, dim)
