"""ncnn, Tencent's engine for phones and boards, on the CPU."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("ncnn"),
    opener="inferometer.engines.ncnn.session",
    capabilities=Capabilities(units=("cpu",), perturbs=True, batches=False, precision=("f32", "f16")),
)
