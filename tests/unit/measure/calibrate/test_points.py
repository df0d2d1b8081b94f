import math

import pytest

from inferometer.core.errors import DomainError, FormatError
from inferometer.known import device
from inferometer.measure.calibrate.fitting.points import (
    OpPoint,
    StepPoint,
    append_points,
    drifts,
    middle_of,
    middle_steps,
    overhead,
    read_points,
    read_steps,
)
from inferometer.measure.calibrate.fitting.single import attention, convolution, linear, vector, work_of_single

H200 = device("nvidia-h200")


def point(**given):
    values = {
        "classes": ("linear.decode", "linear"), "axes": {"rows": 4.0}, "seconds": 1e-5, "floor_s": 4e-6,
        "dtype": "bf16", "probe": "p",
    }  # fmt: skip
    return OpPoint(**values | given)


def test_the_share_leaves_the_launches_out():
    assert point().share() == pytest.approx(0.4)
    assert point().share(kernel_s=2e-6) == pytest.approx(0.5)
    assert point(launches=3).share(kernel_s=2e-6) == pytest.approx(1.0)  # 4 µs of work in the 4 µs that are left


def test_a_share_is_never_above_one():
    assert point(seconds=1e-6).share() == 1.0


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("inf"), float("nan")])
def test_a_time_that_nothing_takes_is_refused(seconds):
    with pytest.raises(DomainError, match="nothing can take"):
        point(seconds=seconds)
    with pytest.raises(DomainError, match="nothing can take"):
        StepPoint(model="m", phase="decode", seconds=seconds, dtype="bf16")


def test_a_journal_gives_back_what_was_written(tmp_path):
    path, written = (
        tmp_path / "deep" / "points.jsonl",
        [point(), point(seconds=2e-5), overhead("kernel", 1e-6, dtype="bf16", probe="o")],
    )
    append_points(path, written[:1])
    append_points(path, written[1:])
    assert read_points(path) == tuple(written)


def test_a_last_line_that_was_cut_off_is_left_out(tmp_path):
    path = tmp_path / "points.jsonl"
    append_points(path, [point(), point()])
    path.write_bytes(path.read_bytes()[:-30])
    assert len(read_points(path)) == 1


def test_a_line_in_the_middle_that_is_no_point_is_an_error_that_names_it(tmp_path):
    path = tmp_path / "points.jsonl"
    append_points(path, [point()])
    path.write_bytes(b"{broken}\n" + path.read_bytes())
    with pytest.raises(FormatError, match="Line 1 of"):
        read_points(path)
    with pytest.raises(FormatError, match=r"gone\.jsonl cannot be read"):
        read_points(tmp_path / "gone.jsonl")


def test_empty_lines_are_none(tmp_path):
    path = tmp_path / "points.jsonl"
    append_points(path, [point()])
    path.write_bytes(b"\n" + path.read_bytes() + b"\n" + path.read_bytes())
    assert read_points(path) == (point(), point())


def test_steps_have_a_journal_of_their_own(tmp_path):
    step = StepPoint(model="m", phase="decode", seconds=1.0, dtype="bf16", batch=8, context=128)
    append_points(tmp_path / "steps.jsonl", [step])
    assert read_steps(tmp_path / "steps.jsonl") == (step,)


def test_one_row_of_a_product_is_bound_by_its_weights():
    work = work_of_single(linear(1, 4096, 4096), H200, runtime="ideal", dtype="bf16")
    moved = 2 * (4096 * 4096 + 2 * 4096)
    assert work.floor_s == pytest.approx(moved / 4.8e12)
    assert work.axes["weight_bytes"] == 2 * 4096 * 4096
    assert work.classes[-1] == "linear"


def test_many_rows_of_a_product_are_bound_by_arithmetic():
    work = work_of_single(linear(8192, 4096, 4096), H200, runtime="ideal", dtype="bf16")
    assert work.floor_s == pytest.approx(2 * 8192 * 4096 * 4096 / 989.5e12)


def test_a_runtime_that_repeats_the_cache_moves_more():
    one = attention(8, (32, 8), 128, query=1, context=2047)
    direct, repeated = (work_of_single(one, H200, runtime=name, dtype="bf16") for name in ("ideal", "torch-compile"))
    assert direct.classes[0].startswith("attention.decode")
    assert 8 < repeated.floor_s / direct.floor_s < 10  # 1 + 2 · 4 reads and writes, and the mask


def test_a_mask_computes_every_pair_of_a_prompt():
    one = attention(1, (32, 32), 128, query=4096)
    fused, masked = (work_of_single(one, H200, runtime=name, dtype="bf16") for name in ("ideal", "torch-graph"))
    assert masked.floor_s / fused.floor_s == pytest.approx(2, rel=0.03)
    assert "attention.masked" in masked.classes


def test_depthwise_convolutions_are_a_class_of_their_own():
    whole = work_of_single(convolution(8, (64, 64), 56, kernel=3), H200, runtime="ideal", dtype="bf16")
    each = work_of_single(convolution(8, (64, 64), 56, kernel=3, groups=64), H200, runtime="ideal", dtype="bf16")
    assert (whole.classes[-1], each.classes[-1]) == ("convolution", "depthwise")
    assert whole.axes["flops"] == 64 * each.axes["flops"]


def test_a_sum_reads_two_and_writes_one():
    work = work_of_single(vector("elementwise", 2**24, inputs=2), H200, runtime="ideal", dtype="bf16")
    assert work.axes["bytes"] == 3 * 2 * 2**24


def test_of_several_rounds_the_middle_one_is_kept_as_a_whole():
    first = [point(op="a", workload="w", seconds=1.0), point(op="b", workload="w", seconds=4.0)]
    second = [point(op="a", workload="w", seconds=2.0), point(op="b", workload="w", seconds=2.0)]
    third = [point(op="a", workload="w", seconds=9.0), point(op="b", workload="w", seconds=9.0)]
    other = [point(op="a", workload="v", seconds=9.0)]
    readings = [overhead("kernel", 1e-6, dtype="bf16", probe="p"), overhead("kernel", 2e-6, dtype="bf16", probe="p")]
    assert middle_of([*first, *second, *third, *other, *readings]) == [*readings, *first, *other]
    between = middle_of([*first, *second])
    assert sum(each.seconds for each in between) == pytest.approx(4.5), "of two the mean"
    assert between[0].seconds / between[1].seconds == pytest.approx(1 / 4)


def test_a_round_that_has_not_all_ops_is_no_round():
    whole = [point(op="a", workload="w", seconds=1.0), point(op="b", workload="w", seconds=4.0)]
    assert middle_of([*whole, point(op="a", workload="w", seconds=0.5)]) == whole


def test_kernels_that_have_no_workload_are_all_kept():
    twice = [point(seconds=1.0), point(seconds=2.0)]
    assert middle_of(twice) == twice


def test_of_equal_steps_the_middle_one_is_kept():
    long, short, mid = (StepPoint(model="m", phase="decode", seconds=each, dtype="f32") for each in (9.0, 1.0, 2.0))
    deep = StepPoint(model="m", phase="decode", seconds=5.0, dtype="f32", context=9)
    assert [step.seconds for step in middle_steps([long, deep, short])] == [5.0, 5.0]
    assert middle_steps([long, deep, short, mid]) == [mid, deep]


def test_a_machine_that_differs_from_itself_says_by_how_much():
    steps = [
        StepPoint(model=f"m{number}", phase="decode", seconds=seconds, dtype="f32")
        for number in range(5)
        for seconds in (1.0, 1.1)
    ]
    assert drifts(steps) == {"decode": pytest.approx(math.log(1.1) / math.sqrt(2))}
    assert drifts(steps[:6]) == {}, "three steps say nothing"
    assert drifts(steps[::2]) == {}, "nor do those that were measured once"


def test_a_run_that_goes_on_after_a_line_was_cut_off_writes_whole_lines(tmp_path):
    path = tmp_path / "points.jsonl"
    append_points(path, [point(), point()])
    path.write_bytes(path.read_bytes()[:-20])
    append_points(path, [point()])
    append_points(path, [point()])
    assert read_points(path) == (point(), point(), point())
