"""Time every matrix product on a lattice of rows and widths, and attention without a mask, into a journal.

    python -m workshop.calibrations.products --budget 500 --out FOLDER

A library chooses another kernel at each width, and two that differ by a tenth may take times that differ by a half: a
few hundred probes with lines between them do not see that. The widths of the lattice are those that published models
have, so most products of a model lie on it, and what is left to interpolate is the number of rows. Weights are read
from another place at each launch, as a model reads them: none is found in the device's cache. The journal has one line
a product or attention, with its seconds by rows; workshop/calibrations/gpu.py --products makes tables of it.
"""

from __future__ import annotations

import argparse
import gzip
import json
import random
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch  # noqa: TID251 - what is measured

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

# Widths of the models of the catalog, but for those that one model alone has.
WIDTHS = (
    128, 256, 384, 512, 576, 640, 768, 896, 960, 1024, 1152, 1280, 1536, 2048, 2304, 2560, 2880, 3072, 3584, 4096, 4608,
    5120, 5632, 6144, 6912, 7168, 8192, 8960, 9728, 10240, 11008, 12288, 13824, 14336, 16384, 18944, 22016, 28672,
)  # fmt: skip
NARROW = (64, *WIDTHS[:22])  # of networks that read pictures and texts at once
HEADS = (32000, 50304, 65536, 102400, 128256, 151936, 200064, 262144)  # words of vocabularies
ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 384, 512, 768, 1024, 1536, 2048, 4096, 8192)
MANY_ROWS = (1, 8, 32, 64, 128, 256, 512, 768, 1024, 2048, 4096, 8192, 16384, 32768)
FEW = 128  # rows of a head: one a sequence
LATTICES = (("bf16", False, WIDTHS, ROWS), ("f32", True, NARROW, MANY_ROWS), ("bf16", True, NARROW, MANY_ROWS),
            ("f32", False, NARROW, MANY_ROWS))  # fmt: skip
LENGTHS = (49, 64, 77, 128, 197, 256, 384, 512, 577, 1024, 1500, 2048)
HEAD_DIMS = (32, 48, 64, 72, 80, 96, 128)
GROUPS = ((1, 12), (1, 16), (4, 12), (8, 16), (16, 12), (32, 12), (64, 16), (128, 12), (256, 16))  # sequences, heads

BUFFER = 1 << 32  # bytes that weights are taken from in turn: many times the device's cache
MOST_FLOPS = {"bf16": 4e12, "f32": 4e11}  # a few milliseconds; wider products with more rows are as near to the peak
PEAK = {"bf16": 6e14, "f32": 4e13, "bytes": 4e12}  # to guess how many launches fill the time below, and nothing else
TIMED_S, LAUNCHES = 0.4e-3, (4, 40)  # of one reading: long enough for the clock, short enough for thousands
CAPTURED_S = 60e-6  # shorter kernels wait for their host unless they are captured in a graph
SIZES = {"bf16": 2, "f32": 4}


class Timer:
    """Seconds of one launch, the lesser of two readings of many."""

    def __init__(self) -> None:
        self.stream = torch.cuda.Stream()
        self.begin, self.end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def seconds(self, launch: Callable[[int], Any], guess_s: float) -> float:
        many = int(min(max(TIMED_S / guess_s, LAUNCHES[0]), LAUNCHES[1]))

        def all_of_them() -> None:
            for index in range(many):
                launch(index)

        with torch.cuda.stream(self.stream):
            launch(0)
            if guess_s > CAPTURED_S:
                return min(self._reading(all_of_them) for _ in range(2)) / many
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin()
            all_of_them()
            graph.capture_end()
            graph.replay()
            return min(self._reading(graph.replay) for _ in range(2)) / many

    def _reading(self, work: Callable[[], Any]) -> float:
        self.begin.record(self.stream)
        work()
        self.end.record(self.stream)
        self.end.synchronize()
        return self.begin.elapsed_time(self.end) * 1e-3


class Products:
    """A product of each shape, its weights at another place of one buffer with every launch."""

    def __init__(self, timer: Timer, dtype: str) -> None:
        self.timer, self.dtype, self.size = timer, dtype, SIZES[dtype]
        form = {"bf16": torch.bfloat16, "f32": torch.float32}[dtype]
        self.weights = torch.empty(BUFFER // self.size, dtype=form, device="cuda").normal_(std=0.02)
        self.inputs = torch.empty(1 << 29, dtype=form, device="cuda").normal_()
        self.outputs = torch.empty(1 << 29, dtype=form, device="cuda")

    def seconds(self, rows: int, inputs: int, outputs: int, *, bias: bool) -> float | None:
        flops, nbytes = 2.0 * rows * inputs * outputs, self.size * (inputs * outputs + rows * (inputs + outputs))
        room = self.weights.numel() // (inputs * outputs)
        if flops > MOST_FLOPS[self.dtype] or not room or rows * max(inputs, outputs) > self.inputs.numel():
            return None
        x = self.inputs[: rows * inputs].view(rows, inputs)
        y = self.outputs[: rows * outputs].view(rows, outputs)
        places = [self.weights[index * inputs * outputs :][: inputs * outputs].view(outputs, inputs).t()
                  for index in range(min(room, LAUNCHES[1]))]  # fmt: skip
        added = self.inputs[:outputs]

        def launch(index: int) -> None:
            weight = places[index % len(places)]
            if bias:
                torch.addmm(added, x, weight, out=y)
            else:
                torch.mm(x, weight, out=y)

        return self.timer.seconds(launch, 3e-6 + max(flops / PEAK[self.dtype], nbytes / PEAK["bytes"]))


def product_lines(timer: Timer) -> Iterator[dict[str, Any]]:
    for dtype, bias, widths, rows in LATTICES:
        products = Products(timer, dtype)
        shapes = [(inputs, outputs) for inputs in widths for outputs in widths]
        if not bias and dtype == "bf16":
            shapes += [(inputs, outputs) for inputs in widths if 512 <= inputs <= 8192 for outputs in HEADS]
        random.Random(1).shuffle(shapes)  # noqa: S311 - an order, not a secret
        for inputs, outputs in shapes:
            wanted = [count for count in rows if outputs < HEADS[0] or count <= FEW]
            taken = [products.seconds(count, inputs, outputs, bias=bias) for count in wanted]
            seconds = [None if each is None else float(f"{each:.4g}") for each in taken]
            yield {"op": "linear", "dtype": dtype, "bias": bias, "in": inputs, "out": outputs, "rows": wanted,
                   "seconds": seconds}  # fmt: skip
        del products
        torch.cuda.empty_cache()


def attention_lines(timer: Timer) -> Iterator[dict[str, Any]]:
    """Of networks that read all at once: queries, keys and values are views of arrays by token, as models have."""
    for dtype, form in (("bf16", torch.bfloat16), ("f32", torch.float32)):
        for wide in HEAD_DIMS:
            for length in LENGTHS:
                for batch, heads in GROUPS:
                    flops = 4.0 * batch * heads * length * length * wide
                    if flops > MOST_FLOPS[dtype] / 4:
                        continue
                    made = torch.randn(3, batch, length, heads, wide, dtype=form, device="cuda").transpose(2, 3)
                    guess_s = 3e-6 + max(flops / PEAK[dtype] * 2, 4 * made.nbytes / 3 / PEAK["bytes"])
                    seconds = timer.seconds(partial(attend, made), guess_s)
                    yield {"op": "attention", "dtype": dtype, "head_dim": wide, "length": length, "batch": batch,
                           "heads": heads, "seconds": float(f"{seconds:.4g}")}  # fmt: skip


def attend(made: Any, _index: int) -> Any:
    return torch.nn.functional.scaled_dot_product_attention(*made)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="a folder for products.jsonl.gz")
    parser.add_argument("--budget", type=float, default=500.0, help="seconds")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    timer, begun, count = Timer(), time.monotonic(), 0
    with torch.inference_mode(), gzip.open(args.out / "products.jsonl.gz", "wt", encoding="utf-8") as journal:
        said = {"gpu": torch.cuda.get_device_name(), "torch": str(torch.__version__), "cuda": torch.version.cuda}
        journal.write(json.dumps(said) + "\n")
        for lines in (attention_lines(timer), product_lines(timer)):
            for line in lines:
                journal.write(json.dumps(line) + "\n")
                count += 1
                if count % 200 == 0:
                    print(f"{count} lines, {time.monotonic() - begun:.0f} s: {line}", flush=True)
                if time.monotonic() - begun > args.budget:
                    print("The budget is spent.")
                    return


if __name__ == "__main__":
    main()
