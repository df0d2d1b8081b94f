"""OpenVINO's benchmark_app: performance counters, and the benchmark report beside them.

Shapes, as the benchmark_app of openvino 2026.4.1 writes them (and its C++ twin, samples/cpp/benchmark_app/
statistics_report.cpp): `-report_type detailed_counters` gives a table of layers for each infer request,
`average_counters` one table, `sort_detailed_counters` the same sorted by time; as CSV with `;`, or as JSON with
`-json_stats`, where the Python tool writes numbers as text. Times are milliseconds; layers that were not EXECUTED were
fused or folded away. `benchmark_report.csv` and `.json` hold the settings and the latency.
"""

import csv
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, OpTime, Phase, Profile
from inferometer.core.workload import Workload
from inferometer.engines.results.assemble import Draft, facts, finish, op_means, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, mapping, milliseconds, optional_ms, text, whole
from inferometer.engines.results.words import kind_of, unit_of_kernel

_HEAD = "layerName"
_JSON_TABLES = ("detailed_performance", "avg_performance")
_SECTIONS = {
    "Command line parameters": "cmd_options",
    "Configuration setup": "configuration_setup",
    "Execution results": "execution_results",
}
_COLUMNS = {"name": 0, "status": 1, "node_type": 2, "exec_type": 3, "real_time": 4}
_LATENCY = {"median": ("latency (ms)", "latency_median"), "mean": ("avg latency", "latency_average")}
_LOADING = ("read model", "compile model")


class OpenVinoBenchmark:
    name = "openvino"
    title = "OpenVINO benchmark_app"

    def matches(self, document: Document) -> bool:
        if document.keys:
            return any(name in document.keys for name in (*_JSON_TABLES, "execution_results"))
        start = document.data.lstrip()
        return start.startswith((_HEAD.encode(), b"Command line parameters", b"Configuration setup"))

    def read(self, document: Document) -> tuple[Profile, ...]:
        draft = Draft(tool=self.title, runtime="openvino")
        if document.keys:
            report = document.keys if "execution_results" in document.keys else None
        else:
            report = None if document.text.lstrip().startswith(_HEAD) else _report_of(document.text)
        if report is not None:
            _add_report(draft, report)
        else:
            _add_counters(draft, _tables(document), averaged="avg_performance" in document.keys)
        return (finish(draft, document),)


def _tables(document: Document) -> list[list[Mapping[str, Any]]]:
    if not document.keys:
        return list(_csv_tables(document.text))
    tables = next(document.keys[name] for name in _JSON_TABLES if name in document.keys)
    each = tables if isinstance(tables, list) else [tables]
    return [list(listed(table.get("nodes"), "`nodes`")) for table in listed(each, "the counters")]


def _csv_tables(text_of_file: str) -> Iterator[list[Mapping[str, Any]]]:
    """A table begins with its heading and ends with its total."""
    lines = text_of_file.lstrip().splitlines()
    delimiter = lines[0][len(_HEAD) : len(_HEAD) + 1]
    if delimiter not in {";", ","}:
        raise FormatError("Its first line is no heading of performance counters.")
    table: list[Mapping[str, Any]] | None = None
    try:
        for cells in csv.reader(lines, delimiter=delimiter):
            if cells and cells[0] == _HEAD:
                if table:
                    yield table
                table, width = [], len(cells)
            elif table is not None and len(cells) >= 5 and cells[0] != "Total":
                # A layer's name may hold the delimiter; the cells after it do not.
                extra = max(0, len(cells) - width)
                named = [delimiter.join(cells[: extra + 1]), *cells[extra + 1 :]]
                row = {name: named[index] if index < len(named) else None for name, index in _COLUMNS.items()}
                table.append(row)
    except csv.Error as error:
        raise FormatError(f"Its lines cannot be split into cells: {error}.") from None
    if table:
        yield table


def _add_counters(draft: Draft, tables: Sequence[Sequence[Mapping[str, Any]]], *, averaged: bool) -> None:
    # Requests of one stream share their counters, and each prints the same reading: that is one, not several.
    kept: list[Sequence[Mapping[str, Any]]] = []
    for table in tables:
        if table not in kept:
            kept.append(table)
    runs = [[op for index, row in enumerate(table) for op in _executed(index, row)] for table in kept]
    if not any(runs):
        raise FormatError(
            "None of its layers was executed.",
            remedy="Some versions of benchmark_app write one layer only as JSON: leave -json_stats out.",
        )
    ops = op_means(runs)
    totals = tuple(sum_of(run) for run in runs)
    draft.phases.append(
        Phase(
            name="forward",
            time_s=sum_of(ops),
            statistic="mean" if averaged or len(runs) > 1 else None,
            samples_s=totals if len(runs) > 1 else None,
            ops=ops,
        )
    )
    draft.notes.append("the time is the sum of the executed layers: the counters hold no time of the whole run")
    if any("%" in row for row in tables[0]):
        draft.notes.append("the layers are sorted by time, not in the order of execution")


def _executed(index: int, row: Mapping[str, Any]) -> Iterator[OpTime]:
    status = (text(row.get("status")) or "").rpartition(".")[2]
    if status != "EXECUTED":
        return
    layer, kernel = text(row.get("node_type")), text(row.get("exec_type"))
    name = text(row.get("name")) or f"layer {index}"
    yield OpTime(
        name=name,
        kind=kind_of(layer),
        time_s=milliseconds(row.get("real_time"), f"the time of {name!r}"),
        unit=unit_of_kernel(kernel),
        kernel=kernel,
    )


def _report_of(text_of_file: str) -> Mapping[str, Any]:
    sections: dict[str, dict[str, str]] = {}
    current: dict[str, str] = {}
    for line in text_of_file.splitlines():
        if line.strip() in _SECTIONS:
            current = sections.setdefault(_SECTIONS[line.strip()], {})
        elif ";" in line:
            key, _, value = line.partition(";")
            current[key.strip()] = value.strip()
    return sections


def _add_report(draft: Draft, report: Mapping[str, Any]) -> None:
    options, setup = mapping(report.get("cmd_options")), mapping(report.get("configuration_setup"))
    results = mapping(report.get("execution_results"))
    if path := text(options.get("-m")) or text(options.get("m")):
        draft.model = ModelFacts(
            name=path.replace("\\", "/").rpartition("/")[2].rpartition(".")[0] or path, source=path
        )
    draft.device = text(setup.get("target device")) or text(setup.get("target_device")) or text(options.get("-d"))
    batch = whole(setup.get("batch size") or None, "`batch size`")
    draft.workload = Workload(batch=max(batch or 1, 1))
    draft.host |= facts(setup, "API", "precision", "number of parallel infer requests", "number of CPU streams")
    parts = {name: optional_ms(results.get(f"{name} time (ms)"), f"`{name} time`") for name in _LOADING}
    known = {name: value for name, value in parts.items() if value is not None}
    if known:
        draft.phases.append(Phase(name="load", time_s=sum(known.values()), parts=known))
    first = optional_ms(results.get("first inference time (ms)"), "`first inference time`")
    if first is not None:
        draft.phases.append(Phase(name="first_run", time_s=first))
    draft.phases.append(_latency(results))


def _latency(results: Mapping[str, Any]) -> Phase:
    for statistic, names in _LATENCY.items():
        for name in names:
            value = optional_ms(results.get(name), f"`{name}`")
            if value is not None:
                return Phase(name="forward", time_s=value, statistic=statistic)
    raise FormatError("Its results hold no latency.")


importer = OpenVinoBenchmark()
