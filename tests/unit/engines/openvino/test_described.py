"""What OpenVINO's runtime model says of each operation that ran, and in which order they ran."""

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from inferometer.engines.base import Opened, Target

recorded = pytest.importorskip("inferometer.engines.openvino.recorded", reason="openvino is not installed")


class Fact(str):
    __slots__ = ()

    def astype(self, kind):
        return kind(self)


class Operation:
    """An operation by name; `takers` read its one result, which is None where its shape is open."""

    def __init__(self, name, shape=(1, 2), takers=(), **facts):
        self.name, self.facts = name, {key: Fact(value) for key, value in facts.items()}
        partial = SimpleNamespace(is_static=shape is not None, to_shape=lambda: shape)
        ports = [SimpleNamespace(get_node=lambda taker=taker: taker) for taker in takers]
        self.results = [SimpleNamespace(get_partial_shape=lambda: partial, get_target_inputs=lambda: ports)]

    def get_friendly_name(self):
        return self.name

    def get_rt_info(self):
        return self.facts

    def outputs(self):
        return self.results


def session(*ops):
    made = object.__new__(recorded.OpenvinoRecordedSession)
    made._original, made._own = None, {"conv": "conv", "relu": "relu"}
    made.opened = Opened(stages=(), versions={}, unit="gpu")
    made._compiled = SimpleNamespace(get_runtime_model=lambda: SimpleNamespace(get_ordered_ops=lambda: list(ops)))
    return made


def test_kernels_stand_in_the_order_of_execution_with_what_is_said_of_each():
    conv = Operation("k1", shape=(1, 8), layerType="Convolution", originalLayersNames="conv,relu", execOrder="7",
                     primitiveType="brgconv", runtimePrecision="f16")  # fmt: skip
    reorder = Operation("k0", shape=None, takers=[conv], layerType="Reorder", execOrder="1", primitiveType="",
                        runtimePrecision="", originalLayersNames="")  # fmt: skip
    samples = {"k1": (1.0, 2.0), "nobody's": (5.0,), "k0": (0.5,)}
    first, second, last = session(conv, reorder)._described(samples)
    assert (first.name, first.kind, first.samples_s, first.own, first.layers) == (
        "k0", "Reorder", (0.5,), True, ("conv", "relu"),
    )  # fmt: skip
    assert (first.provider, first.dtype, first.shapes, first.unit) == (None, None, (), "gpu")
    assert (last.name, last.kind, last.provider, last.dtype, last.shapes, last.layers) == (
        "k1", "Convolution", "brgconv", "f16", ((1, 8),), ("conv", "relu"),
    )  # fmt: skip
    # One that the model does not know stands where as many as it knows would: at 2, between 1 and 7.
    assert (second.name, second.kind, second.provider, second.shapes, second.layers) == (
        "nobody's", "nobody's", None, (), (),
    )  # fmt: skip


def test_seconds_are_of_what_was_executed_and_equal_names_are_numbered():
    def entry(name, status, microseconds):
        return SimpleNamespace(
            node_name=name, status=SimpleNamespace(name=status), real_time=timedelta(microseconds=microseconds)
        )

    told = [entry("a", "EXECUTED", 5), entry("b", "OPTIMIZED_OUT", 7), entry("a", "EXECUTED", 11),
            entry("a", "EXECUTED", 13)]  # fmt: skip
    request = SimpleNamespace(get_profiling_info=lambda: told)
    assert recorded.executed_seconds(request) == {
        "a": pytest.approx(5e-6), "a#2": pytest.approx(11e-6), "a#3": pytest.approx(13e-6),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("stored", "asked", "hint"),
    [
        ([("Constant", "f32"), ("Convert", "f16"), ("Parameter", "i64")], None, "f32"),
        ([("Constant", "f32"), ("Constant", "f16")], None, None),
        ([("Parameter", "bf16")], None, None),
        ([("Constant", "f16")], "f32", "f32"),
        ([("Constant", "f32")], "bf16", "bf16"),
    ],
)
def test_full_precision_is_asked_for_where_nothing_is_stored_in_a_shorter_float(stored, asked, hint):
    def op(kind, form):
        element = SimpleNamespace(get_type_name=lambda: form)
        return SimpleNamespace(get_type_name=lambda: kind, get_output_element_type=lambda _: element)

    for device, more in (("CPU", {"INFERENCE_NUM_THREADS": 3, "NUM_STREAMS": "1"}), ("GPU", {})):
        made = object.__new__(recorded.OpenvinoSession)
        made._model = SimpleNamespace(get_ops=lambda: [op(*each) for each in stored])
        made._target = Target(path=Path("m"), format="onnx", precision=asked, options={"OTHER": "1"})
        made._device, made._threads = device, 3
        expected = {} if hint is None else {"INFERENCE_PRECISION_HINT": hint}
        assert made._settings() == {
            "PERFORMANCE_HINT": "LATENCY", "OTHER": "1", "PERF_COUNT": "NO", **more, **expected,
        }  # fmt: skip
