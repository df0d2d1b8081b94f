"""MNN, Alibaba's engine for phones and boards, on the CPU."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("mnn"),
    opener="inferometer.engines.mnn.session",
    capabilities=Capabilities(units=("cpu",), precision=("f32", "f16")),
)
