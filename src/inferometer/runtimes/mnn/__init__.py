"""MNN, Alibaba's engine for phones and boards, on the CPU."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("mnn"),
    opener="inferometer.runtimes.mnn.session",
    capabilities=Capabilities(units=("cpu",), precision=("f32", "f16")),
)
