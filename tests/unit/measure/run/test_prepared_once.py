"""An engine that can time what it has already prepared is opened once, and says what takes long."""

import io
import pickle

import pytest

from fakes.fake_runtime import BUSY, write_arrays, write_text
from inferometer.core.notices import tell, told_to
from inferometer.engines.base import Target
from inferometer.measure.bench.loop import LoopProgress
from inferometer.measure.bench.plan import Plan
from inferometer.measure.run.arrays import measure_arrays
from inferometer.measure.run.child import LENGTH, _Teller
from inferometer.measure.run.order import MeasureOrder, TextOrder
from inferometer.measure.run.texts import measure_text

QUICK = Plan(warmup=1, runs=3, seconds=0.0, calls=1, retries=0)
LAYERS = (("a", "Conv", 2e-4), ("b", "Gemm", 1e-4))


class Once:
    """The fake engine, whose plain sessions give instrumented ones and whose openings are counted."""

    capabilities, title = BUSY.capabilities, BUSY.title

    def __init__(self):
        self.opened, self.closed = [], []

    def open(self, target):
        self.opened.append((target.watched, target.instrument))
        session = BUSY.open(target)

        def instrumented():
            again = BUSY.open(Target(**{**_fields(target), "instrument": True}))
            close = again.close
            again.close = lambda: (self.closed.append("instrumented"), close())
            return again

        session.instrumented = instrumented
        return session


def _fields(target):
    return {name: getattr(target, name) for name in target.__slots__}


@pytest.mark.parametrize("text", [False, True])
def test_what_was_prepared_is_not_prepared_again(tmp_path, text):
    write, measure = (write_text, measure_text) if text else (write_arrays, measure_arrays)
    target = Target(
        path=write(tmp_path / "model.fake", layers=LAYERS), format="fake", text=text, sizes={"batch": 2}, context=64
    )
    lengths = (TextOrder(prompt=4, generate=3),) if text else ()
    order = MeasureOrder(runtime="fake", target=target, plan=QUICK, text=lengths, guarded=False)
    engine, told = Once(), []
    measure(order, engine, lambda field, value: told.append((field, value)))
    assert engine.opened == [(True, False)]
    assert engine.closed == ["instrumented"]
    shapes = [value for field, value in told if field == "shape"]
    assert {kernel.layers for shape in shapes for kernel in shape.kernels} >= {("a",), ("b",)}


def test_a_new_stage_is_always_told_and_progress_within_one_is_thinned():
    answers = io.BytesIO()
    teller = _Teller(answers, clock=iter([1.0, 1.01, 1.02, 1.03, 1.2]).__next__)
    for stage in ("runs", "compiling", "compiling", "runs", "runs"):
        teller.tell("progress", LoopProgress(stage=stage, done=0, share=0.0))
    assert _stages(answers.getvalue()) == ["runs", "compiling", "runs", "runs"]


def _stages(data):
    stages = []
    while data:
        (length,) = LENGTH.unpack(data[: LENGTH.size])
        stages.append(pickle.loads(data[LENGTH.size : LENGTH.size + length])[1].stage)  # noqa: S301 - our own
        data = data[LENGTH.size + length :]
    return stages


def test_what_an_engine_tells_is_heard_only_while_someone_listens():
    heard = []
    tell("importing")
    with told_to(heard.append):
        tell("compiling the decode step")
    tell("running")
    assert heard == ["compiling the decode step"]
