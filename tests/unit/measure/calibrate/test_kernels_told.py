"""What torch is asked to run for each kernel: the calls, their shapes and how often, with a torch that only has shapes.

`kernels_told.json` has them: `python tests/unit/measure/calibrate/test_kernels_told.py` writes it anew (with src and
tests on the path).
"""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.known import device
from inferometer.known.engines import require_effects
from inferometer.measure.calibrate.torch.kernels import Kernels, KernelSizes
from inferometer.measure.calibrate.torch.models import TINY, ProbeModels
from inferometer.measure.calibrate.torch.provider import TorchReadings
from inferometer.measure.calibrate.torch.timing import KernelTiming

TOLD = Path(__file__).parent / "kernels_told.json"
SIZES = KernelSizes(
    rows=(1, 300), weights=((30, 50), (700, 200)), biased=((30, 50),), heads=((8, 2, 16), (4, 4, 32)), batches=(1, 3),
    queries=(6, 70),
    contexts=(9, 200), elements=(512, 2**20), images=(1, 4), planes=((8, 12, 10), (24, 8, 6)),
    patches=((2, 16, 49), (3, 16, 50)), points=((8, 12),), sides=(5,), stems=((3, 2, 8, 20),), experts=(),
    lookup=(90, 40), most_tokens=150, most_bytes=5e6,
)  # fmt: skip


class Shaped:
    """A tensor that is nothing but its shape."""

    def __init__(self, log, *shape):
        self.log, self.shape = log, shape

    def __getitem__(self, key):
        sizes, shape = iter(self.shape), []
        for part in key:
            size = None if part is None else next(sizes)
            shape.append(1 if part is None else len(range(*part.indices(size))))
        return Shaped(self.log, *shape, *sizes)

    def expand(self, *shape):
        return Shaped(self.log, *shape)

    reshape = expand

    def tril(self):
        self.log["tril"] += 1
        return self

    def index_copy_(self, dim, _place, new):
        self.log[f"index_copy_ {dim} {self.shape} {new.shape}"] += 1

    def __getattr__(self, name):
        def call(*given, **options):
            self.log[f"{name} {self.shape} {given} {options}"] += 1
            return self

        return call


class Torch:
    """Counts what is asked of it, by the shapes of tensors and by options."""

    float32, bfloat16, bool = SimpleNamespace(itemsize=4), SimpleNamespace(itemsize=2), SimpleNamespace(itemsize=1)

    def __init__(self):
        self.log = Counter()
        self.nn = SimpleNamespace(functional=self)
        self.compiler = SimpleNamespace(reset=lambda: self.log.update(["reset"]))
        self.cuda = SimpleNamespace(empty_cache=lambda: self.log.update(["tidied"]))

    def randn(self, *shape, device, dtype):
        self.log[f"randn {shape} {device} {dtype.itemsize}"] += 1
        return Shaped(self.log, *shape)

    def ones(self, *shape, device, dtype):
        self.log[f"ones {shape} {device} {dtype.itemsize}"] += 1
        return Shaped(self.log, *shape)

    def tensor(self, values, device):
        self.log[f"tensor {values} {device}"] += 1
        return Shaped(self.log, len(values))

    def randint(self, low, high, shape, device):
        self.log[f"randint {low} {high} {shape} {device}"] += 1
        return Shaped(self.log, *shape)

    def cat(self, parts, dim):
        shape = [*parts[0].shape]
        shape[dim] = sum(part.shape[dim] for part in parts)
        return Shaped(self.log, *shape)

    def compile(self, call, *, dynamic):
        self.log[f"compile {dynamic}"] += 1
        return call

    def __getattr__(self, name):
        def call(*given, **options):
            told = [each.shape if isinstance(each, Shaped) else each for each in given]
            named = {key: each.shape if isinstance(each, Shaped) else each for key, each in options.items()}
            self.log[f"{name} {told} {named}"] += 1
            return Shaped(self.log, 1)

        return call


class Clock:
    """A call takes a millisecond, and is made once."""

    def __init__(self, place="cuda"):
        self.torch, self.place, self.cuda = Torch(), place, place == "cuda"

    def replayed(self, call, *, calls=1):
        call()
        self.torch.log[f"calls {calls}"] += 1
        return KernelTiming(seconds=1e-3, runs=7)

    def tidy(self):
        self.torch.log["tidied"] += 1


def kernels(runtime, dtype, place="cuda", sizes=SIZES):
    clock = Clock(place)
    provider = Kernels(clock, device("nvidia-l4"), require_effects(runtime), dtype, sizes=sizes)
    told = {}
    for candidate in provider.candidates():
        clock.torch.log.clear()
        result = provider.measure(candidate)
        (point,) = result.points
        told[candidate.key] = {
            "class": candidate.op_class, "seconds": candidate.seconds, "floor_s": candidate.floor_s,
            "probe": point.probe, "rates": dict(point.rates), "launches": point.launches, "runs": result.runs,
            "asked": dict(sorted(clock.torch.log.items())),
        }  # fmt: skip
    return told


def steps(runtime, most=None):
    provider = ProbeModels(clock=Clock(), runtime=require_effects(runtime), dtype="bf16", probes=TINY, most=most)
    return {each.key: [each.op_class, each.seconds, each.probe, each.weight] for each in provider.candidates()}


KERNELS = {
    "eager": lambda: kernels("torch-eager", "bf16"),
    "compiled": lambda: kernels("torch-compile", "f32"),
    "on a cpu": lambda: kernels("torch-compile", "f32", "cpu"),
    "in little memory": lambda: sorted(kernels("torch-eager", "bf16", sizes=replace(SIZES, most_bytes=3e4))),
    "steps": lambda: {"all": steps("torch-eager"), "few": steps("torch-compile", 2100)},
    "readings": lambda: {each.key: [each.op_class, each.seconds, each.first]
                         for each in TorchReadings(clock=Clock(), dtype="bf16").candidates()},
}  # fmt: skip


def told_of(name):
    return json.loads(json.dumps(KERNELS[name]()), parse_float=lambda text: float(f"{float(text):.7g}"))


@pytest.mark.parametrize("name", sorted(KERNELS))
def test_the_kernels_are_as_they_were(name):
    wanted, found = json.loads(TOLD.read_text())[name], told_of(name)
    if isinstance(wanted, list):
        assert found == wanted
        return
    assert found.keys() == wanted.keys()
    assert {key: (value, wanted[key]) for key, value in found.items() if value != wanted[key]} == {}


@pytest.mark.parametrize(("most_bytes", "rows"), [(192_000, [1, 300]), (191_999, [1]), (639, [])])
def test_experts_are_timed_at_every_second_number_of_rows_as_far_as_there_is_room(most_bytes, rows):
    """Of 300 rows two experts each take 64 numbers in, and make and read 3 × 32: 300 · 2 · 160 numbers of two bytes."""
    sizes = replace(SIZES, rows=(1, 7, 300), experts=((64, 32, 8, 2),), most_bytes=most_bytes)
    provider = Kernels(Clock(), device("nvidia-l4"), require_effects("torch-eager"), "bf16", sizes=sizes)
    keys = [each.key for each in provider.candidates() if "experts" in each.key]
    assert keys == [f"experts {number}x64x32 2 of 8" for number in rows]


WINDOW = 2 * 64 * 49 * 2  # two heads of 64 windows of 49 patches, in two bytes


@pytest.mark.parametrize(
    ("most_bytes", "products"),
    [
        (WINDOW * (16 + 2 * 49), ["49x16x49", "49x49x16"]),
        (WINDOW * (49 + 2 * 16), ["49x49x16"]),
        (WINDOW * (49 + 2 * 16) - 1, []),
    ],
)
def test_products_of_attention_are_timed_as_far_as_there_is_room_for_what_they_read_and_make(most_bytes, products):
    sizes = replace(SIZES, patches=((2, 16, 49),), images=(1,), most_bytes=most_bytes)
    provider = Kernels(Clock(), device("nvidia-l4"), require_effects("torch-eager"), "bf16", sizes=sizes)
    keys = [each.key for each in provider.candidates() if each.op_class == "matmul"]
    assert keys == [f"matmul 128x{product}" for product in products]


if __name__ == "__main__":
    TOLD.write_text(
        "{\n" + ",\n".join(f" {json.dumps(k)}: {json.dumps(told_of(k))}" for k in sorted(KERNELS)) + "\n}\n"
    )
