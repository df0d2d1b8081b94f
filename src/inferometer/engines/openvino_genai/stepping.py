"""The network of a folder, stepped as the pipeline steps it: for what the pipeline cannot do.

It does not go on from a filled cache, shows no counters and gives no logits. Its own loop feeds the ids, a mask of
ones, positions and the order of the beams to one request, whose state is the cache; so does this one. Before the last
product all but the last token are cut off, as the pipeline does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import openvino as ov
from openvino import opset13

from inferometer.engines.base import Kernel
from inferometer.engines.openvino.adopt import kernel_roles
from inferometer.engines.openvino.counters import Reading, mean_between
from inferometer.engines.openvino.faults import guarded
from inferometer.engines.openvino.names import own_names
from inferometer.engines.openvino.recorded import consumers_of, executed_of, executed_seconds
from inferometer.engines.openvino.session import info_of
from inferometer.engines.openvino.topology import file_topology
from inferometer.engines.openvino_genai.layers import layers_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from inferometer.engines.base import Target

Array = np.ndarray[Any, Any]
_STEPS_AT_MOST = 48  # since it was compiled: counters are means of all steps, rounded to microseconds
_LAST = np.iinfo(np.int64).max


class SteppedNetwork:
    """One request. With `counting` it keeps what each kernel took, by phase."""

    def __init__(  # noqa: PLR0913 - what is compiled, and how
        self, file: Path, device: str, settings: Mapping[str, Any], target: Target, *, counting: bool = False,
        last_only: bool = True,
    ) -> None:  # fmt: skip
        self._file, self._device, self._target, self._counting = file, device, target, counting
        self._settings = {**settings, "PERF_COUNT": "YES" if counting else "NO"}
        self._core = ov.Core()
        with guarded(file, "refused"):
            self._model = self._core.read_model(str(file))
        operations = {op.get_friendly_name(): consumers_of(op) for op in self._model.get_ordered_ops()}
        self._own = {**(known := {name: name for name in operations}), **own_names(operations, known)}
        self._inputs = {name for port in self._model.inputs for name in port.get_names()}
        if last_only:
            _cut_before_logits(self._model)
        self._samples: dict[str, dict[str, list[float]]] = {}
        self._counts: dict[str, int] = {}
        self._compile()

    def _compile(self) -> None:
        with guarded(self._file, "refused"):
            self._compiled = self._core.compile_model(self._model, self._device, self._settings)
            self._request = self._compiled.create_infer_request()
        self._steps, self._read = 0, Reading()

    def begin(self) -> None:
        """An empty cache. Counters begin anew where they have become too coarse."""
        if self._counting and self._steps > _STEPS_AT_MOST:
            self._compile()
        self._request.reset_state()
        self._cached = 0

    def step(self, ids: Sequence[int]) -> Array:
        """The logits after the tokens, of the first sequence: [tokens or 1, vocabulary]."""
        batch, total = self._target.batch, self._cached + len(ids)
        rows = {
            "input_ids": np.tile(np.asarray(ids, np.int64), (batch, 1)),
            "attention_mask": np.ones((batch, total), np.int64),
            "position_ids": np.tile(np.arange(self._cached, total), (batch, 1)),
            "beam_idx": np.arange(batch, dtype=np.int32),
        }
        with guarded(self._file, "failed to run"):
            made = self._request.infer({name: rows[name] for name in rows if name in self._inputs}, share_outputs=True)
        self._cached, self._steps = total, self._steps + 1
        logits: Array = made[0][0]
        return logits

    def count(self, phase: str | None) -> None:
        """What was run since the last time was of this phase, or of none."""
        if not self._counting or self._steps == self._read.steps:
            return
        reading = Reading(steps=self._steps, means_s=executed_seconds(self._request))
        count, means = reading.steps - self._read.steps, mean_between(self._read, reading)
        self._read = reading
        if phase is None:
            return
        kept = self._samples.setdefault(phase, {})
        before = self._counts.get(phase, 0)
        for name in kept.keys() | means.keys():
            kept.setdefault(name, [0.0] * before).extend([means.get(name, 0.0)] * count)
        self._counts[phase] = before + count

    def kernels(self) -> Mapping[str, tuple[Kernel, ...]]:
        samples, self._samples, self._counts = self._samples, {}, {}
        return {phase: self._described(kept) for phase, kept in samples.items()}

    def _described(self, samples: Mapping[str, Sequence[float]]) -> tuple[Kernel, ...]:
        ops = {op.get_friendly_name(): op for op in self._compiled.get_runtime_model().get_ordered_ops()}
        facts = {name: info_of(op) for name, op in ops.items()}
        order = sorted(samples, key=lambda name: int(facts.get(name, {}).get("execOrder", len(ops))))
        original = file_topology(self._target.nodes) if self._target.nodes else None
        executed = [executed_of(name, op, facts[name]) for name, op in ops.items()]
        roles = kernel_roles(original, executed, self._own, order)
        return tuple(
            Kernel(
                name=name,
                kind=facts.get(name, {}).get("layerType") or name,
                samples_s=tuple(samples[name]),
                layers=roles[name].layers if original else layers_of(roles[name].layers),
                own=roles[name].own,
                provider=facts.get(name, {}).get("primitiveType") or None,
                dtype=facts.get(name, {}).get("runtimePrecision") or None,
            )
            for name in order
        )


def _cut_before_logits(model: Any) -> None:
    """The last product is made of the last token alone, if it is a product of the tokens' rows."""
    product = model.output(0).get_node().input_value(0).get_node()
    if product.get_type_name() != "MatMul":
        return
    whole = product.input(0)
    ends = [opset13.constant([number]) for number in (-1, _LAST, 1, 1)]
    cut = opset13.slice(whole.get_source_output(), *ends)
    whole.replace_source_output(cut.output(0))
    model.validate_nodes_and_infer_types()
