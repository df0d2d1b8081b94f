"""Figures of any kind by name: scores of an evaluation, and what experiments were tracked with."""

import math
import struct
from collections.abc import Iterator, Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import ModelFacts, Phase, Profile
from inferometer.engines.results.assemble import Draft, finish, keep_figures
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import mapping, milliseconds, moment, number, text


class LmEval:
    """lm-evaluation-harness's results: how good a model's answers are, beside how fast they come.

    Shape: EleutherAI/lm-evaluation-harness, lm_eval/loggers/evaluation_tracker.py: `results`, by task, with figures
    named `METRIC,FILTER` and `METRIC_stderr,FILTER`; `n-samples`, `config` (model, model_args), `model_name`,
    `lm_eval_version` and `total_evaluation_time_seconds`. The evaluation is the phase run; scores are figures of the
    profile.
    """

    name = "lm-eval"
    title = "lm-evaluation-harness"

    def matches(self, document: Document) -> bool:
        keys, results = document.keys, document.keys.get("results")
        return isinstance(results, dict) and ("n-samples" in keys or "n-shot" in keys or "lm_eval_version" in keys)

    def read(self, document: Document) -> tuple[Profile, ...]:
        keys = document.keys
        name = text(keys.get("model_name")) or text(mapping(keys.get("config")).get("model_args"))
        version = text(keys.get("lm_eval_version"))
        draft = Draft(tool="lm-eval", version=version, model=ModelFacts(name=name) if name else None)
        figures: dict[str, float] = {}
        for task, row in mapping(keys["results"]).items():
            # Figures by task and metric; what is not known ("N/A") is left out, and so is the task's own name
            # (`alias`).
            scores = {
                f"{task}/{metric.removesuffix(',none')}": moment(value, f"`{task}.{metric}`")
                for metric, value in mapping(row).items()
                if metric != "alias" and isinstance(value, int | float) and not isinstance(value, bool)
            }
            figures |= scores
        if not figures:
            raise FormatError("It has no scores.", remedy="Save the results again with --output_path.")
        keep_figures(draft, figures)
        seconds = keys.get("total_evaluation_time_seconds")
        if seconds is not None:
            took = number(seconds, "`total_evaluation_time_seconds`")
            draft.phases.append(Phase(name="run", time_s=took, statistic="sum"))
        return (finish(draft, document),)


lm_eval = LmEval()


class Mlflow:
    """A run of MLflow, as `mlflow runs describe` and its REST interface (`runs/get`, `runs/search`) give it.

    Shape: mlflow.org, "REST API", Run: `info` (run_id, run_name, start_time and end_time in milliseconds) and `data`
    with `metrics`, `params` and `tags`, as objects, or as lists of `key` and `value`. The run is the phase run; its
    metrics are figures of the profile, its parameters stand in the environment.
    """

    name = "mlflow"
    title = "MLflow"

    def matches(self, document: Document) -> bool:
        return any("run_id" in mapping(run.get("info")) and "data" in run for run in _runs(document))

    def read(self, document: Document) -> tuple[Profile, ...]:
        return tuple(finish(_draft(run), document) for run in _runs(document))


def _runs(document: Document) -> Iterator[Mapping[str, Any]]:
    """The run that it is, that it has, or all those it lists."""
    keys = document.keys
    listed = keys.get("runs")
    for run in listed if isinstance(listed, list) else [keys.get("run", keys)]:
        if isinstance(run, dict):
            yield run


def _draft(run: Mapping[str, Any]) -> Draft:
    info, data = mapping(run.get("info")), mapping(run.get("data"))
    name = text(info.get("run_name")) or text(info.get("run_id"))
    draft = Draft(tool="MLflow", model=ModelFacts(name=name) if name else None)
    figures = {name: moment(value, f"`metrics.{name}`") for name, value in _pairs(data.get("metrics")).items()}
    start, end = info.get("start_time"), info.get("end_time")
    if start is not None and end is not None:
        took = milliseconds(end, "`end_time`") - milliseconds(start, "`start_time`")
        if took < 0:
            raise FormatError("The run ended before it started.", remedy="Check `start_time` and `end_time`.")
        draft.phases.append(Phase(name="run", time_s=took, statistic="sum"))
    if not figures and not draft.phases:
        raise FormatError("The run has no metrics and no times.", remedy="Take one that has ended.")
    keep_figures(draft, figures)
    draft.host |= {f"param {key}": text(value) for key, value in _pairs(data.get("params")).items()}
    return draft


def _pairs(values: Any) -> dict[str, Any]:
    if isinstance(values, dict):
        return values
    rows = values if isinstance(values, list) else []
    return {str(row["key"])[:200]: row.get("value") for row in rows if isinstance(row, dict) and "key" in row}


mlflow = Mlflow()


_HEAD, _TAIL = 12, 4  # bytes around a record: its length and the checksum of that, then the checksum of its data
_TAGS = 100_000  # more than any board shows


class Tensorboard:
    """TensorBoard's event files (`events.out.tfevents.…`): the scalars of a run.

    Shape: tensorflow, core/lib/io/record_writer.h (records: length, checksum of it, data, checksum) and
    core/util/event.proto, framework/summary.proto: an Event has `wall_time` (1), `step` (2) and a `summary` (5) of
    values with a `tag` (1) and a `simple_value` (2), or a `tensor` (8) of one float, as newer writers put it. The last
    value of each tag is a figure of the profile; from the first event to the last is the phase run.
    """

    name = "tensorboard"
    title = "TensorBoard"

    def matches(self, document: Document) -> bool:
        """The first record says what the file is: `brain.Event:2`."""
        return b"brain.Event:" in document.data[:64]

    def read(self, document: Document) -> tuple[Profile, ...]:
        draft, figures, times = Draft(tool="TensorBoard"), dict[str, float](), list[float]()
        for record in _records(document.data):
            for key, value in _fields(record):
                if key == 1 and isinstance(value, bytes) and len(value) == 8:
                    times.append(struct.unpack("<d", value)[0])
                elif key == 5 and isinstance(value, bytes):
                    figures |= _scalars(value)
            if len(figures) > _TAGS:
                raise FormatError(f"It has more than {_TAGS:,} tags.", remedy="Import a smaller run.")
        if not figures:
            raise FormatError("It has no scalars.", remedy="Images, graphs and histograms are not read.")
        keep_figures(draft, figures)
        times = [time for time in times if math.isfinite(time) and time > 0]
        if len(times) > 1 and max(times) > min(times):
            draft.phases.append(Phase(name="run", time_s=max(times) - min(times), statistic="sum"))
        return (finish(draft, document),)


def _records(data: bytes) -> Iterator[bytes]:
    """Whole records: a run that is still written ends in the middle of one."""
    at = 0
    while at + _HEAD <= len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        start, at = at + _HEAD, at + _HEAD + length + _TAIL
        if at > len(data):
            return
        yield data[start : start + length]


def _scalars(summary: bytes) -> dict[str, float]:
    found: dict[str, float] = {}
    for key, value in _fields(summary):
        if key != 1 or not isinstance(value, bytes):
            continue
        parts = dict(_fields(value))
        tag, simple, tensor = parts.get(1), parts.get(2), parts.get(8)
        scalar = simple if isinstance(simple, bytes) and len(simple) == 4 else _only_float(tensor)
        if isinstance(tag, bytes) and scalar is not None:
            (figure,) = struct.unpack("<f", scalar)
            if math.isfinite(figure):
                found[tag.decode("utf-8", errors="replace")[:200]] = figure
    return found


def _only_float(tensor: int | bytes | None) -> bytes | None:
    """The four bytes of a tensor's one float: its content (4), or its list of floats (5)."""
    if not isinstance(tensor, bytes):
        return None
    parts = dict(_fields(tensor))
    if parts.get(1) != 1:  # DT_FLOAT
        return None
    content = parts.get(4) or parts.get(5)
    return content if isinstance(content, bytes) and len(content) == 4 else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: numbers, and bytes of all others. It ends where the message is broken."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _varint(message, at)
            yield number, value
            continue
        size, at = (8, at) if kind == 1 else (4, at) if kind == 5 else _varint(message, at)
        if kind not in {1, 2, 5} or size < 0 or at + size > len(message):
            return
        yield number, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 64:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    return 0, len(message)


tensorboard = Tensorboard()
