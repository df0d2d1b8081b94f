"""One thing of a question changed and nothing else, and which of two figures, files or roofs counts."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from inferometer.core.calibration import Calibration, Utilisation
from inferometer.core.device import Device, Link, Memory, Roof, Sourced
from inferometer.core.errors import DomainError, InferometerError, UnknownNameError
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.known import device
from inferometer.predict.ask import ask, model_graph
from inferometer.predict.basis import roof as roofs
from inferometer.predict.basis.calibrations import (
    HostSetup,
    _candidates,
    _how_to_calibrate,
    choose_calibration,
    differences,
    host_setup,
)
from inferometer.predict.basis.files import file_name, name_start, read_calibration, sealed, write_calibration
from inferometer.predict.basis.roof import _alone_s, _better, machine_roof, measured_roof, needs_roof, with_roof
from inferometer.predict.change import changed_device, parse_change
from inferometer.predict.options import Options
from inferometer.predict.question import CalibrationChoices, Question, _figures
from inferometer.predict.ready import require_finite


def told(value, source="a test"):
    return Sourced(value=value, origin="datasheet", source=source, date="2026")


MACHINE = Device(
    name="machine", title="M", vendor="v", unit="gpu", kind="server", peaks={"bf16": told(8.0), "f32": told(2.0)},
    memories=(Memory(level="hbm", capacity_bytes=told(100.0), bandwidth_bytes_per_s=told(10.0)),
              Memory(level="l2", capacity_bytes=told(5.0), bandwidth_bytes_per_s=told(50.0))),
    power_w=told(300.0),
)  # fmt: skip


# Changes.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("peak*=2", {"bf16": 16.0, "f32": 4.0}),
        ("peak.bf16*=0.5", {"bf16": 4.0, "f32": 2.0}),
        ("peak.i8=1TFLOP/s", {"bf16": 8.0, "f32": 2.0, "i8": 1e12}),
    ],
)
def test_a_peak_is_changed_alone_or_with_all_others(text, found):
    changed = changed_device(MACHINE, parse_change(text))
    assert {name: peak.value for name, peak in changed.peaks.items()} == found
    assert replace(changed, peaks=MACHINE.peaks) == MACHINE


def test_other_figures_are_changed_one_by_one():
    wide = changed_device(MACHINE, parse_change("memory.bandwidth*=3"))
    assert [memory.bandwidth_bytes_per_s.value for memory in wide.memories] == [30.0, 50.0]
    assert [memory.capacity_bytes.value for memory in wide.memories] == [100.0, 5.0]
    large = changed_device(MACHINE, parse_change("memory.capacity=2GB"))
    assert [memory.capacity_bytes.value for memory in large.memories] == [2e9, 5.0]
    assert large.memories[0].bandwidth_bytes_per_s.value == 10.0
    assert changed_device(MACHINE, parse_change("power*=2")).power_w.value == 600.0
    board = replace(MACHINE, busy_w=MACHINE.power_w, power_w=None)
    assert changed_device(board, parse_change("power*=2")).busy_w.value == 600.0, "what its energy is counted with"
    launched = changed_device(MACHINE, parse_change("launch=3us"))
    assert launched.launch_s.value == pytest.approx(3e-6)
    assert (launched.launch_s.origin, launched.power_w) == ("prior", MACHINE.power_w)
    for wrong in ("launch*=2", "power=0W", "peak*=0"):
        with pytest.raises(DomainError):
            changed_device(MACHINE, parse_change(wrong))
    with pytest.raises(DomainError, match="no memory"):
        changed_device(replace(MACHINE, memories=()), parse_change("memory.bandwidth*=2"))


def test_what_is_no_change_is_refused():
    for wrong in ("batch", "batch*=2", "on*=2", "=3", "weights*=2"):
        with pytest.raises(DomainError):
            parse_change(wrong)
    with pytest.raises(UnknownNameError):
        parse_change("colour=red")
    with pytest.raises(DomainError, match="batch must be a whole number"):
        _ = parse_change("batch=two").number
    change = parse_change("  memory.bandwidth *= 2 ")
    assert (str(change), change.of, change.times) == ("memory.bandwidth*=2", "device", True)
    assert (str(parse_change("batch=8")), parse_change("peak.bf16*=2").of) == ("batch=8", "device")


CALIBRATION = Calibration(device="nvidia-l4", runtime="torch-compile", dtype="bf16", created="2026-01-02T03:04:05")


def question(**given):
    values = {
        "graph": model_graph("llama-3.2-1b"), "device": device("nvidia-l4"), "runtime": "torch-compile",
        "workload": Workload(batch=2, prompt=16, generate=4, precision=Precision(weights="bf16", activations="bf16")),
        "calibration": CALIBRATION, "options": Options(chunk=8), "had_threads": 3,
    }  # fmt: skip
    return Question(**values | given)


def test_a_change_changes_one_thing_of_a_question():
    before = question()

    def after(text):
        return before.changed(text)

    sized = after("batch=8")
    assert (sized.workload.batch, replace(sized, workload=before.workload)) == (8, before)
    assert after("tp=2").workload.parallel == Parallel(tp=2)
    assert after("cached_prefix=3").options == replace(before.options, cached_prefix=3)
    other = after("runtime=torch-eager")
    assert (other.runtime, other.calibration, other.device) == ("torch-eager", None, before.device)
    moved = after("on=nvidia-h200")
    assert (moved.device.name, moved.calibration, moved.workload) == ("nvidia-h200", None, before.workload)
    assert after("memory.bandwidth*=2").calibration is CALIBRATION
    narrow = after("weights=i8")
    assert (narrow.workload.precision.weights, narrow.workload.precision.activations) == ("i8", "bf16")
    assert narrow.calibration is CALIBRATION, "calibrated by the activations' format"
    both = after("precision=f16")
    assert (both.workload.precision.weights, both.workload.precision.activations) == ("f16", "f16")
    assert both.calibration is None
    with pytest.raises(DomainError, match="threads=4 changes how"):
        after("threads=4")


def test_two_machines_need_a_link_and_hand_the_cache_over():
    silent = replace(device("nvidia-l4"), peer_link=None)
    asked = question(calibration=None, calibrated=False, options=Options(), prefill_on=silent)
    with pytest.raises(DomainError, match="The link between nvidia-l4 and nvidia-l4 is not known"):
        asked.answer()
    wire = Link(name="w", title="W", kind="test", bandwidth_bytes_per_s=told(1e9))
    found = replace(asked, options=Options(link=wire)).answer()
    per_token = found.model.kv_bytes_per_token
    assert found.phase("transfer").time_s == pytest.approx(2 * 16 * per_token / 1e9)
    slow = replace(asked, prefill_on=device("nvidia-h200"), options=Options(link=wire)).answer()
    assert slow.phase("prefill").time_s < found.phase("prefill").time_s
    assert slow.phase("decode").time_s == found.phase("decode").time_s


def test_given_calibrations_come_first_those_of_the_format_before_others():
    half = replace(CALIBRATION, dtype="f16", created="2026-02-02")
    strange = replace(CALIBRATION, device="other")
    asked = question(calibration=None)

    def chosen(*given, precision=asked.workload.precision):
        return CalibrationChoices(given).calibration(asked, precision)

    assert chosen(strange, half, CALIBRATION) is CALIBRATION
    assert chosen(strange, half) is half
    assert chosen(half, CALIBRATION, precision=Precision(activations="f16")) is half
    assert chosen(CALIBRATION, replace(CALIBRATION, created="2027")) is CALIBRATION
    assert chosen(strange) is asked.basis().calibration


def test_every_part_of_a_question_has_its_name():
    found = ask("llama-3.2-1b", on="nvidia-l4", weights="i8", activations="bf16", kv="f16", batch=2, prompt=3,
                generate=4, context=5, image=6, tp=7, pp=8, ep=9, dp=10, prefill_on="nvidia-h200",
                calibrated=False)  # fmt: skip
    workload = found.workload
    assert workload.precision == Precision(weights="i8", activations="bf16", kv="f16")
    assert workload.parallel == Parallel(tp=7, pp=8, ep=9, dp=10)
    assert (workload.batch, workload.prompt, workload.generate, workload.context, workload.image) == (2, 3, 4, 5, 6)
    assert (found.prefill_on.name, found.device.name, found.calibrated, found.roof) == (
        "nvidia-h200", "nvidia-l4", False, None,
    )  # fmt: skip
    assert model_graph("llama-3.2-1b") is model_graph("llama-3.2-1b")


# Figures: the row's own, then the calibration's, then the roof's.

LOCAL = Device(
    name="local", title="L", vendor="v", unit="cpu", kind="desktop",
    memories=(Memory(level="dram", capacity_bytes=told(9.0)), Memory(level="l2", capacity_bytes=told(1.0))),
)  # fmt: skip
ROOF = Roof(machine="m", created="2026-01-01T00:00:00+00:00", bandwidth_bytes_per_s=told(3.0, "roof"),
            peaks={"f32": told(7.0, "roof"), "f16": told(5.0, "roof")})  # fmt: skip


def test_figures_come_from_the_row_then_the_calibration_then_the_roof():
    measured = replace(CALIBRATION, device="local", peaks={"f32": told(6.0, "c")}, bandwidths={"dram": told(2.0, "c")})
    elsewhere = replace(measured, device="another")

    def rates(found):
        memory = found.memories[0].bandwidth_bytes_per_s
        return {name: peak.value for name, peak in found.peaks.items()}, memory and memory.value

    assert _figures(LOCAL, None, None) is LOCAL
    assert rates(_figures(LOCAL, None, ROOF)) == ({"i8": 7.0, "f32": 7.0, "f16": 5.0}, 3.0)
    assert rates(_figures(LOCAL, measured, ROOF)) == ({"i8": 7.0, "f32": 6.0, "f16": 5.0}, 2.0)
    assert rates(_figures(LOCAL, elsewhere, ROOF)) == ({"f32": 6.0}, 2.0), "its shares are of its own peaks"
    assert rates(_figures(LOCAL, measured, None)) == ({"f32": 6.0}, 2.0)
    assert rates(_figures(MACHINE, measured, ROOF)) == ({"f32": 2.0, "bf16": 8.0}, 10.0)
    assert _figures(LOCAL, measured, ROOF) is _figures(LOCAL, measured, ROOF)
    assert with_roof(LOCAL, ROOF).memories[1] == LOCAL.memories[1]
    assert with_roof(LOCAL, replace(ROOF, peaks={"f16": told(5.0)})).peaks.keys() == {"f16"}


def test_only_a_row_of_this_machine_that_lacks_figures_needs_a_roof():
    known = replace(LOCAL, peaks={"f32": told(1.0)},
                    memories=(Memory(level="dram", bandwidth_bytes_per_s=told(1.0)),))  # fmt: skip
    assert needs_roof(LOCAL)
    assert not needs_roof(known)
    assert needs_roof(replace(known, peaks={}))
    assert needs_roof(replace(known, memories=()))
    assert needs_roof(replace(known, memories=(Memory(level="dram"),)))
    assert not needs_roof(replace(LOCAL, name="other"))


def test_the_better_of_two_roofs_is_kept_figure_by_figure():
    again = replace(ROOF, peaks={"f32": told(6.0), "f16": told(8.0), "bf16": told(1.0)}, created="later",
                    bandwidth_bytes_per_s=told(2.0))  # fmt: skip
    found = _better(ROOF, again)
    assert {name: peak.value for name, peak in found.peaks.items()} == {"f32": 7.0, "f16": 8.0, "bf16": 1.0}
    assert (found.bandwidth_bytes_per_s.value, found.created) == (3.0, "later")
    assert _better(None, again) is again


@pytest.mark.parametrize(
    ("age", "busy", "fresh", "measured"),
    [
        (timedelta(days=1), False, True, False), (timedelta(days=1, seconds=1), False, True, True),
        (timedelta(days=9), False, False, False), (timedelta(minutes=10), True, False, False),
        (timedelta(minutes=11), True, False, True),
    ],
)  # fmt: skip
def test_a_roof_is_measured_again_when_it_is_old(tmp_path, age, busy, fresh, measured):
    start = datetime(2026, 5, 1, tzinfo=UTC)
    asked = []

    def measure(machine):
        asked.append(machine)
        return replace(ROOF, created=start.isoformat(), busy=busy, threads=roofs._usable_threads())

    machine_roof(LOCAL, folder=tmp_path, measure=measure, now=lambda: start)
    machine_roof(LOCAL, folder=tmp_path, measure=measure, now=lambda: start + age, fresh=fresh)
    assert len(asked) == (2 if measured else 1)


def test_a_gpu_is_measured_by_itself(tmp_path, monkeypatch):
    monkeypatch.setattr(roofs, "measured_gpu_roof", lambda machine: replace(ROOF, machine=f"gpu {machine}"))
    monkeypatch.setattr(roofs, "measured_roof", lambda machine: replace(ROOF, machine=f"cpu {machine}"))
    assert machine_roof(replace(LOCAL, unit="gpu"), folder=tmp_path / "a").machine.startswith("gpu ")
    assert machine_roof(LOCAL, folder=tmp_path / "b").machine.startswith("cpu ")
    deep = tmp_path / "c" / "d"
    machine_roof(LOCAL, folder=deep)
    assert [path.suffix for path in deep.iterdir()] == [".json"], "kept, in folders that are made"
    monkeypatch.setattr("psutil.getloadavg", lambda: (6.0, 1.0, 1.0))
    for count, load in ((3, 2.0), (None, 6.0)):
        monkeypatch.setattr("psutil.cpu_count", lambda count=count: count)
        assert roofs._load_per_cpu() == load


def test_the_shortest_of_three_runs_or_more_counts(monkeypatch):
    def shortest(seconds, *taken):
        now, runs = [0.0], []

        def work():
            now[0] += (99.0, *taken)[len(runs)]
            runs.append(1)

        return _alone_s(work, lambda: now[0], seconds, 1, lambda: (0.0, 0.0)), len(runs)

    assert shortest(0.0, 5.0, 2.0, 3.0, 1.0) == (2.0, 4), "the first warms up"
    assert shortest(10.5, 5.0, 2.0, 3.0, 1.0) == (1.0, 5)
    assert shortest(10.0, 5.0, 2.0, 3.0, 1.0) == (2.0, 4), "the time is over"
    monkeypatch.setattr(roofs, "product_flop_per_s", lambda **_: 8.0)
    monkeypatch.setattr(roofs, "copy_bytes_per_s", lambda **_: 4.0)
    found = measured_roof("m", load=lambda: 0.5)
    assert (found.peaks["f32"].value, found.bandwidth_bytes_per_s.value, found.busy) == (8.0, 4.0, False)
    assert measured_roof("m", load=lambda: 0.51).busy


# Files.


def test_files_are_looked_at_by_their_names_or_opened_where_they_were_renamed(tmp_path):
    names = ["machine-torch-bf16-2026-01-02-0123abcd.json", "other-torch-bf16-2026-01-02-0123abcd.json", "mine.json"]
    paths = [tmp_path / name for name in names]
    assert [path.name for path in _candidates(paths, "machine", "torch")] == [names[0], names[2]]
    assert [path.name for path in _candidates(paths, "machine", "torch", "bf16")] == [names[0], names[2]]
    assert [path.name for path in _candidates(paths, "machine", "torch", "f16")] == [names[2]]
    assert name_start("My Device!", "x/y", "BF16") == "my-device-x-y-bf16"
    assert file_name(CALIBRATION).startswith("nvidia-l4-torch-compile-bf16-2026-01-02-")
    written = write_calibration(CALIBRATION, tmp_path / "deep" / "down" / "mine.json")
    assert written == tmp_path / "deep" / "down" / "mine.json"
    assert not [*written.parent.glob(".*")]


def test_a_file_of_another_format_is_opened_only_where_there_is_none_of_the_one_wanted(tmp_path):
    write_calibration(CALIBRATION, tmp_path)
    broken = tmp_path / "nvidia-l4-torch-compile-f32-2026-01-02-0123abcd.json"
    broken.write_text("{}")
    device, runtime = CALIBRATION.device, CALIBRATION.runtime

    def chosen(dtype):
        return choose_calibration(device, runtime, dtype, folders=[tmp_path], shipped=None)

    assert not chosen("bf16").refused
    assert len(chosen("f16").refused) == 1, "and looked at once"


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -1.0])
def test_one_wrong_figure_among_thousands_of_a_table_is_found(wrong):
    require_finite((0.0, *[1.5] * 1000), "table")
    with pytest.raises(DomainError, match="table is"):
        require_finite((*[1.5] * 1000, wrong, 2.0), "table")


def test_a_written_figure_keeps_twelve_digits_and_a_whole_number_all(tmp_path):
    table = Utilisation(
        op_class="linear", stream="floor", axes=("rows",), grid=((1 / 3e-12, 989_400_000_000.0),), values=(1 / 3, 0.5),
        residual=0.1,
    )  # fmt: skip
    path = write_calibration(replace(CALIBRATION, tables=(table,)), tmp_path)
    [kept] = read_calibration(path).tables
    assert kept.grid == ((333_333_333_333.0, 989_400_000_000.0),)
    assert kept.values == (0.333333333333, 0.5)


def test_the_newest_counts_and_of_one_moment_the_last_name(tmp_path):
    table = Utilisation(op_class="linear", stream="floor", axes=("rows",), grid=((1.0,),), values=(0.5,), residual=0.1)
    old, new = (replace(CALIBRATION, tables=(table,), created=f"2026-0{month}-01", residuals={"linear": 0.2})
                for month in (1, 2))  # fmt: skip
    for calibration in (new, old):
        write_calibration(calibration, tmp_path)

    def chosen(**more):
        return choose_calibration("nvidia-l4", "torch-compile", "bf16", folders=(tmp_path,), shipped=None, **more)

    assert chosen().calibration == sealed(new)
    both = chosen(setup=HostSetup(versions={"torch": "2"}, threads=4)).calibration
    assert both.residuals == {"linear": 0.2}
    assert (
        choose_calibration("nvidia-l4", "torch-compile", "f16", folders=(tmp_path,), shipped=None).calibration is None
    )
    assert choose_calibration("nvidia-l4", "torch-compile", None, folders=(tmp_path,), shipped=None).calibration


def test_versions_and_threads_that_are_not_known_are_not_compared():
    made = replace(CALIBRATION, versions={"torch": "2.1+cu", "numpy": "1"}, threads=4)
    assert differences(made, HostSetup(versions={"torch": "2.1", "other": "3"}, threads=None)) == ()
    assert len(differences(made, HostSetup(versions={"torch": "2.2", "numpy": "2"}, threads=4))) == 2
    (note,) = differences(made, HostSetup(threads=8))
    assert note == "The calibration of 2026-01-02 was made with 4 threads; now there are 8."
    assert differences(replace(made, threads=None), HostSetup(threads=8)) == ()


def test_an_engine_that_nobody_describes_has_no_versions():
    assert "numpy" not in host_setup("nobody").versions
    assert host_setup("nobody", 3).threads == 3


def test_how_to_calibrate_is_said_only_where_it_can_be_done():
    assert _how_to_calibrate(LOCAL, "nobody", "f32") is None
    assert "--dtype" not in _how_to_calibrate(LOCAL, "onnxruntime", "f32")
    assert _how_to_calibrate(LOCAL, "onnxruntime", "bf16") is None
    by_weights = _how_to_calibrate(LOCAL, "llamacpp", "q4_0")
    assert by_weights.startswith("llamacpp with q4_0 weights is not calibrated")
    assert "calibrate --runtime llamacpp --dtype q4_0`" in by_weights
    assert "calibrate --runtime llamacpp`" in _how_to_calibrate(LOCAL, "llamacpp", "q8_0")
    assert _how_to_calibrate(replace(LOCAL, unit="npu"), "onnxruntime", "f32") is None


def test_a_link_may_be_asked_for_by_its_rate_as_it_was_measured():
    asked = {"on": "nvidia-l4", "tp": 8, "weights": "f8e4m3"}
    slow, fast = (ask("llama-3.3-70b", link=rate, **asked).answer().summary.ttft_s for rate in ("125MB/s", "10Gb/s"))
    assert slow > 3 * fast
    for rate in ("0GB/s", "2e15B/s", "3m/s"):
        with pytest.raises(InferometerError):
            ask("llama-3.3-70b", link=rate, **asked)
