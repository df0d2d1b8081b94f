"""ncnn, Tencent's engine for phones and boards, on the CPU."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("ncnn"),
    opener="inferometer.runtimes.ncnn.session",
    capabilities=Capabilities(units=("cpu",), perturbs=True, batches=False, precision=("f32", "f16")),
)
