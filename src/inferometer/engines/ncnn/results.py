"""ncnn's benchncnn: what it prints.

Shape: Tencent/ncnn, benchmark/benchncnn.cpp and benchmark/README.md. Settings come first, one a line (`loop_count =
8`), then a line for each network: its name, and the shortest, the longest and the mean time of the loops in
milliseconds. With Vulkan, lines before them name the GPUs. A log may hold several such blocks.
"""

import re
from collections.abc import Mapping

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import milliseconds, whole

_SETTING = re.compile(r"^\s*(loop_count|num_threads|powersave|gpu_device|cooling_down) = (-?\d{1,9})\s*$")
_RESULT = re.compile(r"^\s*(\S+)\s+min =\s*(\S+)\s+max =\s*(\S+)\s+avg =\s*(\S+)\s*$")
_GPU = re.compile(r"^\[(\d{1,3}) ([^\]]+)\]")
_CORES = {"0": "all", "1": "little", "2": "big"}


class Benchncnn:
    name = "benchncnn"
    title = "ncnn's benchncnn"

    def matches(self, document: Document) -> bool:
        if document.json is not None or document.records or b"loop_count = " not in document.data:
            return False
        return b"num_threads = " in document.data and b"avg = " in document.data

    def read(self, document: Document) -> tuple[Profile, ...]:
        settings: dict[str, str] = {}
        gpus: dict[str, str] = {}
        profiles = []
        for index, line in enumerate(document.text.splitlines(), start=1):
            if match := _SETTING.match(line):
                if match[1] == "loop_count":
                    settings = {}
                settings[match[1]] = match[2]
            elif match := _GPU.match(line):
                gpus[match[1]] = match[2].strip()
            elif match := _RESULT.match(line):
                profiles.append(finish(_draft(match, index, settings, gpus), document))
        if not profiles:
            raise FormatError(
                "It holds no line with a network's name, min, max and avg.",
                remedy="Run benchncnn in the folder of its .param files.",
            )
        return tuple(profiles)


def _draft(match: re.Match[str], line: int, settings: Mapping[str, str], gpus: Mapping[str, str]) -> Draft:
    shortest, longest, mean = (
        milliseconds(value, f"`{word}` in line {line}")
        for word, value in zip(("min", "max", "avg"), match.groups()[1:], strict=True)
    )
    card = settings.get("gpu_device")
    on_cpu = card == "-1"
    draft = Draft(
        tool="benchncnn",
        runtime="ncnn",
        model=ModelFacts(name=match[1]),
        device=None if card is None or on_cpu else gpus.get(card),
        threads=whole(settings.get("num_threads"), "`num_threads`"),
        host={"min_s": shortest, "max_s": longest},
    )
    if card is not None:
        draft.headline["top_unit"] = "cpu" if on_cpu else "gpu"
    if "loop_count" in settings:
        draft.host["loops"] = whole(settings["loop_count"], "`loop_count`")
    if settings.get("powersave") in _CORES:
        draft.host["cores"] = _CORES[settings["powersave"]]
    draft.phases.append(Phase(name="forward", time_s=mean, statistic="mean"))
    draft.notes.append("benchncnn makes the weights and the inputs up")
    return draft


importer = Benchncnn()
