import pytest
from hypothesis import given
from hypothesis import strategies as st

from inferometer.core.errors import DomainError
from inferometer.engines.base import Kernel
from inferometer.measure.run.correct import correct, rest_of, steady_mean

TIMES = st.floats(1e-7, 1e-2)


def kernel(*samples, device=None):
    return Kernel(name="k", kind="Conv", samples_s=samples, device_s=device)


def test_the_timers_cost_is_taken_out_of_each_kernel():
    # 10 kernels of 10 µs, each read as 14 µs; the clean run is 105 µs: 5 µs are between the kernels
    found = correct([kernel(14e-6)] * 10, clean_s=105e-6, walls_s=[200e-6], cost_s=4e-6)
    assert found.times_s == pytest.approx([10e-6] * 10)
    assert found.unattributed_s == pytest.approx(5e-6)
    assert found.raw_s == pytest.approx(140e-6)
    assert found.scale == 1.0


def test_a_cost_is_never_more_than_the_step_grew_by():
    # The instrumented step is only 10 µs longer than the clean one: 10 kernels cannot have cost 4 µs each.
    found = correct([kernel(10e-6)] * 10, clean_s=100e-6, walls_s=[110e-6], cost_s=4e-6)
    assert found.cost_s == pytest.approx(1e-6)


def test_the_estimate_is_not_fitted_to_close_the_sum():
    # 10 kernels of 10 µs read as 14; an estimate of 6 leaves 20 µs of the clean step in no kernel, and that is said.
    found = correct([kernel(14e-6)] * 10, clean_s=100e-6, walls_s=[190e-6], paired_s=[100e-6], cost_s=6e-6)
    assert found.cost_s == pytest.approx(6e-6)
    assert found.unattributed_s == pytest.approx(20e-6)


def test_where_nothing_but_kernels_runs_the_step_itself_tells_what_timing_cost():
    # Three kernels of 10, 20 and 30 µs read 5 µs longer each; the estimate, made elsewhere, says 4. 2 µs are around.
    read = [kernel(15e-6), kernel(25e-6), kernel(35e-6)]
    found = correct(read, clean_s=62e-6, walls_s=[95e-6], paired_s=[62e-6], cost_s=4e-6, idle_s=2e-6)
    assert found.times_s == pytest.approx([10e-6, 20e-6, 30e-6])
    assert found.cost_s == pytest.approx(5e-6)
    assert found.unattributed_s == pytest.approx(2e-6)


def test_a_long_step_s_noise_is_not_taken_for_the_timers_cost():
    # The clean steps came out 1 ms short of the kernels by chance: 100 µs a kernel cannot be the timers.
    found = correct([kernel(1e-3)] * 10, clean_s=9e-3, walls_s=[12e-3], paired_s=[9e-3], cost_s=4e-6, idle_s=0.0)
    assert found.cost_s == pytest.approx(8e-6)
    assert sum(found.times_s) == pytest.approx(9e-3)


@pytest.mark.parametrize("idle", [95e-6, 100e-6, 400e-6])
def test_an_idle_time_that_leaves_kernels_nothing_is_not_believed(idle):
    # The time around kernels was measured while others ran: it is as long as a whole step, and kernels did run.
    found = correct([kernel(20e-6)] * 4, clean_s=100e-6, walls_s=[110e-6], paired_s=[100e-6], cost_s=2e-6, idle_s=idle)
    assert sum(found.times_s) > 60e-6
    assert found.scale == pytest.approx(1, rel=0.3)


def test_a_busy_machine_does_not_show_as_unattributed():
    # Every step has 98 % of its time in kernels, and every step takes another time.
    walls = (10e-3, 37e-3, 44e-3, 19e-3, 37e-3)
    busy = Kernel(name="k", kind="Conv", samples_s=tuple(0.98 * wall for wall in walls))
    found = correct([busy], clean_s=22e-3, walls_s=walls, paired_s=[37e-3, 25e-3, 45e-3, 23e-3, 39e-3])
    assert found.unattributed_s == pytest.approx(0.02 * 22e-3, rel=1e-6)


def test_what_exceeds_the_clean_run_is_scaled_to_it():
    found = correct([kernel(3e-3), kernel(1e-3)], clean_s=2e-3)
    assert found.times_s == pytest.approx([1.5e-3, 0.5e-3])
    assert found.unattributed_s == 0.0
    assert found.scale == pytest.approx(0.5)


def test_a_machine_that_was_slower_meanwhile_is_told_by_the_clean_steps_between():
    # Everything took twice as long while the timers were on: 8 ms of kernels in a step of 10 ms are 4 of 5.
    found = correct([kernel(8e-3)], clean_s=5e-3, walls_s=[10e-3], paired_s=[10e-3, 10e-3, 10e-3])
    assert found.times_s == pytest.approx([4e-3])
    assert found.unattributed_s == pytest.approx(1e-3)


@given(
    st.lists(st.floats(1e-3, 1e-1), min_size=1, max_size=5), st.floats(0.5, 1.0), st.floats(1.0, 1.5),
    st.floats(0.0, 1e-3), st.floats(0.25, 4.0),
)  # fmt: skip
def test_how_much_slower_the_machine_was_meanwhile_changes_nothing(readings, clean, grown, cost_s, slower):
    """The clean run is of another time: only it says how long a step takes."""
    clean_s = clean * sum(readings)

    def found(times):
        return correct(
            [kernel(times * reading) for reading in readings], clean_s=clean_s, cost_s=times * cost_s,
            walls_s=[times * grown * sum(readings)], paired_s=[times * sum(readings)],
        )  # fmt: skip

    plain, other = found(1.0), found(slower)
    assert other.times_s == pytest.approx(plain.times_s)
    assert (other.raw_s, other.scale) == pytest.approx((plain.raw_s, plain.scale))
    assert plain.raw_s == pytest.approx(clean_s)
    assert other.cost_s == pytest.approx(slower * plain.cost_s)


def test_what_timing_cost_is_told_by_the_step_only_where_timers_read_every_kernel():
    both = [kernel(14e-6), kernel(14e-6, device=(10e-6,))]
    found = correct(both, clean_s=40e-6, walls_s=[60e-6], paired_s=[40e-6], cost_s=4e-6, idle_s=2e-6)
    assert found.cost_s == pytest.approx(4e-6)


@pytest.mark.parametrize("clean_s", [1e-6, 1e-3, 1.0, 100.0])
def test_a_rest_is_kept_unless_it_is_an_error_of_adding_up(clean_s):
    assert rest_of(clean_s, clean_s * (1 - 1e-9)) == pytest.approx(1e-9 * clean_s, rel=1e-3)
    assert rest_of(clean_s, clean_s * (1 - 1e-13)) == 0.0


def test_a_devices_own_clock_has_no_timer_in_it():
    found = correct([kernel(50e-6, device=(30e-6,))], clean_s=100e-6, walls_s=[200e-6], cost_s=20e-6)
    assert found.times_s == (30e-6,)


def test_an_interrupted_reading_does_not_carry_the_mean():
    assert steady_mean([1e-3] * 9 + [1.0]) == pytest.approx((9e-3 + 3e-3 + 2e-6) / 10)


def test_whole_microseconds_average_to_what_lies_between():
    assert steady_mean([1e-6, 2e-6, 1e-6, 2e-6]) == pytest.approx(1.5e-6)


@given(
    st.lists(st.tuples(TIMES, st.booleans()), min_size=1, max_size=40),
    TIMES,
    st.one_of(st.none(), st.floats(0, 1e-5)),
    st.lists(TIMES, max_size=3),
)
def test_the_sum_always_closes(readings, clean_s, cost_s, walls_s):
    kernels = [kernel(seconds, device=(seconds / 2,) if on_device else None) for seconds, on_device in readings]
    found = correct(kernels, clean_s=clean_s, walls_s=walls_s, cost_s=cost_s)
    assert sum(found.times_s) + found.unattributed_s == pytest.approx(clean_s)
    assert all(seconds >= 0 for seconds in found.times_s)
    assert found.unattributed_s >= 0


def test_a_clean_run_of_no_time_is_refused():
    with pytest.raises(DomainError, match="more than 0 s"):
        correct([kernel(1e-6)], clean_s=0.0)
