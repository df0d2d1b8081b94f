"""Profiles to store. Small, and each unlike the next."""

from inferometer.core.profile import DeviceFacts, Environment, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload


def profile(number=1, *, model="resnet50", device="phone", disturbed=False, machine=None, **summary):
    ops = tuple(OpTime(name=f"layer.{index}", kind="linear", time_s=1e-3 * (index + number)) for index in range(3))
    return Profile(
        kind="measured",
        model=ModelFacts(name=model, parameters=number),
        device=DeviceFacts(name=device, title=device.title()),
        workload=Workload(),
        runtime="onnxruntime",
        phases=(Phase(name="forward", time_s=0.01 * number, statistic="median", samples_s=(0.01, 0.02), ops=ops),),
        summary=Headline(**({"latency_s": 0.01 * number} | summary)),
        environment=Environment(disturbed=disturbed, machine=machine),
    )
