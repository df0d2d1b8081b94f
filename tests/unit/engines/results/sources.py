"""The importers under test, and the sample files: which importer's each one is, and how many results it holds."""

import json
from importlib import import_module
from pathlib import Path

from inferometer.engines.results.detect import import_file

DATA = Path(__file__).parents[3] / "data" / "importers"
ENTRIES = {
    "onnxruntime": "inferometer.engines.onnxruntime.results:importer",
    "torch": "inferometer.engines.torch.results:importer",
    "openvino": "inferometer.engines.openvino.results:importer",
    "litert": "inferometer.engines.litert.results:importer",
    "trtexec": "inferometer.engines.tools.trtexec:importer",
    "qai-hub": "inferometer.engines.tools.device_hubs:qai_hub",
    "embedl": "inferometer.engines.tools.device_hubs:embedl",
    "llama-bench": "inferometer.engines.llamacpp.results:importer",
    "guidellm": "inferometer.engines.tools.load_generators:guidellm",
    "aiperf": "inferometer.engines.tools.load_generators:aiperf",
    "vllm": "inferometer.engines.tools.serving_benchmarks:vllm",
    "sglang": "inferometer.engines.tools.serving_benchmarks:sglang",
    "inferencex": "inferometer.engines.tools.serving_benchmarks:inferencex",
    "loadgen": "inferometer.engines.tools.load_generators:loadgen",
    "hyperfine": "inferometer.engines.tools.host_benchmarks:hyperfine",
    "benchncnn": "inferometer.engines.ncnn.results:importer",
    "mnn": "inferometer.engines.mnn.results:importer",
    "executorch": "inferometer.engines.executorch.results:importer",
    "nsys": "inferometer.engines.tools.gpu_profilers:nsys",
    "ncu": "inferometer.engines.tools.gpu_profilers:ncu",
    "rocprof": "inferometer.engines.tools.gpu_profilers:rocprof",
    "vtune": "inferometer.engines.tools.cpu_profilers:vtune",
    "perf-stat": "inferometer.engines.tools.cpu_profilers:perf_stat",
    "fio": "inferometer.engines.tools.host_benchmarks:fio",
    "iperf3": "inferometer.engines.tools.host_benchmarks:iperf3",
    "sysbench": "inferometer.engines.tools.host_benchmarks:sysbench",
    "lm-eval": "inferometer.engines.tools.trackers:lm_eval",
    "mlflow": "inferometer.engines.tools.trackers:mlflow",
    "tensorboard": "inferometer.engines.tools.trackers:tensorboard",
}
OURS = {
    name: getattr(import_module(entry.partition(":")[0]), entry.partition(":")[2]) for name, entry in ENTRIES.items()
}
SAMPLES = {
    "onnxruntime.json": ("onnxruntime", 1),
    "torch_cpu.json": ("torch", 1),
    "torch_gpu.json": ("torch", 1),
    "openvino_detailed.csv": ("openvino", 1),
    "openvino_detailed.json": ("openvino", 1),
    "openvino_average.csv": ("openvino", 1),
    "openvino_average.json": ("openvino", 1),
    "openvino_report.csv": ("openvino", 1),
    "openvino_report.json": ("openvino", 1),
    "litert.txt": ("litert", 1),
    "litert.csv": ("litert", 1),
    "trtexec_profile.json": ("trtexec", 1),
    "trtexec_times.json": ("trtexec", 1),
    "qai_hub.json": ("qai-hub", 1),
    "embedl.json": ("embedl", 1),
    "embedl_detail.json": ("embedl", 1),
    "llama_bench.json": ("llama-bench", 1),
    "llama_bench.jsonl": ("llama-bench", 3),
    "guidellm.json": ("guidellm", 2),
    "aiperf.json": ("aiperf", 1),
    "vllm.json": ("vllm", 1),
    "vllm.jsonl": ("vllm", 2),
    "sglang.jsonl": ("sglang", 2),
    "inferencex.json": ("inferencex", 2),
    "loadgen.txt": ("loadgen", 1),
    "hyperfine.json": ("hyperfine", 2),
    "benchncnn.txt": ("benchncnn", 3),
    "mnn.txt": ("mnn", 3),
    "executorch.tsv": ("executorch", 1),
    "executorch.json": ("executorch", 2),
    "executorch_runner.txt": ("executorch", 1),
    "nsys.csv": ("nsys", 1),
    "ncu_details.csv": ("ncu", 1),
    "ncu_raw.csv": ("ncu", 1),
    "rocprof_trace.csv": ("rocprof", 1),
    "rocprof_stats.csv": ("rocprof", 1),
    "vtune.csv": ("vtune", 1),
    "perf_stat.txt": ("perf-stat", 1),
    "perf_stat.csv": ("perf-stat", 1),
    "perf_stat.jsonl": ("perf-stat", 1),
    "fio.json": ("fio", 2),
    "iperf3.json": ("iperf3", 1),
    "sysbench_memory.txt": ("sysbench", 1),
    "sysbench_cpu.txt": ("sysbench", 1),
    "sysbench_files.txt": ("sysbench", 1),
    "lm_eval.json": ("lm-eval", 1),
    "mlflow_search.json": ("mlflow", 2),
    "mlflow_run.json": ("mlflow", 1),
    "tensorboard.tfevents": ("tensorboard", 1),
}


def taken(path, **asked):
    """The profiles of a file, by our own importers."""
    return import_file(path, importers=OURS.values(), now=lambda: "2026-01-01T00:00:00+00:00", **asked)


def sample(name, **asked):
    return taken(DATA / name, **asked)


def only(name, **asked):
    (profile,) = sample(name, **asked)
    return profile


def written(folder, value, name="result.json"):
    """A file with this value in it: JSON, or text as it is."""
    path = folder / name
    path.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")
    return path


def parsed(name):
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def times(phase):
    """Microseconds of each op, by name."""
    return {op.name: round(op.time_s * 1e6, 6) for op in phase.ops}
