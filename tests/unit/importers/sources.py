"""The importers under test, and the sample files: which importer's each one is, and how many results it holds."""

import json
from importlib import import_module
from pathlib import Path

from inferometer.importers.detect import import_file

DATA = Path(__file__).parents[2] / "data" / "importers"
ENTRIES = {
    "onnxruntime": "inferometer.importers.onnxruntime:importer",
    "torch": "inferometer.importers.torch:importer",
    "openvino": "inferometer.importers.openvino:importer",
    "litert": "inferometer.importers.litert:importer",
    "trtexec": "inferometer.importers.trtexec:importer",
    "qai-hub": "inferometer.importers.qai_hub:importer",
    "embedl": "inferometer.importers.embedl:importer",
    "llama-bench": "inferometer.importers.llama_bench:importer",
    "guidellm": "inferometer.importers.guidellm:importer",
    "aiperf": "inferometer.importers.aiperf:importer",
    "vllm": "inferometer.importers.vllm:importer",
    "sglang": "inferometer.importers.sglang:importer",
    "inferencex": "inferometer.importers.inferencex:importer",
    "loadgen": "inferometer.importers.loadgen:importer",
    "hyperfine": "inferometer.importers.hyperfine:importer",
    "benchncnn": "inferometer.importers.benchncnn:importer",
    "mnn": "inferometer.importers.mnn:importer",
    "executorch": "inferometer.importers.executorch:importer",
    "nsys": "inferometer.importers.nsys:importer",
    "ncu": "inferometer.importers.ncu:importer",
    "rocprof": "inferometer.importers.rocprof:importer",
    "vtune": "inferometer.importers.vtune:importer",
    "perf-stat": "inferometer.importers.perf_stat:importer",
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
