"""llama.cpp's llama-bench: `-o json` and `-o jsonl`.

Shape: tools/llama-bench/README.md and llama-bench.cpp of llama.cpp (b5163). Each row is a test: `pp` processes
`n_prompt` tokens, `tg` generates `n_gen`, `pg` does both; `n_depth` tokens are in the cache before it. `avg_ns`,
`stddev_ns` and `samples_ns` are of the whole test; tokenising and sampling are not in them.

A pp and a tg test of the same settings and depth are one profile, with prefill and decode; decode is one step, the
time of the test over its tokens. Where several of either share their settings, nothing tells which belong together,
and each test is a profile of its own.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.core.dtypes import dtype
from inferometer.core.errors import FormatError, UnknownNameError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.core.workload import Precision, Workload
from inferometer.engines.results.assemble import Draft, facts, finish
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, number, numbers, optional, text, whole

_OF_A_TEST = frozenset({
    "n_prompt", "n_gen", "test_time", "avg_ns", "stddev_ns", "avg_ts", "stddev_ts", "samples_ns", "samples_ts",
})  # fmt: skip
_HOST = (
    "cpu_info", "gpu_info", "backends", "n_gpu_layers", "n_batch", "n_ubatch", "flash_attn", "split_mode", "use_mmap",
    "no_kv_offload", "devices",
)  # fmt: skip
_NS = 1e9

TestRow = Mapping[str, Any]


class LlamaBench:
    name = "llama-bench"
    title = "llama-bench"

    def matches(self, document: Document) -> bool:
        rows = _rows(document)
        return bool(rows) and all(
            isinstance(row, dict) and {"avg_ns", "n_prompt", "n_gen"} <= row.keys() for row in rows[:20]
        )

    def read(self, document: Document) -> tuple[Profile, ...]:
        rows = list(listed(_rows(document), "the file"))
        return tuple(finish(_draft(group), document) for group in _groups(rows))


def _rows(document: Document) -> list[Any]:
    return document.json if isinstance(document.json, list) else list(document.records)


def _groups(rows: Sequence[TestRow]) -> list[list[TestRow]]:
    """Tests that belong together, in the order of the file."""
    groups: dict[str, list[TestRow]] = {}
    for row in rows:
        settings = {key: value for key, value in row.items() if key not in _OF_A_TEST}
        groups.setdefault(repr(sorted(settings.items(), key=lambda pair: pair[0])), []).append(row)
    return [tests for group in groups.values() for tests in _paired(group)]


def _paired(group: Sequence[TestRow]) -> list[list[TestRow]]:
    single = [row for row in group if _test(row) != "pg"]
    if sorted(map(_test, single)) != ["pp", "tg"]:
        return [[row] for row in group]
    return [single, *([row] for row in group if _test(row) == "pg")]


def _test(row: TestRow) -> str:
    prompt, generate = _count(row, "n_prompt"), _count(row, "n_gen")
    if not prompt and not generate:
        raise FormatError("A test of no tokens: `n_prompt` and `n_gen` are both 0.")
    return "pg" if prompt and generate else "pp" if prompt else "tg"


def _count(row: TestRow, key: str) -> int:
    return whole(row.get(key), f"`{key}`") or 0


def _draft(group: Sequence[TestRow]) -> Draft:
    row = group[0]
    build, commit = text(row.get("build_number")), text(row.get("build_commit"))
    draft = Draft(
        tool="llama-bench",
        version=" ".join(filter(None, (build, f"({commit})" if commit else None))) or None,
        measured_at=text(row.get("test_time")),
        model=_model(row),
        device=_device(row),
        runtime="llamacpp",
        threads=whole(row.get("n_threads"), "`n_threads`"),
        host=facts(row, *_HOST),
    )
    if build:
        draft.versions["llama.cpp"] = build
    prompt = max(_count(row, "n_prompt") for row in group)
    generate = max(_count(row, "n_gen") for row in group)
    keys, values = (text(group[0].get(name)) for name in ("type_k", "type_v"))
    draft.workload = Workload(
        prompt=prompt or None,
        generate=generate or None,
        context=whole(group[0].get("n_depth"), "`n_depth`"),
        precision=Precision(kv=_format(keys) if keys == values else None),
    )
    for test in group:
        draft.phases.append(_phase(test, draft))
    draft.phases.sort(key=lambda phase: phase.name != "prefill")
    draft.notes.append("tokenising and sampling are not in these times")
    return draft


def _phase(row: TestRow, draft: Draft) -> Phase:
    kind = _test(row)
    steps = _count(row, "n_gen") if kind == "tg" else 1
    time_s = number(row.get("avg_ns"), "`avg_ns`") / _NS / steps
    samples = numbers(row.get("samples_ns"), "`samples_ns`")
    if kind == "tg":
        draft.headline["tpot_s"] = time_s
        draft.headline["tokens_per_s"] = optional(row.get("avg_ts"), "`avg_ts`")
    elif kind == "pg":
        draft.headline["e2e_s"] = time_s
    return Phase(
        name={"pp": "prefill", "tg": "decode", "pg": "request"}[kind],
        time_s=time_s,
        statistic="mean",
        samples_s=tuple(sample / _NS / steps for sample in samples) if samples else None,
    )


def _format(name: str | None) -> str | None:
    try:
        return dtype(name).name if name else None
    except UnknownNameError:
        return None


def _model(row: TestRow) -> ModelFacts | None:
    path, described = text(row.get("model_filename")), text(row.get("model_type"))
    name = path.replace("\\", "/").rpartition("/")[2].removesuffix(".gguf") if path else described
    if not name:
        return None
    return ModelFacts(
        name=name,
        parameters=whole(row.get("model_n_params"), "`model_n_params`"),
        weight_bytes=whole(row.get("model_size"), "`model_size`"),
        architecture=described.split()[0] if described else None,
        source=path,
    )


def _device(row: TestRow) -> str | None:
    """The GPU where layers were put on one; the CPU where the build has no other backend, or none was used."""
    gpu, cpu, backends = text(row.get("gpu_info")), text(row.get("cpu_info")), text(row.get("backends")) or ""
    layers = row.get("n_gpu_layers")
    if gpu and layers not in (0, "0"):
        return gpu
    return cpu if set(backends.split(",")) <= {"CPU", "BLAS", ""} or layers in (0, "0") else None


importer = LlamaBench()
