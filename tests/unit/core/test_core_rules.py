"""Values at their edges, with numbers worked out by hand: requests, steps, cores, sizes, formats and jobs."""

import operator
from fnmatch import fnmatchcase
from math import fsum
from typing import get_args

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from fakes.closed_sums import unclosed
from inferometer.core import Device, Memory, Sourced
from inferometer.core.binding import Binding
from inferometer.core.device import CoreGroup
from inferometer.core.dims import Symbol, evaluate, product, symbols_in
from inferometer.core.engine import is_like
from inferometer.core.errors import DomainError, UnknownNameError
from inferometer.core.graph import Block, Graph, Op, Tensor, is_generative
from inferometer.core.job import Job, JobEvent, JobFile, JobModel, JobResult, JobState
from inferometer.core.machine import MachineFacts, short_name
from inferometer.core.profile import DeviceFacts, Headline, ModelFacts, OpTime, Phase, Profile
from inferometer.core.request import (
    kept_steps,
    op_count,
    ops_by,
    outside_layers,
    pace,
    phase_repeats,
    phase_shares,
    request_s,
    request_shares,
    sampled_steps,
    step_times,
    summed_request_s,
    summed_samples,
)
from inferometer.core.sizes import OpenSize, default_prompt, in_graph_names, open_sizes, require_sizes, with_given_sizes
from inferometer.core.workload import Precision, Workload


def number(value):
    return Sourced(value=value, origin="datasheet", source="a test", date="2026")


# Dimensions: whatever is written, it evaluates to what Python computes

SIZES = {"a": 7, "b": 3}
SIGNS = {"+": operator.add, "-": operator.sub, "*": operator.mul, "//": operator.floordiv, "%": operator.mod}
LEAVES = some.one_of(some.integers(0, 5), some.sampled_from([Symbol("a"), Symbol("b")]))


def worth(term):
    return SIZES[term.name] if isinstance(term, Symbol) else term


@given(first=LEAVES, steps=some.lists(some.tuples(some.sampled_from([*SIGNS]), LEAVES, some.booleans()), max_size=4))
def test_an_expression_is_what_its_arithmetic_gives(first, steps):
    dim, value = first, worth(first)
    for sign, term, swapped in steps:
        left, right = (term, dim) if swapped and sign != "%" else (dim, term)
        low, high = (worth(term), value) if swapped and sign != "%" else (value, worth(term))
        if (sign in {"//", "%"} and not high) or (sign == "%" and isinstance(left, int)):
            continue
        dim, value = SIGNS[sign](left, right), SIGNS[sign](low, high)
    assert evaluate(dim, SIZES) == value
    assert symbols_in(dim) <= {"a", "b"}


def test_what_changes_nothing_leaves_no_trace():
    a = Symbol("a")
    for same in (a + 0, 0 + a, a - 0, a * 1, 1 * a, a // 1):
        assert same is a
    assert str(0 - a) == "(0 - a)"
    assert str(-a) == "(-1 * a)"
    assert (product(()), str(product((2, a, 3)))) == (1, "((2 * a) * 3)")
    with pytest.raises(DomainError, match=r"bound: x\)"):
        evaluate(a, {"x": 1})
    assert evaluate(a * 2, {"a": np.array([1, 2])}).tolist() == [2, 4]


# Requests


def phases(*names):
    return [Phase(name=name, time_s=1.0) for name in names]


@pytest.mark.parametrize(
    ("names", "generate", "kind", "expected"),
    [
        (("forward",), None, "predicted", {"forward": 1.0}),
        (("prefill", "decode"), 5, "measured", {"prefill": 1.0, "decode": 4.0}),
        (("prefill", "decode"), 1, "measured", {"prefill": 1.0, "decode": 0.0}),
        (("decode",), 5, "predicted", {"decode": 1.0}),
        (("prefill", "decode"), None, "predicted", {"prefill": 1.0, "decode": 1.0}),
        (("prefill", "decode", "draft", "sampling", "detokenise"), 5, "predicted",
         {"prefill": 1.0, "decode": 4.0, "draft": 4.0, "sampling": 5.0, "detokenise": 4.0}),
        (("prefill", "sampling", "detokenise"), 5, "measured", {"prefill": 1.0, "sampling": 1.0, "detokenise": 1.0}),
        (("decode", "sampling"), 5, "predicted", {"decode": 1.0, "sampling": 1.0}),
    ],
)  # fmt: skip
def test_how_often_a_phase_runs_in_a_request(names, generate, kind, expected):
    assert phase_repeats(phases(*names), Workload(generate=generate), kind) == expected


def test_what_is_stated_counts_and_what_runs_once_does_not():
    given = [Phase(name="load", time_s=9.0), Phase(name="decode", time_s=1.0, repeats=2.5)]
    assert phase_repeats(given, Workload(), "measured") == {"decode": 2.5}


def op(name, seconds, *, kind="linear", unit="gpu", count=1, **more):
    return OpTime(name=name, kind=kind, time_s=seconds, unit=unit, count=count, **more)


def whole(*given, generate=None, kind="measured", **summary):
    return Profile(
        kind=kind, model=ModelFacts(name="m"), device=DeviceFacts(name="d"), phases=given,
        workload=Workload(generate=generate), summary=Headline(**summary),
    )  # fmt: skip


def test_what_is_in_no_layer_has_a_name_or_is_not_attributed():
    ops = (op("a", 3.0), op("b", 4.0))
    assert outside_layers(Phase(name="p", time_s=10.0, ops=ops)) == {"unattributed": 3.0}
    named = Phase(name="p", time_s=10.0, ops=ops, parts={"run": 7.5, "sampling": 1.5, "between": 1.0})
    assert outside_layers(named) == {"sampling": 1.5, "between": 1.0, "unattributed": 0.5}
    launched = Phase(name="p", time_s=10.0, ops=ops, parts={"launch": 8.0, "run": 2.0})
    assert outside_layers(launched) == {"unattributed": 3.0}, "the ops run while the host still launches"
    assert outside_layers(Phase(name="p", time_s=6.0, ops=ops)) == {"overlapping": -1.0}
    assert outside_layers(Phase(name="p", time_s=7.0, ops=ops)) == {}
    unrun = Phase(name="p", time_s=10.0, ops=ops, parts={"sampling": 1.0})
    assert outside_layers(unrun) == {"unattributed": 3.0}  # without the engine's own part the others name nothing
    timed = Phase(name="p", time_s=10.0, ops=(op("a", 7.0, device_s=6.0),), parts={"run": 7.5, "sampling": 2.5})
    assert outside_layers(timed) == {"unattributed": 3.0}


def test_shares_of_a_request_weigh_each_phase_by_its_runs():
    prefill = Phase(name="prefill", time_s=5.0, ops=(op("a", 2.0), op("b", 2.0, kind="norm", unit="cpu")),
                    parts={"run": 4.0, "sampling": 1.0})  # fmt: skip
    decode = Phase(name="decode", time_s=2.0, ops=(op("a", 1.5), op("c", 0.5, kind="norm", unit=None)))
    host = Phase(name="tokenise", time_s=0.5)
    made = whole(host, prefill, decode, generate=4)
    assert summed_request_s(made) == request_s(made) == 0.5 + 5 + 3 * 2
    assert request_shares(made, "phase") == {"tokenise": 0.5, "prefill": 5.0, "decode": 6.0}
    assert request_shares(made, "kind") == {"tokenise": 0.5, "linear": 6.5, "norm": 3.5, "sampling": 1.0}
    assert request_shares(made, "unit") == {"host": 1.5, "gpu": 6.5, "cpu": 2.0, "unknown": 1.5}
    assert phase_shares(prefill, "phase") == {"prefill": 5.0}
    stated = whole(prefill, decode, generate=4, e2e_s=12.0)
    assert request_s(stated) == 12.0
    assert request_shares(stated, "phase")["unattributed"] == pytest.approx(1.0)
    assert request_s(whole(decode, latency_s=7.0, e2e_s=0.0)) == 7.0


def test_an_op_that_runs_in_several_phases_is_one_and_ops_of_one_name_are_several():
    prefill = Phase(name="prefill", time_s=9.0, ops=(op("a", 1.0, count=3), op("b", 1.0, kind="norm"), op("b", 1.0)))
    decode = Phase(name="decode", time_s=9.0, ops=(op("a", 1.0, count=3), op("c", 1.0, unit=None, count=2)))
    made = whole(prefill, decode)
    assert op_count(made) == 3 + 1 + 1 + 2
    assert ops_by(made, "kind") == {"linear": 6, "norm": 1}
    assert ops_by(made, "unit") == {"gpu": 5, "unknown": 2}


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (whole(Phase(name="p", time_s=1.0, parts={"run": 0.6, "between": 0.3})), "parts come to 0.9 s"),
        (whole(Phase(name="p", time_s=1.0, statistic="median", samples_s=(1.0, 1.1, 1.2))), "median of its samples"),
        (whole(Phase(name="p", time_s=1.1, statistic="mean", samples_s=(1.0, 1.0, 1.2))), "mean of its samples"),
        (whole(Phase(name="p", time_s=1.0, statistic="single", samples_s=(2.0,))), "single of its samples"),
        (whole(Phase(name="p", time_s=1.0, samples_s=(1.0, 1.0), context=(1,))), "2 samples, and 1 contexts"),
        (whole(Phase(name="p", time_s=1.0, ops=(op("a", 1.0, samples_s=(1.0, 2.0)),))), "samples of a come to 1.5 s"),
        (whole(Phase(name="p", time_s=1.0, floor_s=2.0), kind="predicted"), "less than its floor of 2 s"),
        (whole(Phase(name="p", time_s=1.0, floor_s=0.5, ops=(op("a", 1.0, floor_s=0.4),)), kind="predicted"),
         "floors of its ops come to 0.4 s"),
        (whole(Phase(name="p", time_s=1.0, floor_s=0.3, ops=(op("a", 1.0, floor_s=0.4),))), "more than its own 0.3 s"),
        (whole(Phase(name="forward", time_s=1.0), latency_s=1.1), "latency_s 1.1, and the phases say 1"),
        (whole(*phases("tokenise", "prefill"), ttft_s=1.0), "ttft_s 1, and the phases say 2"),
        (whole(*phases("prefill", "decode"), generate=3, e2e_s=2.0), "e2e_s 2, and the phases say 3"),
        (whole(*phases("prefill", "decode"), generate=3, tpot_s=2.0), "tpot_s 2, and the phases say 1"),
        (whole(*phases("prefill", "decode", "detokenise"), generate=3, tpot_s=1.0, kind="predicted"),
         "tpot_s 1, and the phases say 2"),
    ],
)  # fmt: skip
def test_a_sum_that_does_not_close_is_told(made, words):
    found = unclosed(made)
    assert any(words in wrong for wrong in found), found


def test_a_profile_that_adds_up_has_nothing_to_tell():
    steps = Phase(name="decode", time_s=2.0, statistic="median over generations of the mean step",
                  samples_s=(1.0, 3.0, 1.5, 2.5), context=(1, 2, 1, 2))  # fmt: skip
    prefill = Phase(name="prefill", time_s=4.0, ops=(op("a", 4.0),))
    assert unclosed(whole(prefill, steps, generate=3, e2e_s=8.0, ttft_s=4.0, tpot_s=2.0)) == ()


# Steps


def test_of_many_steps_the_ends_and_others_evenly_between_are_kept():
    assert kept_steps(3, 3) == (0, 1, 2)
    assert kept_steps(11, 3) == (0, 5, 10)
    assert kept_steps(1000)[:2] + kept_steps(1000)[-1:] == (0, 26, 999)
    assert len(kept_steps(41)) == 40


def test_the_time_of_a_step_is_the_median_of_its_generations():
    phase = Phase(name="d", time_s=6.0, samples_s=(1.0, 2.0, 3.0, 8.0, 5.0), context=(7, 8, 7, 8, 7), op_context=(8, 7))
    assert step_times(phase) == {7: 3.0, 8: 5.0}
    assert sampled_steps(phase) == (5.0, 3.0)
    assert pace(phase) == 6.0 * 2 / 8.0
    assert sampled_steps(Phase(name="d", time_s=1.0, op_context=(9,))) is None
    assert pace(Phase(name="d", time_s=5.0)) == 1.0
    assert summed_samples([op("a", 1.0, samples_s=(1.0, 2.0)), op("b", 1.0, samples_s=(3.0, 5.0))]) == (4.0, 7.0)
    assert summed_samples([op("a", 1.0, samples_s=(1.0, 2.0)), op("b", 1.0, samples_s=(3.0,))]) is None
    assert summed_samples([op("a", 1.0)]) is summed_samples([]) is None


# Devices


def device(**more):
    base = {"name": "d", "title": "d", "vendor": "v", "unit": "cpu", "peaks": {"f32": number(100.0)}}
    return Device(**{**base, **more})


def groups():
    """Two fast cores of 20 each and four slow ones of 10."""
    return (CoreGroup(core="cortex-a76", count=2, clock_hz=2.0, ops_per_cycle={"f32": 10.0}),
            CoreGroup(core="cortex-a55", count=4, clock_hz=1.0, ops_per_cycle={"f32": 10.0}))  # fmt: skip


@pytest.mark.parametrize(
    ("threads", "shared", "even"), [(1, 20, 20), (2, 40, 40), (3, 50, 30), (6, 80, 60), (9, 80, 60)]
)
def test_threads_take_the_fastest_cores_first_and_even_shares_wait_for_the_slowest(threads, shared, even):
    made = device(core_groups=groups())
    assert made.peak_of_threads("f32", threads) == shared
    assert made.even_peak("f32", threads) == even
    low = device(core_groups=groups(), peaks={"f32": number(35.0)})
    assert (low.peak_of_threads("f32", threads), low.even_peak("f32", threads)) == (min(shared, 35), min(even, 35))


def test_cores_that_are_only_counted_share_the_peak_evenly():
    assert [device(cores=number(8.0)).peak_of_threads("f32", threads) for threads in (2, 8, 16)] == [25.0, 100.0, 100.0]
    assert device().peak_of_threads("f32", 2) == device().even_peak("f32", 2) == 100.0
    with pytest.raises(DomainError, match="it has: f32"):
        device().peak("bf16")


@pytest.mark.parametrize(
    ("family", "unit", "found"),
    [("zen-4", "cpu", ("x86", "x86")), ("x86_64", "cpu", ("x86", "x86")), ("apple-m4", "cpu", ("apple", "arm")),
     ("cortex-a76", "cpu", ("arm", "arm")), ("sifive-u74", "cpu", ("risc-v", "risc-v")),
     ("la664", "cpu", ("loongarch", "loongarch")), (None, "cpu", (None, None)), ("zen-4", "gpu", (None, None))],
)  # fmt: skip
def test_a_core_is_of_an_instruction_set(family, unit, found):
    made = device(family=family, unit=unit)
    assert (made.instruction_set, made.engine_set) == found


def test_memories_are_found_by_their_level():
    made = device(memories=(Memory(level="dram"), Memory(level="l2")))
    assert (made.memory.level, made.level("l2").level, device().memory) == ("dram", "l2", None)
    with pytest.raises(UnknownNameError):
        made.level("l3")


def test_a_machine_is_called_by_what_it_is():
    made = MachineFacts(
        id="i", name="box", cpu="Intel(R) Xeon(R) Gold CPU @ 2.10GHz", physical_cores=1, logical_cores=8
    )
    assert made.title() == made.title(made.cpu) == "box · Intel Xeon Gold · 1 core"
    assert made.title("NVIDIA L4") == "box · NVIDIA L4"
    assert MachineFacts(id="i", usable_cpus=2.5, logical_cores=8).cores == "2.5 of 8 CPUs"
    assert MachineFacts(id="i", usable_cpus=8.0, logical_cores=8).cores == "8 cores"
    assert (MachineFacts(id="i").cores, MachineFacts(id="i").called, short_name(None)) == (None, "i", None)


# Sizes and formats


def tensor(name, *shape, **more):
    return Tensor(name=name, shape=shape, **more)


B, W = Symbol("batch"), Symbol("width")
FILE = Graph(
    name="file", blocks=(Block(name="b", ops=(Op(name="o", kind="activation", inputs=(tensor("x", B, W, 2 * W),)),)),),
    inputs=(tensor("x", B, W, 2 * W), tensor("y", B)), metadata={"size_names": {"W": "width"}},
)  # fmt: skip


def test_open_sizes_are_named_placed_and_given_once():
    assert open_sizes(FILE) == (
        OpenSize(name="batch", places=(("x", 0), ("y", 0))),
        OpenSize(name="width", file_name="W", places=(("x", 1), ("x", 2))),
    )
    for name in ("width", "W", "x.1"):
        assert in_graph_names(FILE, {name: 5}) == {"width": 5}
    for wrong in ({"x.2": 5}, {"height": 5}, {"W": 5, "width": 6}):
        with pytest.raises(DomainError):
            in_graph_names(FILE, wrong)
    workload, rest = with_given_sizes(FILE, Workload(), {"batch": 3, "W": 5, "y.0": 3})
    assert (workload.batch, rest) == (3, {"width": 5})
    with pytest.raises(DomainError, match="batch is 2 and the size batch is 3"):
        with_given_sizes(FILE, Workload(batch=2), {"batch": 3})
    require_sizes(FILE, ("batch", "width"))
    with pytest.raises(DomainError, match="leaves one size of its inputs open: width") as caught:
        require_sizes(FILE, ("batch",))
    assert caught.value.remedy == "Add --size width=N."


def test_a_prompt_has_a_default_where_it_is_of_token_ids():
    def graph(limit=None, **more):
        return Graph(name="g", blocks=(), inputs=(tensor("x", Symbol("query"), **more),), context_limit=limit)

    assert default_prompt(graph(dtype="i64")) == default_prompt(graph(role="index")) == 512
    assert default_prompt(graph(100, dtype="i64")) == 100
    assert default_prompt(graph(dtype="f32")) is None


def test_a_tensor_without_a_format_has_that_of_its_role():
    binding = Binding(sizes={"batch": 3}, precision=Precision(weights="i8", activations="bf16", kv="f16"))
    formats = {role: binding.format(tensor("t", role=role)).name
               for role in ("weight", "constant", "activation", "kv", "state", "index")}  # fmt: skip
    assert formats == {
        "weight": "i8", "constant": "bf16", "activation": "bf16", "kv": "f16", "state": "bf16", "index": "i64",
    }  # fmt: skip
    assert Binding(precision=Precision(activations="bf16")).format(tensor("t", role="kv")).name == "bf16"
    assert binding.format(tensor("t", dtype="f32", role="weight")).name == "f32"
    assert binding.nbytes(tensor("t", B, 5)) == 30
    assert binding.nbytes(tensor("t", B, stored_bytes=7)) == 7
    with pytest.raises(DomainError):
        Binding().format(tensor("t"))
    assert binding.arithmetic(Op(name="o", kind="linear", attributes={"compute": "f8e4m3"})) == "f8e4m3"
    assert binding.arithmetic(Op(name="o", kind="gather", inputs=(tensor("i", role="index"), tensor("x")))) == "bf16"
    assert binding.arithmetic(Op(name="o", kind="control")) == "bf16"
    assert Binding().arithmetic(Op(name="o", kind="control")) == "f32"
    stored = (tensor("w", role="weight"),)
    assert binding.arithmetic(Op(name="o", kind="fill", weights=stored, outputs=(tensor("y"),))) == "i8"


def test_a_weight_counts_once_wherever_it_is_named_and_as_often_as_its_block():
    shared, own = tensor("embed", 10, 4, role="weight"), tensor("layers.{}.w", 4, 4, role="weight")
    inner = Op(name="inner", kind="linear", weights=(own,))
    loop = Op(name="loop", kind="control", weights=(own,), attributes={"bodies": ((inner,),)})
    experts = Op(name="e", kind="moe_experts", weights=(tensor("layers.{}.e", 8, 6, role="weight"),),
                 attributes={"experts": 8, "top_k": 2})  # fmt: skip
    made = Graph(
        name="g",
        blocks=(
            Block(name="a", ops=(Op(name="embed", kind="embedding", weights=(shared,)),)),
            Block(name="b", ops=(loop, experts), count=3),
            Block(name="c", ops=(Op(name="head", kind="linear", weights=(shared, tensor("t", 9, role="constant"))),)),
        ),
    )  # fmt: skip
    assert made.parameters == 40 + 3 * 16 + 3 * 48
    assert made.active_parameters == 40 + 3 * 16 + 3 * 12
    assert Block(name="b", ops=(), count=2, first=5).full_name("layers.{}.x", 1) == "layers.6.x"


def test_a_model_makes_tokens_where_it_keeps_a_cache_or_a_state_of_a_prompt():
    def graph(*ops):
        return Graph(name="g", blocks=(Block(name="b", ops=ops),))

    state = tensor("s", 4, role="state")
    cached = Op(name="a", kind="attention", attributes={"cached": True})
    assert is_generative(graph(cached))
    assert not is_generative(graph(Op(name="a", kind="attention")))
    assert not is_generative(graph(Op(name="r", kind="recurrent", inputs=(state,))))
    assert is_generative(
        graph(Op(name="r", kind="recurrent", inputs=(tensor("x", Symbol("query")),), outputs=(state,)))
    )


# Jobs

FILES = tuple(JobFile(path=f"net/{name}", sha256=mark * 64, size_bytes=size)
              for name, mark, size in (("b.safetensors", "1", 5), ("a.json", "2", 7)))  # fmt: skip


def test_a_model_is_known_by_all_of_its_files_in_any_order():
    one, other = (JobModel(name="m", entry="net", files=files) for files in (FILES, FILES[::-1]))
    assert one.sha256 == other.sha256
    assert one.size_bytes == 12
    moved = JobModel(name="m", entry="x", files=tuple(
        JobFile(path=file.path.replace("net", "x"), sha256=file.sha256, size_bytes=file.size_bytes) for file in FILES
    ))  # fmt: skip
    assert moved.sha256 == one.sha256  # wherever the folder lies
    assert JobModel(name="m", entry="net/a.json", files=FILES[1:]).sha256 == "2" * 64
    assert JobModel(name="resnet50").sha256 is None


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: JobFile(path="../a", sha256="1" * 64, size_bytes=1),
        lambda: JobFile(path="/a", sha256="1" * 64, size_bytes=1),
        lambda: JobFile(path="a\\b", sha256="1" * 64, size_bytes=1),
        lambda: JobFile(path="c:a", sha256="1" * 64, size_bytes=1),
        lambda: JobFile(path="", sha256="1" * 64, size_bytes=1),
        lambda: JobFile(path="a", sha256="1" * 63, size_bytes=1),
        lambda: JobFile(path="a", sha256="G" * 64, size_bytes=1),
        lambda: JobFile(path="a", sha256="1" * 64, size_bytes=-1),
        lambda: JobModel(name=""),
        lambda: JobModel(name="m", entry="ne", files=FILES),
        lambda: JobModel(name="m", entry="net", files=(*FILES, FILES[0])),
        lambda: Job(id="a b", verb="calibrate"),
        lambda: Job(id="a" * 65, verb="calibrate"),
        lambda: Job(id="a", verb="delete", model=JobModel(name="m")),
        lambda: Job(id="a", verb="profile"),
        lambda: Job(id="a", verb="calibrate", runtime="module:attribute"),
        lambda: Job(id="a", verb="calibrate", options={"against": 3}),
        lambda: Job(id="a", verb="calibrate", seconds_at_most=0.0),
    ],
)
def test_a_job_that_cannot_be_meant_is_refused(wrong):
    JobFile(path="a/b", sha256="1" * 64, size_bytes=0)
    Job(id="a" * 64, verb="calibrate", runtime="torch-compile", seconds_at_most=0.1)
    with pytest.raises((DomainError, UnknownNameError)):
        wrong()


def test_a_job_has_all_files_that_it_needs_and_ends_in_one_state():
    model = JobModel(name="m", entry="net", files=FILES)
    single = JobFile(path="inputs/x.npy", sha256="3" * 64, size_bytes=1)
    job = Job(id="j", verb="verify", model=model, reference=JobModel(name="r", entry="net/a.json", files=FILES[1:]),
              inputs={"x": single})  # fmt: skip
    assert job.files == (*FILES, FILES[1], single)
    states = {
        ended: JobResult(job=job, ended=ended).state for ended in ("done", "stopped", "failed", "lost", "refused")
    }
    assert states == {
        "done": "done", "stopped": "cancelled", "failed": "failed", "lost": "inconclusive", "refused": "failed",
    }  # fmt: skip
    final = {state for state in get_args(JobState)
             if JobEvent(job="j", number=1, at=0.0, kind="state", state=state).final}  # fmt: skip
    assert final == {"done", "failed", "cancelled", "inconclusive"}
    assert fsum(file.size_bytes for file in job.files) == 20


@given(some.text("gpu:a-b", max_size=5), some.text("gpu:ab*?[-]", max_size=5))
def test_a_pattern_means_what_the_standard_library_says_it_does(name, pattern):
    assert is_like(name, pattern) == fnmatchcase(name, pattern)
