"""MNN's benchmark.out: what it prints.

Shape: alibaba/MNN, benchmark/benchmark.cpp. "MNN benchmark", a line with the backend, the threads and the precision,
one with the number of loops, then a line for each model: the longest, the shortest and the mean time in milliseconds.
Older versions have no space before `ms` and fewer settings. A log may hold several such blocks.
"""

import re
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import milliseconds, whole

_BACKEND = re.compile(r"Forward type:\s*\**(\w+)\**")
_THREADS = re.compile(r"\bthread=(\d{1,4})\b")
_PRECISION = re.compile(r"\bprecision=(\d)\b")
_LOOPS = re.compile(r"Benchmarking\.\.\. loop = (\d{1,9})(?:, warmup = (\d{1,9}))?")
_TIME = r"\s*=\s*(\S+?)\s*ms"
_RESULT = re.compile(rf"^\[ - \]\s+(\S.*?)\s+max{_TIME}\s+min{_TIME}\s+avg{_TIME}\s*$")
_UNITS = {"CPU": "cpu", "Metal": "gpu", "OpenCL": "gpu", "OpenGL": "gpu", "Vulkan": "gpu", "CUDA": "gpu"}
_PRECISIONS = {"0": "normal", "1": "high", "2": "low"}  # BackendConfig::PrecisionMode


class MnnBenchmark:
    name = "mnn"
    title = "MNN's benchmark"

    def matches(self, document: Document) -> bool:
        return b"Forward type:" in document.data and b"[ - ] " in document.data and b"avg" in document.data

    def read(self, document: Document) -> tuple[Profile, ...]:
        settings: dict[str, Any] = {}
        profiles = []
        for index, line in enumerate(document.text.splitlines(), start=1):
            if match := _BACKEND.search(line):
                settings = _settings(match, line)
            elif match := _LOOPS.search(line):
                settings |= {"loops": int(match[1])} | ({"warm_up": int(match[2])} if match[2] else {})
            elif match := _RESULT.match(line):
                profiles.append(finish(_draft(match, index, settings), document))
        if not profiles:
            raise FormatError(
                "It holds no line `[ - ] MODEL max = … ms min = … ms avg = … ms`.",
                remedy="Run benchmark.out on a folder of .mnn files, and keep what it prints.",
            )
        return tuple(profiles)


def _settings(backend: re.Match[str], line: str) -> dict[str, Any]:
    settings: dict[str, Any] = {"backend": backend[1]}
    if match := _THREADS.search(line):
        settings["threads"] = int(match[1])
    if match := _PRECISION.search(line):
        settings["precision"] = _PRECISIONS.get(match[1], match[1])
    return settings


def _draft(match: re.Match[str], line: int, settings: dict[str, Any]) -> Draft:
    longest, shortest, mean = (
        milliseconds(value, f"`{word}` in line {line}")
        for word, value in zip(("max", "min", "avg"), match.groups()[1:], strict=True)
    )
    draft = Draft(
        tool="MNN benchmark",
        runtime="mnn",
        model=ModelFacts(name=match[1].removesuffix(".mnn"), source=match[1]),
        threads=whole(settings.get("threads"), "the number of threads"),
        host={"min_s": shortest, "max_s": longest} | {key: settings[key] for key in settings if key != "threads"},
    )
    draft.headline["top_unit"] = _UNITS.get(settings.get("backend", ""))
    draft.phases.append(Phase(name="forward", time_s=mean, statistic="mean"))
    return draft


importer = MnnBenchmark()
