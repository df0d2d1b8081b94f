"""ExecuTorch: the Inspector's table, the benchmark apps' JSON, and what executor_runner prints.

Shapes: devtools/inspector/_inspector.py (`save_data_to_tsv`, columns `event_name`, `avg (ms)`, `op_types`,
`is_delegated_op`, `delegate_backend_name`), extension/benchmark (a list of `benchmarkModel`, `metric`, `actualValue`,
with the phone in `deviceInfo`), and examples/portable/executor_runner ("Model executed successfully N time(s) in X
ms").

In the table `Method::execute` is the whole, and `DELEGATE_CALL` spans the delegated rows that were recorded just before
it: they take its place, with `delegate overhead` for what they leave. `OPERATOR_CALL` spans the `native_call_…` before
it and is left out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, OpTime, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, remainder, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, mapping, milliseconds, number, text
from inferometer.engines.results.tables import TableRow, has_table, table_rows
from inferometer.engines.results.words import kind_of

_COLUMNS = ("event_name", "op_types", "is_delegated_op")
_RUNS = re.compile(r"Model executed successfully (\d{1,9}) time\(s\) in ([^\s]+) ms")
_WHOLE, _DELEGATE, _OPERATOR = "Method::execute", "DELEGATE_CALL", "OPERATOR_CALL"
_LOADS = ("Program::load_method", "Method::init")  # the first holds the second
_UNITS = {"XnnpackBackend": "cpu", "VulkanBackend": "gpu", "MPSBackend": "gpu", "EthosUBackend": "npu"}
_LATENCY, _LOADED, _RATE = "avg_inference_latency(ms)", "model_load_time(ms)", "token_per_sec"


class ExecuTorch:
    name = "executorch"
    title = "ExecuTorch"

    def matches(self, document: Document) -> bool:
        if isinstance(document.json, list):
            rows = document.json
            return bool(rows) and all(
                isinstance(row, dict) and {"benchmarkModel", "metric", "actualValue"} <= row.keys() for row in rows
            )
        if document.json is not None or document.records:
            return False
        return b"Model executed successfully " in document.data or has_table(document.text, _COLUMNS)

    def read(self, document: Document) -> tuple[Profile, ...]:
        if isinstance(document.json, list):
            return tuple(finish(draft, document) for draft in _apps(document.json))
        whole = document.text
        draft = Draft(tool=self.title, runtime="executorch")
        if has_table(whole, _COLUMNS):
            _add_table(draft, list(table_rows(whole, _COLUMNS)))
        else:
            match = _RUNS.search(whole)
            if match is None or not int(match[1]):
                raise FormatError(
                    "It does not tell how long the model ran.",
                    remedy="Older runners print no time: run a newer executor_runner, or import the Inspector's table.",
                )
            time_s = milliseconds(match[2], "the milliseconds of all runs") / int(match[1])
            draft.host["runs"] = int(match[1])
            draft.phases.append(Phase(name="forward", time_s=time_s, statistic="mean"))
        return (finish(draft, document),)


def _add_table(draft: Draft, rows: Sequence[TableRow]) -> None:
    events = {row.cells["event_name"]: row for row in rows}
    load = next((events[name] for name in _LOADS if name in events), None)
    if load is not None:
        draft.phases.append(Phase(name="load", time_s=_average(load), statistic="mean"))
    ops = _ops([row for row in rows if row.cells["event_name"] not in {_WHOLE, _OPERATOR, *_LOADS}])
    if not ops and _WHOLE not in events:
        raise FormatError("It holds no event of a run.", remedy="Record an ETDump of at least one execution.")
    time_s = _average(events[_WHOLE]) if _WHOLE in events else sum_of(ops)
    left = remainder(time_s, ops, draft.notes) if _WHOLE in events else None
    draft.phases.append(Phase(name="forward", time_s=time_s, statistic="mean", ops=ops, unattributed_s=left))


def _average(row: TableRow) -> float:
    column = next((name for name in ("avg (ms)", "avg") if name in row.cells), None)
    if column is None:
        raise FormatError("The table has no column `avg (ms)`.", remedy="Write it with `save_data_to_tsv`.")
    return milliseconds(row.cells[column], f"`{column}` in line {row.line}")


def _ops(rows: Sequence[TableRow]) -> tuple[OpTime, ...]:
    ops: list[OpTime] = []
    inside: list[OpTime] = []
    for row in rows:
        if row.cells["event_name"] == _DELEGATE:
            ops += _opened(_op(row), inside)
            inside = []
        elif row.cells["is_delegated_op"].casefold() == "true":
            inside.append(_op(row))
        else:
            ops.append(_op(row))
    return (*ops, *inside)


def _opened(call: OpTime, inside: Sequence[OpTime]) -> list[OpTime]:
    """What ran inside a call of a delegate and what it leaves of the call's time; else the call itself."""
    left = call.time_s - sum_of(inside)
    if not inside or left < 0:
        return [call]
    overhead = OpTime(name="delegate overhead", kind="control", time_s=left, unit=call.unit, provider=call.provider)
    return [*inside, overhead]


def _op(row: TableRow) -> OpTime:
    name = row.cells["event_name"] or f"event in line {row.line}"
    backend = row.cells.get("delegate_backend_name") or None
    known = re.findall(r"(?:aten|edge|quantized_decomposed)[\w.]*?\.([a-zA-Z_]\w*)\.", row.cells["op_types"])
    source = known[0] if known and name == _DELEGATE else name.removeprefix("native_call_").partition(".")[0]
    return OpTime(
        name=name, kind=kind_of(source), time_s=_average(row), kernel=name, provider=backend,
        unit=_UNITS.get(backend) if backend else "cpu",
    )  # fmt: skip


def _apps(rows: Sequence[Any]) -> list[Draft]:
    """The figures of each model together, in the order of the file."""
    drafts: dict[str, Draft] = {}
    for row in listed(list(rows), "the file"):
        model, phone = mapping(row["benchmarkModel"]), mapping(row.get("deviceInfo"))
        key = repr((sorted((str(name), str(value)) for name, value in model.items()), text(phone.get("device"))))
        _add_metric(drafts.setdefault(key, _app(model, phone)), row)
    for draft in drafts.values():
        if not draft.phases:
            name = draft.model.name if draft.model else "a model"
            raise FormatError(f"It has no {_LATENCY} of {name}.")
        draft.phases.sort(key=lambda phase: phase.name != "load")
    return list(drafts.values())


def _app(model: Mapping[str, Any], phone: Mapping[str, Any]) -> Draft:
    backend = text(model.get("backend"))
    host = {key: word for key in ("backend", "quantization") if (word := text(model.get(key)))}
    host |= {key: word for key in ("arch", "os") if (word := text(phone.get(key)))}
    return Draft(
        tool="ExecuTorch benchmark", runtime="executorch", device=text(phone.get("device")), host=host,
        model=ModelFacts(name=text(model.get("name")) or "unknown"),
        notes=[] if backend else ["the file names no backend"],
    )  # fmt: skip


def _add_metric(draft: Draft, row: Mapping[str, Any]) -> None:
    metric, value = text(row.get("metric")), row.get("actualValue")
    if metric == _LATENCY:
        draft.phases.append(Phase(name="forward", time_s=milliseconds(value, f"`{metric}`"), statistic="mean"))
    elif metric == _LOADED:
        draft.phases.append(Phase(name="load", time_s=milliseconds(value, f"`{metric}`"), statistic="mean"))
    elif metric == _RATE:
        rate = number(value, f"`{metric}`")
        if rate:
            draft.headline |= {"tokens_per_s": rate, "tpot_s": 1 / rate}
            draft.phases.append(Phase(name="decode", time_s=1 / rate, statistic="mean"))
    elif metric == "load_status" and number(abs(value) if isinstance(value, int | float) else value, "`load_status`"):
        draft.notes.append(f"the app could not load the model: error {value}")


importer = ExecuTorch()
