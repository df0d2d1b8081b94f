"""Measuring against the truth, on ONNX Runtime: the engine's own profiler, its bare loop, and profiles repeated.

The truth is the engine's bare loop on the same file in the same minute, in turns with our session, so that a slow
moment falls on both. What others print as a model's time by layer is the sum of the profiler's node times; it is shown
beside ours. Our layers can at most add up to the clean run; `layer_sum_off_latency` is what is then in no kernel.
Whether each layer got its due is another question, and `layer_off_slope` asks it: the bare loop of a net with more
layers of one kind tells what one of them really takes.
Nothing is measured where onnxruntime or onnx are not installed. Of ExecuTorch, where it is, the bare loop is too.
"""

import os
import statistics
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.util import find_spec
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from figure import Figure

from inferometer.engines.base import Port, Target
from inferometer.engines.results.detect import import_file
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.child import runtime_named
from inferometer.measure.run.inputs import make_inputs
from inferometer.measure.run.model import MeasureRequest, measure_model

# Layers, their width, and whether the layers' sum is held to the target: where a node takes less than a tenth of what
# timing it costs, no correction finds the truth, and the figure is there to be seen.
MODELS = {"minute": (40, 16, False), "tiny": (40, 128, True), "small": (24, 256, True)}
RUNS, REPEATS, SESSIONS = 60, 5, 4
PROGRAM = Path(__file__).parents[1] / "tests" / "data" / "executorch" / "xnnpack.pte"


def figures():
    missing = [name for name in ("onnxruntime", "onnx") if find_spec(name) is None]
    if missing:
        print(f"measure: nothing was measured: {' and '.join(missing)} not installed")
        return
    with tempfile.TemporaryDirectory(prefix="inferometer-") as folder:
        os.environ.setdefault("INFEROMETER_CACHE", folder)  # noqa: TID251 - nothing is left in the user's own
        for name, (layers, width, held) in MODELS.items():
            path = written(Path(folder) / f"{name}.onnx", layers=layers, width=width)
            yield from sum_figures(name, path, Path(folder), held=held)
            yield loop_figure(name, path)
        if all(find_spec(name) for name in ("executorch", "torch")):
            yield loop_figure("executorch", PROGRAM, "executorch", program_step)
        yield slope_figure(Path(folder))
        yield overhead_figure(path)
        yield spread_figure(path)


def load_now():
    return f"load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else "load unknown"


def written(path, *, layers, width, then=(0, 0)):
    """A chain of products, biases and activations, three small nodes a layer; `then` so many more of another width."""
    onnx = import_module("onnx")
    made, random = onnx.helper, np.random.default_rng(0)
    widths = [width] * (layers + 1) + [then[1]] * then[0]
    nodes, stored = [], []
    for number, (into, out) in enumerate(pairwise(widths)):
        weight = random.standard_normal((into, out), np.float32) / into**0.5
        stored += [onnx.numpy_helper.from_array(weight, f"w{number}")]
        stored += [onnx.numpy_helper.from_array(np.zeros(out, np.float32), f"b{number}")]
        start, name = f"x{number}", f"layer{number}_{into}x{out}"
        nodes += [
            made.make_node("MatMul", [start, f"w{number}"], [f"p{number}"], name=f"{name}_matmul"),
            made.make_node("Add", [f"p{number}", f"b{number}"], [f"s{number}"], name=f"{name}_add"),
            made.make_node("Tanh", [f"s{number}"], [f"x{number + 1}"], name=f"{name}_tanh"),
        ]
    kind, last = onnx.TensorProto.FLOAT, len(widths) - 1
    ports = [made.make_tensor_value_info(f"x{at}", kind, [4, widths[at]]) for at in (0, last)]
    graph = made.make_graph(nodes, "chain", ports[:1], ports[1:], stored)
    model = made.make_model(graph, ir_version=9, opset_imports=[made.make_opsetid("", 17)])
    path.write_bytes(model.SerializeToString())
    return path


def engine_session(path, *, profile=None):
    ort = import_module("onnxruntime")
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def bare_step(session):
    """One pass as a program in production makes it: inputs and outputs bound once."""
    ort = import_module("onnxruntime")
    binding = session.io_binding()
    for port in session.get_inputs():
        array = np.random.default_rng(0).standard_normal(port.shape, np.float32)
        binding.bind_ortvalue_input(port.name, ort.OrtValue.ortvalue_from_numpy(array))
    for port in session.get_outputs():
        binding.bind_output(port.name)
    return lambda: session.run_with_iobinding(binding)


def timed(step, count):
    taken = []
    for _ in range(count):
        start = time.perf_counter()
        step()
        taken.append(time.perf_counter() - start)
    return taken


def quiet(taken):
    """The first decile: what disturbs only ever adds."""
    return statistics.quantiles(taken, n=10)[0]


def slope_figure(folder):
    """One narrow layer in a net that has wide ones too: our time of it, against what twenty more of them add."""
    few = written(folder / "few.onnx", layers=20, width=96, then=(6, 512))
    many = written(folder / "many.onnx", layers=40, width=96, then=(6, 512))
    steps = [bare_step(engine_session(path)) for path in (few, many)]
    taken = [[], []]
    for _ in range(60):
        for step, times in zip(steps, taken, strict=True):
            times.extend(timed(step, 10))
    true_s = (quiet(taken[1]) - quiet(taken[0])) / 20
    profile = profiled(few)
    forward = profile.phase("forward")
    pace = quiet(forward.samples_s) / forward.clean_s  # both at the machine's quietest
    narrow = [op.time_s * pace for op in forward.ops if "_96x96_" in op.name]
    ours_s = sum(narrow) / 20
    return Figure(
        name="measure_layer_off_slope",
        value=100 * (ours_s / true_s - 1),
        unit="%",
        target="none",
        met=True,
        note=f"{ours_s * 1e6:.2f} µs over {true_s * 1e6:.2f} µs of a narrow layer beside wide ones, {load_now()}",
    )


def profiled(path, **others):
    plan = Plan(runs=RUNS, seconds=0.5, seconds_at_most=5.0)
    asked = MeasureRequest(model=str(path), runtime="onnxruntime", threads=1, plan=plan, guarded=False, **others)
    return measure_model(asked).profile


def sum_figures(name, path, folder, *, held):
    """The engine's node times, added up, against the true latency; and ours."""
    step = bare_step(engine_session(path))
    watched = engine_session(path, profile=folder / f"{name}-profile")
    timed(step, 20)
    raw_step, truth = bare_step(watched), []
    for _ in range(RUNS):
        raw_step()
        truth += timed(step, 2)
    (imported,) = import_file(Path(watched.end_profiling()))
    forward = imported.phase("forward")
    raw_s, true_s = sum(op.time_s for op in forward.ops), statistics.median(truth)
    ours = profiled(path).phase("forward")
    inside = sum(op.time_s for op in ours.ops)
    yield Figure(
        name=f"measure_{name}_raw_node_sum_over_latency",
        value=100 * (raw_s / true_s - 1),
        unit="%",
        target="none",
        met=True,
        note=f"ONNX Runtime's own profiler: {raw_s * 1e6:.0f} µs over {true_s * 1e6:.0f} µs, {load_now()}",
    )
    off = 100 * abs(inside / ours.clean_s - 1)
    yield Figure(
        name=f"measure_{name}_layer_sum_off_latency",
        value=off,
        unit="%",
        target="≤ 5" if held else "none",
        met=off <= 5 or not held,
        note=f"{inside * 1e6:.0f} µs in layers of {ours.clean_s * 1e6:.0f} µs, {load_now()}",
    )


def program_step(path):
    """One pass of an ExecuTorch program through its module, as its documentation runs it.

    Its inputs are the session's: the network has an error function, which takes longer of some numbers than of others.
    """
    torch, engine = (import_module(name) for name in ("torch", "executorch.extension.pybindings._C"))
    module = engine._load_for_executorch(str(path))  # noqa: SLF001 - the engine has no other name for it
    sizes = tuple(module.method_meta("forward").input_tensor_meta(0).sizes())
    port = Port(name="input_0", dtype="float32", shape=sizes)
    given = (torch.from_numpy(make_inputs((port,), sizes={})["input_0"].copy()),)
    return lambda: module.run_method("forward", given, clone_outputs=False)


def loop_figure(name, path, engine="onnxruntime", bare=lambda path: bare_step(engine_session(path))):
    """Our session's step against the engine's own loop, in turns.

    Two sessions of one kind differ by a few per cent in where their memory lies, so there are several of each.
    """
    form = path.suffix.removeprefix(".")
    sessions = [runtime_named(engine).open(Target(path=path, format=form, threads=1)) for _ in range(SESSIONS)]
    for session in sessions:
        session.feed(make_inputs(session.opened.inputs, sizes={}))
    steps = [session.step for session in sessions] + [bare(path) for _ in range(SESSIONS)]
    taken = [[] for _ in steps]
    for _ in range(30):
        for times, step in zip(taken, steps, strict=True):
            times.extend(timed(step, 25))
    for session in sessions:
        session.close()
    ours_s, bare_s = (statistics.median(map(quiet, half)) for half in (taken[:SESSIONS], taken[SESSIONS:]))
    ratio = ours_s / bare_s
    return Figure(
        name=f"measure_{name}_clean_over_bare_loop",
        value=100 * (ratio - 1),
        unit="%",
        target="≤ 2",
        met=ratio <= 1.02,
        note=f"{ours_s * 1e6:.1f} µs over {bare_s * 1e6:.1f} µs, first deciles of {SESSIONS} sessions, {load_now()}",
    )


def overhead_figure(path):
    """All the time a profile takes beyond loading, against the time of the clean runs in it."""
    plan = Plan(runs=30, seconds=3.0, seconds_at_most=10.0)
    start = time.perf_counter()
    found = measure_model(MeasureRequest(model=str(path), runtime="onnxruntime", threads=1, plan=plan, guarded=False))
    wall = time.perf_counter() - start
    start = time.perf_counter()
    once = Plan(runs=1, seconds=0.0, warmup=0, calls=1)
    measure_model(
        MeasureRequest(model=str(path), runtime="onnxruntime", threads=1, plan=once, guarded=False, shape=False)
    )
    loading = time.perf_counter() - start
    clean = sum(found.raw.clean.samples_s) * found.raw.clean.calls
    ratio = (wall - loading) / clean
    return Figure(
        name="measure_profile_over_clean_time",
        value=ratio,
        unit="×",
        target="≤ 3",
        met=ratio <= 3,
        note=f"{wall:.1f} s in all, {loading:.1f} s of it to start and load, {clean:.1f} s of clean runs, {load_now()}",
    )


def bare_median(path):
    step = bare_step(engine_session(path))
    timed(step, 50)
    end, taken = time.perf_counter() + 0.5, []
    while time.perf_counter() < end:
        taken += timed(step, 10)
    return statistics.median(taken)


def spread_figure(path):
    """Each repetition is a process of its own, in turns with one that runs the engine's bare loop as long."""
    medians, bare = [], []
    with ProcessPoolExecutor(1, mp_context=get_context("spawn"), max_tasks_per_child=1) as processes:
        for _ in range(REPEATS):
            medians.append(profiled(path, shape=False).summary.latency_s)
            bare.append(processes.submit(bare_median, path).result())
    cv, floor = (100 * statistics.stdev(each) / statistics.fmean(each) for each in (medians, bare))
    return Figure(
        name="measure_between_process_cv",
        value=cv,
        unit="%",
        target="≤ 2 on a quiet machine",
        met=cv <= 2,
        note=f"{REPEATS} profiles of {statistics.fmean(medians) * 1e6:.0f} µs; bare loops {floor:.2f} %, {load_now()}",
    )
