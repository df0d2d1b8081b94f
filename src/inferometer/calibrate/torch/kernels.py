"""Kernels of torch to measure alone: products, attention, convolutions and element-wise ops.

Each case is a `Single` (the op as the cost model sees it) and a torch function that computes it. Weights and key-value
caches are cycled through more memory than any cache holds, so that they come from main memory as they do in a model;
activations are not, because the op before has just written them. Attention runs as the runtime runs it: with a fused
causal kernel, or with a mask and a cache repeated for every query head.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Any

from inferometer.calibrate.fitting import single as ops
from inferometer.calibrate.fitting.fit import class_for
from inferometer.calibrate.fitting.points import OpPoint, measured_point
from inferometer.calibrate.fitting.single import Single
from inferometer.calibrate.run import Candidate, CandidateResult
from inferometer.calibrate.torch.timing import Timing
from inferometer.errors import DomainError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inferometer.calibrate.torch.timing import Clock
    from inferometer.core.device import Device
    from inferometer.core.engine import RuntimeEffects

_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16"}
_CYCLED_BYTES = 600_000_000  # beyond any cache
_AGAIN = 4  # calls in one replay, if nothing is cycled
_WINDOW = 50  # patches: attention over fewer is over one window of an image
_STREAMED_BYTES = 400_000_000  # an op that moves more shows the bandwidth of main memory, not of a cache


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelSizes:
    """The shapes to measure. Tests pass smaller ones."""

    rows: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384)
    weights: tuple[tuple[int, int], ...] = (
        (768, 768), (768, 3072), (3072, 768), (1024, 1024), (1024, 4096), (4096, 1024), (1536, 256), (1536, 8960),
        (8960, 1536), (2048, 512), (2048, 2048), (2048, 6144), (6144, 2048), (3072, 1024), (3072, 3072), (3072, 9216),
        (9216, 3072), (4096, 4096), (4096, 12288), (12288, 4096), (5120, 5120), (5120, 17408), (17408, 5120),
        (1024, 50304), (2048, 32000), (4096, 128256),
    )  # fmt: skip
    heads: tuple[tuple[int, int, int], ...] = (
        (32, 8, 128), (16, 16, 64), (24, 8, 128), (12, 12, 64), (40, 40, 128), (14, 2, 64), (16, 4, 64), (16, 8, 256),
    )  # fmt: skip
    batches: tuple[int, ...] = (1, 4, 16, 32)
    queries: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192)
    contexts: tuple[int, ...] = (128, 512, 2048, 4096, 8192)
    elements: tuple[int, ...] = tuple(2**power for power in range(12, 30))
    images: tuple[int, ...] = (1, 8, 32, 128)
    planes: tuple[tuple[int, int, int], ...] = (
        (64, 64, 56), (128, 128, 28), (256, 256, 14), (512, 512, 7), (64, 256, 56), (256, 64, 56), (512, 128, 28),
        (128, 512, 28), (1024, 256, 14), (256, 1024, 14), (2048, 512, 7), (96, 96, 112), (160, 160, 20), (384, 384, 14),
        (64, 128, 112), (320, 320, 56), (48, 192, 56),
    )  # fmt: skip
    patches: tuple[tuple[int, int, int], ...] = (
        (12, 64, 197), (16, 64, 197), (6, 64, 577), (16, 80, 257), (12, 64, 50), (3, 32, 49), (24, 32, 49),
    )  # fmt: skip
    lookup: tuple[int, int] = (32000, 2048)
    most_tokens: int = 65536
    most_bytes: float = 20e9


SIZES = KernelSizes()


def torch_dtype(torch: Any, name: str) -> Any:
    if name not in _NAMES:
        raise DomainError(f"{name} cannot be calibrated with torch.", remedy=f"Known: {', '.join(_NAMES)}.")
    return getattr(torch, _NAMES[name])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    single: Single
    probe: str
    time: Callable[[], Timing]
    seconds: float  # about how long the measurement takes


class Kernels:
    """The provider of kernel candidates for one runtime and format on one device."""

    def __init__(
        self, clock: Clock, device: Device, runtime: RuntimeEffects, dtype: str, *, sizes: KernelSizes = SIZES
    ) -> None:
        self.clock, self.device, self.runtime, self.dtype, self.sizes = clock, device, runtime, dtype, sizes
        self.torch = clock.torch
        self.format = torch_dtype(self.torch, dtype)
        self._cases: dict[str, _Case] = {}

    def candidates(self) -> list[Candidate]:
        """Every case as a candidate for the scheduler."""
        candidates = []
        for case in self._all():
            work = ops.work_of_single(case.single, self.device, runtime=self.runtime, dtype=self.dtype)
            key = case.single.op.name
            self._cases[key] = case
            candidates.append(
                Candidate(
                    key=key,
                    op_class=class_for(work.classes),
                    axes=work.axes,
                    seconds=case.seconds,
                    floor_s=work.floor_s,
                )
            )
        return candidates

    def measure(self, candidate: Candidate) -> CandidateResult:
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

    def _all(self) -> Iterator[_Case]:
        yield from self._linears()
        yield from self._attentions()
        yield from self._patches()
        yield from self._vectors()
        yield from self._convolutions()

    def _new(self, *shape: int) -> Any:
        return self.torch.randn(*shape, device=self.clock.place, dtype=self.format)

    def _cycled(self, nbytes: float) -> int:
        """How many copies to use in turn, so that none is still in a cache."""
        return max(1, min(24, int(_CYCLED_BYTES // max(nbytes, 1)) + 1)) if self.clock.cuda else 1

    # products

    def _linears(self) -> Iterator[_Case]:
        width = self.format.itemsize
        for (inputs, outputs), rows in product(self.sizes.weights, self.sizes.rows):
            if rows * outputs * width > min(4e9, self.sizes.most_bytes):
                continue
            yield _Case(
                single=ops.linear(rows, inputs, outputs),
                probe=f"linear {inputs}x{outputs}",
                time=partial(self._linear, rows, inputs, outputs),
                seconds=0.1,
            )

    def _linear(self, rows: int, inputs: int, outputs: int) -> Timing:
        count = self._cycled(inputs * outputs * self.format.itemsize)
        weights = [self._new(outputs, inputs) for _ in range(count)]
        x = self._new(rows, inputs)

        def call() -> None:
            for weight in weights:
                self.torch.nn.functional.linear(x, weight)

        return self.clock.replayed(call, calls=count)

    # attention

    def _attentions(self) -> Iterator[_Case]:
        sizes, width = self.sizes, self.format.itemsize
        takes = 3.0 if self.runtime.execution == "compiled" and self.clock.cuda else 0.15  # to compile, mostly
        for (heads, kv, dim), batch in product(sizes.heads, sizes.batches):
            probe = f"attention {heads}/{kv}x{dim}"
            for query in sizes.queries:
                scores = batch * query * query * width
                if batch * query <= sizes.most_tokens and scores < sizes.most_bytes:
                    yield _Case(
                        single=ops.attention(batch, (heads, kv), dim, query=query),
                        probe=probe,
                        time=partial(self._prompt, batch, (heads, kv), dim, query),
                        seconds=takes,
                    )
            for context in sizes.contexts:
                if 4 * batch * context * heads * dim * width < sizes.most_bytes:
                    yield _Case(
                        single=ops.attention(batch, (heads, kv), dim, query=1, context=context),
                        probe=probe,
                        time=partial(self._step, batch, (heads, kv), dim, context),
                        seconds=takes,
                    )

    def _patches(self) -> Iterator[_Case]:
        """Patches of an image attend to each other without a mask, whatever the runtime does with texts."""
        for (heads, dim, query), batch in product(self.sizes.patches, self.sizes.images):
            sequences = batch * (64 if query < _WINDOW else 1)  # windows of an image are many
            yield _Case(
                single=ops.attention(sequences, (heads, heads), dim, query=query, cached=False),
                probe=f"patches {heads}x{dim} {query}",
                time=partial(self._mutual, sequences, heads, dim, query),
                seconds=0.1,
            )

    def _mutual(self, batch: int, heads: int, dim: int, query: int) -> Timing:
        q, k, v = (self._new(batch, heads, query, dim) for _ in range(3))
        return self.clock.replayed(lambda: self.torch.nn.functional.scaled_dot_product_attention(q, k, v))

    def _prompt(self, batch: int, heads: tuple[int, int], dim: int, query: int) -> Timing:
        q = self._new(batch, heads[0], query, dim)
        k, v = (self._new(batch, heads[1], query, dim) for _ in range(2))
        attend = self.torch.nn.functional.scaled_dot_product_attention
        if self.runtime.attention == "flash":
            return self.clock.replayed(lambda: attend(q, k, v, is_causal=True, enable_gqa=heads[0] != heads[1]))
        mask = self.torch.ones(query, query, device=self.clock.place, dtype=self.torch.bool).tril()
        mask = mask[None, None].expand(batch, 1, query, query)
        return self.clock.replayed(self._compiled(lambda: _masked(attend, q, k, v, mask)))

    def _step(self, batch: int, heads: tuple[int, int], dim: int, context: int) -> Timing:
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

    def _vectors(self) -> Iterator[_Case]:
        for kind, elements in product(("elementwise", "norm", "activation"), self.sizes.elements):
            inputs = 2 if kind == "elementwise" else 1
            if (inputs + 1) * elements * self.format.itemsize > self.sizes.most_bytes:
                continue
            yield _Case(
                single=ops.vector(kind, elements, inputs=inputs),
                probe=f"{kind} {elements}",
                time=partial(self._vector, kind, elements, inputs),
                seconds=0.05,
            )
        for rows in self.sizes.rows:
            yield _Case(
                single=ops.embedding(rows, *self.sizes.lookup),
                probe=f"embedding {self.sizes.lookup}",
                time=partial(self._embedding, rows),
                seconds=0.05,
            )

    def _vector(self, kind: str, elements: int, inputs: int) -> Timing:
        torch = self.torch
        features = min(1024, elements)
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

    def _embedding(self, rows: int) -> Timing:
        table = self._new(*self.sizes.lookup)
        ids = self.torch.randint(0, self.sizes.lookup[0], (1, rows), device=self.clock.place)
        return self.clock.replayed(lambda: self.torch.nn.functional.embedding(ids, table))

    # convolutions

    def _convolutions(self) -> Iterator[_Case]:
        for (inputs, outputs, side), batch in product(self.sizes.planes, self.sizes.images):
            for kernel, stride, groups in ((1, 1, 1), (3, 1, 1), (3, 2, 1), (3, 1, inputs), (5, 1, inputs)):
                wide = outputs if groups == 1 else inputs
                if batch * side * side * (inputs + wide) * self.format.itemsize > self.sizes.most_bytes:
                    continue
                yield self._convolution(batch, (inputs, wide), side, kernel, stride, groups)
        for batch, (kernel, stride, wide) in product(
            self.sizes.images, ((7, 2, 64), (3, 2, 32), (16, 16, 768), (3, 1, 64))
        ):
            yield self._convolution(batch, (3, wide), max(kernel, 224 if self.clock.cuda else 32), kernel, stride, 1)

    def _convolution(  # noqa: PLR0913, PLR0917 - what a convolution is
        self, batch: int, channels: tuple[int, int], side: int, kernel: int, stride: int, groups: int
    ) -> _Case:
        single = ops.convolution(batch, channels, side, kernel=kernel, stride=stride, groups=groups)
        return _Case(
            single=single,
            probe=f"convolution {kernel}/{stride} {channels} {side} {groups}",
            time=partial(self._convolve, batch, channels, side, kernel, stride, groups),
            seconds=0.1,
        )

    def _convolve(  # noqa: PLR0913, PLR0917 - as above
        self, batch: int, channels: tuple[int, int], side: int, kernel: int, stride: int, groups: int
    ) -> Timing:
        shape = (channels[1], channels[0] // groups, kernel, kernel)
        x = self._new(batch, channels[0], side, side)
        weights = [self._new(*shape) for _ in range(_AGAIN)]
        padding = 0 if kernel == stride else kernel // 2

        def call() -> None:
            for weight in weights:
                self.torch.nn.functional.conv2d(x, weight, stride=stride, padding=padding, groups=groups)

        return self.clock.replayed(call, calls=_AGAIN)


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
