"""OpenVINO."""

from inferometer.engines.base import Capabilities, Engine
from inferometer.known.engines import engine

runtime = Engine(
    engine=engine("openvino"),
    opener="inferometer.engines.openvino.session",
    capabilities=Capabilities(units=("cpu", "gpu", "npu"), precision=("f32", "f16", "bf16")),
)
