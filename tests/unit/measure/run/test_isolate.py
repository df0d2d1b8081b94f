"""Faults injected for real: the child crashes, hangs, raises, eats memory; the parent lives and keeps what it heard."""

import itertools
import multiprocessing.process
import os
import pickle
import signal
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pytest

from fakes.fake_runtime import FakeClock, FakeRuntime, write_arrays, write_text
from inferometer.engines.base import Target
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run import against, isolate
from inferometer.measure.run import arrays as arrays_measured
from inferometer.measure.run.isolate import ChildLimits, isolated
from inferometer.measure.run.model import MeasuredRun
from inferometer.measure.run.order import MeasureOrder, TextOrder
from inferometer.measure.run.raw import MOST
from inferometer.measure.run.turns import Conductor, Turns

TESTS = Path(__file__).parents[3]
QUICK = Plan(warmup=1, runs=3, seconds=0.0, calls=1, retries=0)
FAST = (("a", "Conv", 2e-4), ("b", "Gemm", 1e-4))


@pytest.fixture(autouse=True)
def _fakes_in_the_child(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(TESTS), prepend=os.pathsep)


def arrays(tmp_path, runtime="fakes.fake_runtime:BUSY", **options):
    path = write_arrays(tmp_path / "model.fake", layers=FAST, fuse=())
    target = Target(path=path, format="fake", sizes={"batch": 2}, options=options)
    return MeasureOrder(runtime=runtime, target=target, plan=QUICK, guarded=False)


def test_a_child_tells_all_of_it(tmp_path):
    raw = isolated(arrays(tmp_path))
    assert raw.ended == "done"
    assert raw.opened.versions == {"fake": "1.0"}
    assert len(raw.clean.samples_s) == 3
    assert raw.first_s >= 3e-4
    (shape,) = raw.shapes
    assert [kernel.layers for kernel in shape.kernels] == [("a",), ("b",)]
    assert len(shape.walls_s) == len(shape.kernels[0].samples_s) >= 4  # five in a turn, the first of which is cold
    assert raw.memory.peak_bytes >= raw.memory.before_bytes > 0
    assert raw.resident.at_s[0] == 0
    assert len(raw.resident.at_s) == len(raw.resident.nbytes) <= MOST
    assert min(raw.resident.nbytes) > 1_000_000  # at least an interpreter


def test_a_language_model_tells_each_generation(tmp_path):
    path = write_text(tmp_path / "model.fake", layers=FAST)
    order = MeasureOrder(
        runtime="fakes.fake_runtime:BUSY",
        target=Target(path=path, format="fake", text=True, context=64),
        plan=QUICK,
        text=(TextOrder(prompt=4, generate=3), TextOrder(prompt=8, generate=2, depth=4)),
        guarded=False,
    )
    raw = isolated(order)
    assert raw.ended == "done", raw.error
    kept = [each for each in raw.generations if not each.first]
    assert [each.order.prompt for each in kept] == [4, 4, 4, 8, 8, 8]
    assert [event.context for event in kept[0].events] == [0, 4, 5]
    assert kept[3].events[0].context == 4
    assert {shape.phase for shape in raw.shapes} == {"prefill", "decode"}
    assert kept[0].tokenise_s >= 0


@pytest.mark.parametrize(
    ("options", "ended", "words"),
    [
        ({"refuse": "no op Foo"}, "refused", "no op Foo"),
        ({"memory": "open"}, "too-big", "memory"),
        ({"crash": "open"}, "crashed", "SIGABRT"),
        ({"crash": "2"}, "crashed", "SIGABRT"),
        ({"fail": "0"}, "refused", "failed in step 0"),
    ],
)
def test_a_child_that_ends_badly_is_told_as_it_was(tmp_path, options, ended, words):
    raw = isolated(arrays(tmp_path, **options))
    assert (raw.ended, words in raw.error) == (ended, True), raw.error


def test_a_crash_keeps_what_was_heard_before(tmp_path):
    # Step 0 is the first run, then warm-up and three runs: the clean run is told before the instrumented one dies.
    raw = isolated(arrays(tmp_path, crash="9"))
    assert raw.ended == "crashed"
    assert len(raw.clean.samples_s) == 3


def test_a_child_that_hangs_is_ended(tmp_path):
    ticks, note = itertools.count(), tmp_path / "hangs"
    raw = isolated(
        arrays(tmp_path, hang="1", note=str(note)),
        limits=ChildLimits(silence_s=30.0),
        clock=lambda: float(next(ticks)) if note.exists() else 0.0,  # a second a look, once it hangs
    )
    assert raw.ended == "hung"
    assert raw.first_s is not None


def test_a_child_that_is_too_big_is_ended(tmp_path):
    raw = isolated(arrays(tmp_path, hang="1"), limits=ChildLimits(memory_bytes=1_000_000))
    assert raw.ended == "too-big"
    assert "1 MB are allowed" in raw.error


def test_a_runtime_that_is_not_there_is_told(tmp_path):
    raw = isolated(arrays(tmp_path, runtime="onnxruntim"))
    assert raw.ended == "refused"
    assert "onnxruntime" in raw.remedy


def test_ctrl_c_keeps_what_was_measured(tmp_path):
    heard = []

    def interrupt(step):
        if not heard:
            heard.append(step)
            threading.Thread(target=signal.raise_signal, args=(signal.SIGINT,)).start()

    order = arrays(tmp_path)
    slow = Plan(warmup=1, runs=10_000, seconds=30.0, seconds_at_most=60.0, calls=1, retries=0)
    raw = isolated(
        MeasureOrder(runtime=order.runtime, target=order.target, plan=slow, guarded=False), progress=interrupt
    )
    assert raw.ended == "stopped"
    assert raw.opened is not None


def test_samples_of_a_clean_run_that_dies_are_kept(tmp_path):
    # A step takes 0.3 s, so that what was timed is told as it comes; the sixth dies: one first run, one of warm-up.
    path = write_arrays(tmp_path / "model.fake", layers=(("a", "Conv", 0.3),), fuse=())
    target = Target(path=path, format="fake", sizes={"batch": 2}, options={"crash": "5"})
    plan = Plan(warmup=1, runs=9, seconds=0.0, calls=1, retries=0)
    raw = isolated(MeasureOrder(runtime="fakes.fake_runtime:BUSY", target=target, plan=plan, guarded=False))
    assert raw.ended == "crashed"
    assert 1 <= len(raw.clean.samples_s) <= 3
    assert not raw.clean.complete


def test_two_models_take_turns_and_layers_come_last(tmp_path):
    conductor = Conductor(2, seed=1)
    orders = [replace(arrays(tmp_path), turns=at) for at in conductor.addresses()]
    with ThreadPoolExecutor(max_workers=3) as threads:
        leading = threads.submit(conductor.conduct)
        first, second = threads.map(isolated, orders)
        leading.result(timeout=120)
    conductor.stop()
    for raw in (first, second):
        assert (raw.ended, len(raw.clean.samples_s), len(raw.shapes)) == ("done", 3, 1)


def test_a_turn_is_one_childs_alone_and_the_order_is_drawn_anew():
    conductor, ran, holders = Conductor(2, seed=1), [], []

    def child(at):
        turns = Turns(at)
        for step in range(8):
            holders.append(at.index)
            assert holders == [at.index], "the other has the turn too"
            ran.append((step, at.index))
            holders.remove(at.index)
            turns.next()
        turns.close()

    with ThreadPoolExecutor(max_workers=3) as threads:
        leading = threads.submit(conductor.conduct)
        list(threads.map(child, conductor.addresses()))
        leading.result(timeout=120)
    conductor.stop()
    assert [step for step, _ in ran] == [step for step in range(8) for _ in range(2)]
    orders = [ran[2 * step][1] for step in range(1, 8)]
    assert set(orders) == {0, 1}


def test_a_child_that_never_comes_or_an_interruption_ends_the_others():
    conductor = Conductor(2, seed=1)
    conductor_address = conductor.addresses()[1]
    with ThreadPoolExecutor(max_workers=2) as threads:
        leading = threads.submit(conductor.conduct)
        waiting = threads.submit(Turns, conductor.addresses()[0])
        while not conductor._pipes:
            assert not waiting.done()
        conductor.stop()
        conductor.stop()
        leading.result(timeout=120)
        with pytest.raises(KeyboardInterrupt):
            waiting.result(timeout=120)
    with pytest.raises(KeyboardInterrupt):
        Turns(conductor_address)
    assert Turns(None).next() is None


def test_files_beside_the_user_do_not_stand_in_for_modules_of_python(tmp_path, monkeypatch):
    (tmp_path / "glob.py").write_text("raise ImportError('the wrong one')\n")
    (tmp_path / "numpy.py").write_text("raise ImportError('the wrong one')\n")
    order = arrays(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert isolated(order).ended == "done"


def test_turns_are_taken_however_deep_the_folder_for_temporary_files_lies(tmp_path, monkeypatch):
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    monkeypatch.setattr(multiprocessing.process.current_process(), "_config", {})  # it keeps the first folder it made
    conductor = Conductor(1, seed=1)
    with ThreadPoolExecutor(max_workers=1) as threads:
        leading = threads.submit(conductor.conduct)
        Turns(conductor.addresses()[0]).close()
        leading.result(timeout=120)
    conductor.stop()


def test_a_child_is_out_of_reach_of_the_terminal_and_of_the_users_own_modules(monkeypatch, tmp_path):
    started, given = [], BytesIO()
    given.close = lambda: None

    def popen(command, **more):
        started.append((command, more))
        return SimpleNamespace(stdin=given, stdout=BytesIO(), pid=1)

    monkeypatch.setattr(isolate.subprocess, "Popen", popen)
    child = isolate._Child(order="an order", log=tmp_path / "log")
    ((command, more),) = started
    assert command == [sys.executable, "-P", "-m", "inferometer.measure.run.child", str(tmp_path / "log")]
    assert more["start_new_session"], "Ctrl-C of a terminal goes to all of a session"
    assert (pickle.loads(given.getvalue()), child.answers.get(timeout=9)) == ("an order", None)  # noqa: S301 - just written


@pytest.mark.parametrize("interrupted", [True, False])
def test_runs_in_turns_that_were_interrupted_are_not_complete(monkeypatch, interrupted):
    runs = iter([MeasuredRun(profiles=(), graph=None, raw=None, complete=True) for _ in range(2)])
    monkeypatch.setattr(against, "measure_model", lambda _request, **_more: next(runs))
    waited = against._wait_for
    monkeypatch.setattr(against, "_wait_for", lambda futures, conductor: waited(futures, conductor) or interrupted)
    conductor = SimpleNamespace(stop=lambda: None, conduct=lambda: None)
    assert [run.complete for run in against._together([1, 2], conductor, None)] == [not interrupted] * 2


def test_as_long_as_the_clean_steps_took_layers_are_timed(monkeypatch, tmp_path):
    """Each sample is the time of one of `calls` calls."""
    told, asked = {}, []
    monkeypatch.setattr(arrays_measured, "_instrumented", lambda *_, seconds, clock: asked.append((seconds, clock)))
    plan = Plan(warmup=1, runs=3, seconds=0.0, calls=4)
    target = Target(path=write_arrays(tmp_path / "m.fake"), format="fake", sizes={"batch": 2})
    order = MeasureOrder(runtime="fake", target=target, plan=plan, guarded=False)
    arrays_measured.measure_arrays(order, FakeRuntime(clock=FakeClock()), told.__setitem__)
    clean = told["clean"]
    assert (len(clean.samples_s), clean.calls) == (3, 4)
    assert [seconds for seconds, _ in asked] == [pytest.approx(4 * sum(clean.samples_s))]
