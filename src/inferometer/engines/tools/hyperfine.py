"""hyperfine's `--export-json`.

Shape: sharkdp/hyperfine, src/benchmark/benchmark_result.rs: `results`, one for each command, with `mean`, `median`,
`min`, `max`, `stddev`, `user` and `system` in seconds, `times` of every run, `exit_codes`, and in newer versions
`memory_usage_byte`. Each command is a profile with the phase run, as `inferometer bench` gives it, so that the two can
be compared.
"""

from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.core.statistics import median
from inferometer.engines.results.assemble import Draft, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, mapping, numbers, optional, size, text


class Hyperfine:
    name = "hyperfine"
    title = "hyperfine"

    def matches(self, document: Document) -> bool:
        results = document.keys.get("results")
        if not isinstance(results, list) or not results:
            return False
        first = mapping(results[0])
        return "command" in first and ("times" in first or "median" in first)

    def read(self, document: Document) -> tuple[Profile, ...]:
        results = listed(document.keys["results"], "`results`")
        return tuple(finish(_draft(result), document) for result in results)


def _draft(result: Mapping[str, Any]) -> Draft:
    command = text(result.get("command"))
    draft = Draft(tool="hyperfine", command=command)
    if command:
        draft.model = ModelFacts(name=command)
    times = numbers(result.get("times"), "`times`")
    middle = optional(result.get("median"), "`median`")
    if middle is None and not times:
        raise FormatError(f"The result of {command!r} holds no time.")
    draft.phases.append(
        Phase(
            name="run",
            time_s=middle if middle is not None else median(times or ()),
            statistic="median",
            samples_s=times,
        )
    )
    memory = numbers(result.get("memory_usage_byte"), "`memory_usage_byte`")
    if memory:
        draft.headline["peak_memory_bytes"] = size(max(memory), "`memory_usage_byte`")
    codes = result.get("exit_codes")
    failed = sum(code != 0 for code in codes) if isinstance(codes, list) else 0
    if failed:
        draft.notes.append(f"{failed} of {len(codes or ())} runs ended with an exit code other than 0")
    draft.host |= {
        f"{name}_s": value for name in ("user", "system") if (value := optional(result.get(name), f"`{name}`"))
    }
    return draft


importer = Hyperfine()
