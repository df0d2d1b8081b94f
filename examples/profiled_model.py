"""A model of the catalog, measured on ONNX Runtime: its latency, its five longest layers, and the sum that closes.

Its weights are made up at the exact shapes, so nothing has to be downloaded.
"""

import inferometer as im
from inferometer.core.errors import InferometerError
from inferometer.measure.bench import Plan

try:
    profile = im.profile(
        "squeezenet1.1", runtime="onnxruntime", plan=Plan(runs=10, seconds=0.2), guarded=False, image=96
    )
except InferometerError as error:  # such as: onnxruntime is not installed
    print(error)
else:
    forward = profile.phase("forward")
    print(f"{profile.model.name}: {forward.time_s * 1e3:.3f} ms, median of {len(forward.samples_s)}")
    for op in sorted(forward.ops, key=lambda op: -op.time_s)[:5]:
        print(f"  {op.name:<24} {op.kind:<12} {op.time_s * 1e6:8.1f} µs  {100 * op.time_s / forward.time_s:5.1f} %")
    inside = sum(op.time_s for op in forward.ops)
    print(f"  {inside * 1e6:.1f} µs in layers + {forward.unattributed_s * 1e6:.1f} µs unattributed")
