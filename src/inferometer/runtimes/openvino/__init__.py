"""OpenVINO."""

from inferometer.catalog.engines import engine
from inferometer.runtimes.base import Capabilities, Engine

runtime = Engine(
    engine=engine("openvino"),
    opener="inferometer.runtimes.openvino.session",
    capabilities=Capabilities(units=("cpu", "gpu", "npu"), precision=("f32", "f16", "bf16")),
)
