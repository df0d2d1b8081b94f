"""Chrome traces in the shape kineto writes, made by hand: what a CUDA device adds cannot be recorded everywhere."""

HOST, DEVICE = (1, 1), (0, 7)


def event(name, ts, dur, cat="cpu_op", at=HOST, **args):
    """A complete event, in microseconds."""
    return {"ph": "X", "cat": cat, "name": name, "pid": at[0], "tid": at[1], "ts": ts, "dur": dur, "args": args}


def step(phase, ts, dur):
    return event(f"inferometer.step:{phase}", ts, dur)


def module(path, ts, dur):
    return event(f"inferometer.module:{path}", ts, dur)


def launch(ts, dur, correlation, name="cudaLaunchKernel"):
    return event(name, ts, dur, "cuda_runtime", correlation=correlation)


def ran(name, ts, dur, correlation, cat="kernel"):
    return event(name, ts, dur, cat, DEVICE, correlation=correlation)


def eager_step():
    """One projection on a GPU: 100 µs, with a view, a product that launches a kernel, and a wait of 30 µs."""
    return [
        {"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "args": {"name": "python"}},
        step("decode", 1000.0, 100.0),
        module("", 1002.0, 60.0),
        module("q_proj", 1010.0, 40.0),
        event("aten::view", 1012.0, 2.0),
        event("aten::linear", 1015.0, 30.0, **{"Input Dims": [[1, 8], [8, 8], []], "Input type": ["c10::BFloat16"]}),
        event("aten::t", 1016.0, 4.0),
        event("aten::transpose", 1017.0, 2.0),
        event("aten::mm", 1021.0, 20.0, **{"Input Dims": [[1, 8], [8, 8]], "Input type": ["c10::BFloat16"] * 2}),
        launch(1030.0, 6.0, 41),
        ran("void gemv<__nv_bfloat16, 128>(float*)", 1040.0, 12.5, 41),
        launch(1065.0, 30.0, 42, "cudaDeviceSynchronize"),
        event("aten::elsewhere", 1020.0, 5.0, at=(1, 2)),
    ]


def replayed_step(names=("triton_poi_fused_0", "gemv", "triton_poi_fused_0"), start=1000.0):
    """A step whose kernels were captured: one launch, and all of them with its correlation."""
    rows = [step("decode", start, 80.0), launch(start + 5.0, 10.0, 7, "cudaGraphLaunch")]
    rows += [ran(name, start + 20.0 + 10 * index, 8.0, 7) for index, name in enumerate(names)]
    return rows
