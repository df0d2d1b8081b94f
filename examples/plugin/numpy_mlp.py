"""Perceptrons in NumPy archives (w0, b0, w1, b1, …): a reader and an engine."""

import time
from importlib.metadata import version
from pathlib import Path

import numpy as np

from inferometer.core.dims import Symbol
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.engines.base import Capabilities, Kernel, Opened, Port, Ready, Stage, require_format
from inferometer.engines.feeding import require_fitting


def layers_of(path):
    with np.load(path) as file:
        return [(file[f"w{place}"], file[f"b{place}"]) for place in range(len(file.files) // 2)]


class Reader:
    name, formats = "mlp", frozenset({"mlp"})

    def match(self, peek):
        """By content, from 0 to 1: a ZIP archive whose first array is w0."""
        return 0.9 if peek.head.startswith(b"PK") and b"w0.npy" in peek.head[:64] else 0.0

    def read(self, path):
        """One op for each thing that is done; names are what `Kernel.layers` will say."""
        x, ops = Tensor(name="x", shape=(Symbol("batch"), layers_of(path)[0][0].shape[0])), []
        for place, (weight, bias) in enumerate(layers_of(path)):
            made = [Tensor(name=f"{name}{place}", shape=(Symbol("batch"), bias.size)) for name in ("linear", "relu")]
            held = (Tensor(name=f"w{place}", shape=weight.shape, dtype="f32", role="weight"),
                    Tensor(name=f"b{place}", shape=bias.shape, dtype="f32", role="weight"))  # fmt: skip
            ops += [
                Op(name=f"linear{place}", kind="linear", inputs=(x,), outputs=(made[0],), weights=held),
                Op(name=f"relu{place}", kind="activation", inputs=(made[0],), outputs=(made[1],),
                   attributes={"function": "relu"}),
            ]  # fmt: skip
            x = made[1]
        block = Block(name="mlp", ops=tuple(ops))
        return Graph(name=path.stem, blocks=(block,), inputs=ops[0].inputs, outputs=(x,), precision="f32")


class Session:
    cost_per_kernel_s = None  # not known: a clock is read twice a layer

    def __init__(self, target):
        start = time.perf_counter()
        self.layers, self.timed, self.samples = layers_of(target.path), target.instrument, []
        first, last = self.layers[0][0].shape[0], self.layers[-1][1].size
        self.opened = Opened(
            stages=(Stage(name="load", seconds=time.perf_counter() - start),),
            versions={"numpy": np.__version__},
            inputs=(Port(name="x", dtype="float32", shape=("batch", first)),),
            outputs=(Port(name="y", dtype="float32", shape=("batch", last)),),
        )

    def feed(self, inputs):
        require_fitting(self.opened.inputs, inputs)
        self.x = inputs["x"]

    def step(self):
        self.y, times = self.x, []
        for weight, bias in self.layers:
            start = time.perf_counter()
            self.y = np.maximum(self.y @ weight + bias, 0)
            times.append(time.perf_counter() - start)
        if self.timed:
            self.samples.append(times)

    def outputs(self):
        return {"y": self.y}

    def kernels(self):
        """One sample a step for each piece that runs at once, with the ops it stands for."""
        columns, self.samples = list(zip(*self.samples, strict=True)), []
        return {"forward": tuple(
            Kernel(name=f"layer{place}", kind="Layer", samples_s=times, layers=(f"linear{place}", f"relu{place}"))
            for place, times in enumerate(columns)
        )}  # fmt: skip

    def close(self):
        self.layers = []


class Runtime:
    name, title, formats = "numpy-mlp", "NumPy", frozenset({"mlp"})
    capabilities = Capabilities(threads=False)
    engine = Path(__file__).with_name("numpy_mlp.toml")  # what predict, doctor and explain go by

    def probe(self):
        """From metadata alone; an engine that is not there answers `Missing` with the remedy."""
        return Ready(version=version("numpy-mlp"))

    def open(self, target):
        require_format(self, target)
        return Session(target)


reader, runtime = Reader(), Runtime()
