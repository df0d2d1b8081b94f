"""Traces become rows: every nanosecond of a step in one of them, each op at the module that called it."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.engines.torch.trace import TraceRecorder, rows_by_step
from unit.engines.torch.documents import eager_step, event, launch, module, ran, replayed_step, step


def rows_of(document):
    ((_, rows),) = rows_by_step(document)
    return rows


def named(rows):
    return {(row.place, row.kind): row for row in rows}


def test_every_nanosecond_of_a_step_is_in_one_row():
    assert sum(row.host_ns for row in rows_of(eager_step())) == 100_000


INSIDE_AN_OP = ("aten::mm", "aten::view", "cudaLaunchKernel", "cudaStreamSynchronize")
LEAVES = st.tuples(st.sampled_from([*INSIDE_AN_OP, "cudaGraphLaunch"]), st.just(()), st.integers(1, 9))
OPS = st.tuples(
    st.sampled_from(["aten::linear", "aten::mm"]),
    st.lists(st.tuples(st.sampled_from(INSIDE_AN_OP), st.just(()), st.integers(1, 9)), max_size=3),
    st.integers(1, 9),
)
AROUND = st.sampled_from(["inferometer.module:a", "inferometer.module:a.b", "inferometer.part:sample", "a wrapper"])
TREES = st.recursive(
    st.one_of(LEAVES, OPS),
    lambda inner: st.tuples(AROUND, st.lists(inner, max_size=3), st.integers(1, 9)),
    max_leaves=8,
)


def nested(tree, start):
    """The events of a tree of calls, each with so many microseconds of its own before and after all it calls."""
    name, inner, own = tree
    events, at = [], start + own
    for child in inner:
        more, at = nested(child, at)
        events += more
        at += own
    number = round(start * 10)
    if name.startswith("cuda"):
        kernels = {"cudaGraphLaunch": 3, "cudaLaunchKernel": 1}.get(name, 0)
        events += [ran("gemv", at + 5.0 * place, 4.0, number) for place in range(kernels)]
        return [launch(start, at - start, number, name), *events], at
    return [event(name, start, at - start), *events], at


@given(st.lists(TREES, max_size=4), st.integers(0, 5))
def test_the_rows_of_the_host_close_to_the_step_whatever_it_calls(trees, own):
    """What a graph replays is the device's time, and none of the host's."""
    events, at = [], 1000.0 + own
    for tree in trees:
        more, at = nested(tree, at)
        events += more
        at += own
    took = at - 1000.0
    rows = [row for _, rows in rows_by_step([step("decode", 1000.0, took), *events]) for row in rows]
    assert sum(row.host_ns for row in rows if not row.on_device) == round(1000 * took)
    graphs = sum(each["name"] == "cudaGraphLaunch" for each in events)
    assert sum(row.on_device for row in rows) >= 3 * graphs
    assert all(row.host_ns >= 0 and row.waited_ns >= 0 for row in rows)


def test_the_op_that_works_has_the_time_of_the_call_around_it():
    row = named(rows_of(eager_step()))["q_proj", "aten::mm"]
    assert (row.root, row.host_ns, row.module) == ("aten::linear", 30_000, True)
    assert (row.shapes, row.dtype) == (((1, 8), (8, 8)), "bf16")


def test_a_view_belongs_to_the_host_time_of_its_module():
    found = named(rows_of(eager_step()))
    assert ("q_proj", "aten::view") not in found
    assert found["q_proj", "host"].host_ns == 10_000  # 40 of the module, less 30 of the product
    assert found["", "host"].host_ns == 20_000


def test_a_device_kernel_is_linked_to_its_op_by_correlation():
    row = named(rows_of(eager_step()))["q_proj", "aten::mm"]
    assert row.device_ns == (12_500,)
    assert row.waited_ns == 40_000  # the device was idle since the step began
    assert row.device_names == ("void gemv<__nv_bfloat16, 128>(float*)",)


def test_waiting_for_the_device_is_a_row_of_its_own():
    assert named(rows_of(eager_step()))[None, "wait"].host_ns == 30_000


def test_a_wait_inside_an_op_is_taken_out_of_it():
    document = [
        step("decode", 0.0, 50.0),
        event("aten::item", 0.0, 40.0),
        event("aten::_local_scalar_dense", 1.0, 38.0),
        launch(2.0, 3.0, 1, "cudaMemcpyAsync"),
        launch(6.0, 30.0, 2, "cudaStreamSynchronize"),
        ran("Memcpy DtoH (Device -> Pageable)", 30.0, 1.0, 1, "gpu_memcpy"),
    ]
    found = named(rows_of(document))
    assert found[None, "aten::_local_scalar_dense"].host_ns == 10_000
    assert found[None, "aten::_local_scalar_dense"].device_ns == (1_000,)
    assert found[None, "wait"].host_ns == 30_000
    assert sum(row.host_ns for row in found.values()) == 50_000


def test_other_threads_are_not_counted():
    assert not [row for row in rows_of(eager_step()) if row.kind == "aten::elsewhere"]


def test_launches_under_the_drivers_name_of_the_thread_are_its_own():
    document = [each | {"tid": 99} if each.get("cat") == "cuda_runtime" else each for each in eager_step()]
    assert rows_of(document) == rows_of(eager_step())


def test_kernels_of_a_graph_are_rows_in_their_order():
    rows = [row for row in rows_of(replayed_step()) if row.on_device]
    assert [row.kind for row in rows] == ["triton_poi_fused_0", "gemv", "triton_poi_fused_0"]
    assert [row.device_ns for row in rows] == [(8_000,)] * 3
    assert [row.waited_ns for row in rows] == [0, 2_000, 2_000]
    (launch,) = [row for row in rows_of(replayed_step()) if row.kind == "graph launch"]
    assert (launch.device_ns, launch.waited_ns) == ((0,), 20_000)  # the device waits for the graph since the step began


def test_an_op_that_calls_itself_is_one_row():
    document = [
        step("forward", 0.0, 20.0),
        event("aten::arange", 1.0, 15.0),
        event("aten::empty", 2.0, 1.0),
        event("aten::arange", 4.0, 8.0),
    ]
    found = [row for row in rows_of(document) if row.kind == "aten::arange"]
    assert [row.host_ns for row in found] == [15_000]


def test_a_call_that_does_nothing_is_no_row():
    document = [step("forward", 0.0, 20.0), event("aten::to", 1.0, 3.0), event("aten::dropout", 5.0, 3.0)]
    (host,) = rows_of(document)
    assert (host.kind, host.host_ns) == ("host", 20_000)


def test_several_working_ops_of_one_call_are_apart():
    document = [
        step("forward", 0.0, 100.0),
        event("aten::scaled_dot_product_attention", 0.0, 90.0),
        event("aten::bmm", 5.0, 20.0),
        event("aten::_softmax", 30.0, 10.0),
        event("aten::bmm", 45.0, 40.0),
    ]
    found = [(row.kind, row.host_ns) for row in rows_of(document) if row.kind != "host"]
    assert found == [("aten::bmm", 20_000), ("aten::_softmax", 10_000), ("aten::bmm", 60_000)]


def test_the_host_time_of_a_module_is_one_row_though_others_ran_between():
    document = [
        step("forward", 0.0, 100.0), module("a", 0.0, 90.0), event("Torch-Compiled Region: 0/0", 1.0, 10.0),
        event("TorchDynamo Cache Lookup", 20.0, 10.0),
    ]  # fmt: skip
    assert [(row.place, row.host_ns) for row in rows_of(document)] == [(None, 10_000), ("a", 90_000)]


def test_steps_are_apart_and_in_order():
    document = [*replayed_step(start=5000.0), step("prefill", 1000.0, 10.0)]
    assert [phase for phase, _ in rows_by_step(document)] == ["prefill", "decode"]


@pytest.mark.parametrize("document", [[], [{"ph": "M", "name": "process_name"}], [event("aten::mm", 0.0, 5.0)]])
def test_without_a_step_there_is_nothing(document):
    assert rows_by_step(document) == []


class Profiler:
    """PyTorch's, which writes what it recorded where it is asked to."""

    def __init__(self):
        self.calls = []

    def start(self):
        self.calls.append("start")

    def stop(self):
        self.calls.append("stop")

    def export_chrome_trace(self, _path):
        self.calls.append("written")


def test_what_nobody_reads_is_not_written():
    profiler = Profiler()
    torch = SimpleNamespace(
        _C=SimpleNamespace(_profiler=SimpleNamespace(_RecordFunctionFast=None)),
        profiler=SimpleNamespace(
            ProfilerActivity=SimpleNamespace(CPU="cpu", CUDA="cuda"), profile=lambda **_: profiler
        ),
    )
    recorder = TraceRecorder(torch, cuda=False)
    recorder.drop()
    recorder.start()
    recorder.drop()
    recorder.drop()
    assert profiler.calls == ["start", "stop"]
    assert recorder.stop() == []
