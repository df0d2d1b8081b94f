"""TensorRT's trtexec: `--exportProfile` and `--exportTimes`.

Shapes: NVIDIA/TensorRT, samples/common/sampleReporting.cpp. A profile is a list whose first object holds the `count`
of iterations and each other one a layer with `timeMs` (of all iterations), `averageMs`, in newer versions `medianMs`,
and `percentage`. Times are a list with an object for each query: `h2dMs`, `computeMs`, `d2hMs` and their sum
`latencyMs`. Older versions write the queries of the warm-up there too, and nothing tells them apart.
"""

import re
from collections.abc import Mapping
from typing import Any

from inferometer.core.errors import FormatError
from inferometer.core.profile import OpTime, Phase, Profile
from inferometer.core.statistics import mean
from inferometer.engines.results.assemble import Draft, finish, sum_of
from inferometer.engines.results.base import Document
from inferometer.engines.results.fields import listed, milliseconds, number, text, whole
from inferometer.engines.results.words import kind_of

_PARTS = {"write": "h2dMs", "run": "computeMs", "read": "d2hMs"}


class Trtexec:
    name = "trtexec"
    title = "TensorRT trtexec"

    def matches(self, document: Document) -> bool:
        rows = document.json
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows[:2]):
            return False
        return "computeMs" in rows[0] or (len(rows) > 1 and "averageMs" in rows[1])

    def read(self, document: Document) -> tuple[Profile, ...]:
        rows = list(listed(document.json, "the file"))
        draft = Draft(tool=self.title, runtime="tensorrt")
        if "computeMs" in rows[0]:
            parts = {
                name: mean(
                    [milliseconds(row.get(key, 0), f"`{key}` of query {index}") for index, row in enumerate(rows)]
                )
                for name, key in _PARTS.items()
            }
            samples = tuple(_latency(row, index) for index, row in enumerate(rows))
            queries = Phase(name="forward", time_s=mean(samples), statistic="mean", samples_s=samples, parts=parts)
            draft.phases.append(queries)
            draft.notes.append("older versions of trtexec write the queries of the warm-up too")
        else:
            # TensorRT reports times by events on the GPU's stream; layers on a DLA look the same.
            ops = tuple(_op(row, index) for index, row in enumerate(rows) if "averageMs" in row)
            if not ops:
                raise FormatError("It holds no layer.")
            draft.phases.append(Phase(name="forward", time_s=sum_of(ops), statistic="mean", ops=ops))
            count = whole(rows[0].get("count"), "`count`")
            iterations = {} if count is None else {"iterations": count}
            draft.host |= iterations
            draft.notes.append("the time is the sum of the layers: the file holds no time of the whole run")
        return (finish(draft, document),)


def _latency(row: Mapping[str, Any], index: int) -> float:
    if row.get("latencyMs") is not None:
        return milliseconds(row["latencyMs"], f"`latencyMs` of query {index}")
    return milliseconds(
        sum(number(row.get(key, 0), f"`{key}` of query {index}") for key in _PARTS.values()), "a latency"
    )


def _op(row: Mapping[str, Any], index: int) -> OpTime:
    name = text(row.get("name")) or f"layer {index}"
    return OpTime(
        name=name,
        kind=kind_of(_type_in(name)),
        time_s=milliseconds(row["averageMs"], f"`averageMs` of {name!r}"),
        unit="gpu",
    )


def _type_in(name: str) -> str | None:
    """The file has no types, but nodes of an ONNX graph carry theirs: `/conv1/Conv_2`.

    A fused layer is named after its parts, `/conv1/Conv + /act/Relu`; the first is the one that works.
    """
    first = name.partition(" + ")[0]
    if first.startswith("Reformatting"):
        return "Reformatting"
    return re.sub(r"_\d+$", "", first.rpartition("/")[2]) if first.startswith("/") else None


importer = Trtexec()
