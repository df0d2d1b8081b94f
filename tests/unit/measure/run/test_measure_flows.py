"""How a measurement goes from step to step, with made-up children: verification, machines, ends, inputs."""

import io
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from inferometer.core.errors import EngineError
from inferometer.core.graph import Block, Graph, Op, Tensor
from inferometer.core.machine import MachineFacts
from inferometer.core.profile import DeviceFacts, Environment, OpTime, Phase, Verification
from inferometer.core.workload import Workload
from inferometer.engines.base import Opened, Port
from inferometer.measure.bench.loop import LoopProgress
from inferometer.measure.run import child as children
from inferometer.measure.run import isolate
from inferometer.measure.run import model as running
from inferometer.measure.run.arrays import _clean
from inferometer.measure.run.assemble import _top_units
from inferometer.measure.run.child import LENGTH, _Teller, carry_out
from inferometer.measure.run.correct import rest_of
from inferometer.measure.run.inputs import index_limits, input_shapes, make_inputs
from inferometer.measure.run.isolate import ChildLimits, _answer, _follow, _listen, _with_partial
from inferometer.measure.run.model import MeasureRequest
from inferometer.measure.run.order import TextOrder
from inferometer.measure.run.raw import MemoryReadings, MemoryWatch, Raw, Resident, memory_over_time
from inferometer.measure.run.tolerance import Tolerance
from unit.measure.bench.profiles import profile
from unit.measure.run.test_measure_edges import PREPARED, RUNTIME, generation
from unit.measure.run.test_profiles_told import subject

OPENED = Opened(stages=(), versions={}, precision="f16")


# Verification.


def outputs(folder, name, values, **more):
    path = folder / f"{name}.npz"
    np.savez(path, **values)
    return Raw(ended="done", opened=OPENED, kept={"outputs": str(path)}, **more)


def test_ours_is_compared_with_theirs_in_their_arithmetic(monkeypatch, tmp_path):
    seen = []

    def ran(request, folder):
        seen.append((request.runtime, folder.name))
        values = {"y": np.array([1.0, 2.0]) * (1.5 if request.runtime == "mine" else 1.0)}
        prepared = replace(PREPARED, path=Path(request.runtime), precision="f16")
        return outputs(tmp_path, request.runtime, values), prepared

    monkeypatch.setattr(running, "_outputs", ran)
    mine, right = (MeasureRequest(model="m", runtime=name) for name in ("mine", "right"))
    found = running._compared(mine, right, tmp_path, None)
    assert seen == [("mine", "mine"), ("right", "right")]
    assert (found.status, found.reference, found.max_abs, found.max_rel) == ("failed", "right, f16", 1.0, 0.5)
    assert "f16 on both sides, rounded in" in found.tolerance
    assert running._compared(mine, right, tmp_path, running_tolerance(2.0)).status == "verified"


def running_tolerance(relative):
    return Tolerance(relative=relative, cosine=0.0)


def test_outputs_are_kept_in_the_folder_and_with_the_same_numbers(monkeypatch, tmp_path):
    seen = {}

    def prepared(model, runtime, weights):
        seen.update(model=model, runtime=runtime, same=weights.same)
        return PREPARED

    def isolated(order, *, limits):
        seen.update(outputs=order.outputs, limits=limits)
        return Raw(ended="done", kept={"outputs": "x"})

    monkeypatch.setattr(running, "runtime_named", lambda _name: RUNTIME)
    monkeypatch.setattr(running, "prepare_model", prepared)
    monkeypatch.setattr(running, "isolated", isolated)
    request = MeasureRequest(model="m", runtime="engine", workload=Workload(prompt=4, generate=2))
    raw, model = running._outputs(request, tmp_path)
    assert (raw.kept, model) == ({"outputs": "x"}, PREPARED)
    assert (seen["outputs"], seen["same"], seen["limits"]) == (tmp_path, True, request.limits)
    monkeypatch.setattr(running, "isolated", lambda *_, **__: Raw(ended="refused", error="no"))
    with pytest.raises(EngineError, match="no"):
        running._outputs(request, tmp_path)


def test_a_failure_in_the_last_layer_alone_is_said(monkeypatch, tmp_path):
    failed = Verification(status="failed", reason="off")
    asked = []

    def compared(mine, right, folder, tolerance):
        asked.append((mine.model, right.model, folder, tolerance))
        return inner

    mine, right = MeasureRequest(model="m.onnx", runtime="a"), MeasureRequest(model="m.onnx", runtime="b")
    monkeypatch.setattr(
        "inferometer.measure.run.verify.without_last", lambda path, _place: "Softmax 's'" if path.name else None
    )
    monkeypatch.setattr(running, "_compared", compared)
    inner = Verification(status="verified", max_rel=0.001)
    told = running._with_cause(failed, mine, right, tmp_path, "t")
    assert asked == [(str(tmp_path / "cut.onnx"), str(tmp_path / "cut.onnx"), tmp_path, "t")]
    assert told.reason.startswith("off; the inputs of the last layer, Softmax 's', are right to 0.001 of their")
    inner = failed
    assert running._with_cause(failed, mine, right, tmp_path, None) is failed
    monkeypatch.setattr("inferometer.measure.run.verify.without_last", lambda _path, _place: None)
    asked.clear()
    assert running._with_cause(failed, mine, right, tmp_path, None) is failed
    assert asked == []


# Machines.


def test_a_profile_has_its_machine_and_what_it_ran_on(monkeypatch):
    mine = MachineFacts(id="1", cpu="My CPU", gpus=("A GPU",))
    monkeypatch.setattr(running, "this_machine", lambda: mine)
    monkeypatch.setattr(
        "inferometer.known.machine.local.local_device", lambda name: SimpleNamespace(name=name, title="Row")
    )
    bare = replace(profile(Phase(name="forward", time_s=1.0)), device=DeviceFacts(name="local"), environment=None)
    found = running._with_machine(bare, "cpu")
    assert (found.device.title, found.environment.machine) == ("My CPU", mine)
    titled = replace(bare, device=DeviceFacts(name="local", title="T"))
    assert running._with_machine(titled, "cpu").device == DeviceFacts(name="local", title="T")
    assert running._with_machine(bare, "gpu:1").device == DeviceFacts(name="local:gpu:1", title="Row")
    there = MachineFacts(id="2", cpu="Other")
    elsewhere = replace(bare, environment=Environment(machine=there, threads=3))
    kept = running._with_machine(elsewhere, "gpu")
    assert (kept.environment, kept.device.title) == (elsewhere.environment, "Other")


def test_the_top_unit_of_ops_that_name_none_is_the_cpu():
    ops = tuple(OpTime(name=str(n), kind="k", time_s=1.0, unit=unit) for n, unit in enumerate((None, None, "npu")))
    phases = (Phase(name="forward", time_s=3.0, ops=ops),)
    assert _top_units(phases, Workload(), Raw(ended="done")) == {"top_unit": "cpu", "top_unit_by_count": "cpu"}
    assert _top_units((), Workload(), Raw(ended="done")) == {"top_unit": None, "top_unit_by_count": None}


# A child that is listened to.


class Answers:
    """A child's answers, one after the other; an exception is raised."""

    def __init__(self, *answers):
        self.answers = self
        self.left = list(answers)
        self.process = SimpleNamespace(pid=1, wait=lambda: None, kill=lambda: None, returncode=3)

    def get(self, timeout):
        assert timeout > 0
        answer = self.left.pop(0)
        if isinstance(answer, type):
            raise answer
        return answer


def heard(*answers, limits=None, ticks=None):
    now = iter(ticks or [float(n) for n in range(999)])
    told, watched = [], []
    watch = SimpleNamespace(look=lambda: None, begin=lambda: watched.append("begin"), end=lambda: watched.append("end"))
    raw = _listen(Answers(*answers), limits or ChildLimits(), told.append, (watch,), lambda: next(now))
    return raw, told, watched


def test_a_child_is_listened_to_until_it_has_ended():
    raw, told, watched = heard(("opened", "o"), ("progress", "bar"), ("first_s", 2.0), ("memory", "m"),
                               ("ended", ("done", None, None)))  # fmt: skip
    assert (raw.ended, raw.opened, raw.first_s, raw.memory) == ("done", "o", 2.0, "m")
    assert (told, watched) == (["bar"], ["begin", "end"])
    refused, *_ = heard(("ended", ("refused", "no", "do")))
    assert (refused.ended, refused.error, refused.remedy) == ("refused", "no", "do")
    crashed, *_ = heard(("first_s", 2.0), None)
    assert (crashed.ended, crashed.first_s) == ("crashed", 2.0)
    stopped, *_ = heard(("first_s", 2.0), KeyboardInterrupt)
    assert (stopped.ended, stopped.first_s) == ("stopped", 2.0)


def test_silence_is_counted_from_the_last_answer_and_time_from_the_beginning():
    empty = isolate.queue.Empty
    quiet = ChildLimits(silence_s=10.0)
    talks = [("first_s", 1.0), empty, ("first_s", 2.0), empty, empty]
    raw, *_ = heard(*talks, limits=quiet, ticks=[0.0, 8.0, 9.0, 9.0, 12.0, 21.9, 21.9, 22.0, 22.0])
    assert (raw.ended, raw.first_s) == ("hung", 2.0)
    slow, *_ = heard(empty, ("first_s", 1.0), empty, limits=ChildLimits(seconds=5.0),
                     ticks=[0.0, 4.0, 4.0, 4.5, 5.0, 5.0])  # fmt: skip
    assert (slow.ended, slow.error) == ("hung", "It was not done after 5 s, and was stopped.")


def test_answers_are_read_whole_or_not_at_all():
    def written(*answers, cut=0):
        stream = io.BytesIO()
        teller = _Teller(stream, clock=lambda: 0.0)
        for answer in answers:
            teller.tell(*answer)
        data = stream.getvalue()
        return io.BytesIO(data[: len(data) - cut])

    stream = written(("a", 1), ("b", 2))
    assert (_answer(stream), _answer(stream), _answer(stream)) == (("a", 1), ("b", 2), None)
    short = written(("a", 1), ("b", 2), cut=1)
    assert (_answer(short), _answer(short)) == (("a", 1), None)
    assert _answer(io.BytesIO(LENGTH.pack(4)[:-1])) is None


def test_progress_of_one_stage_is_told_now_and_then():
    now, stream = [0.0], io.BytesIO()
    teller = _Teller(stream, clock=lambda: now[0])
    for at, stage in ((1.0, "a"), (1.05, "a"), (1.06, "b"), (1.2, "b"), (1.21, "b")):
        now[0] = at
        teller.tell("progress", LoopProgress(stage=stage, done=0, share=at))
    stream.seek(0)
    told = []
    while (answer := _answer(stream)) is not None:
        told.append(answer[1].share)
    assert told == [1.0, 1.06, 1.2]


def test_what_a_child_runs_depends_on_the_order(monkeypatch):
    def ended(error=None, text=()):
        told = []

        def measure(order, runtime, tell):
            tell("ran", (order.text, runtime))
            if error is not None:
                raise error

        monkeypatch.setattr(children, "runtime_named", lambda name: f"runtime {name}")
        monkeypatch.setattr("inferometer.measure.run.texts.measure_text", measure)
        monkeypatch.setattr("inferometer.measure.run.arrays.measure_arrays", measure)
        carry_out(SimpleNamespace(runtime="r", text=text), lambda *given: told.append(given))
        return told

    assert ended() == [("ran", ((), "runtime r")), ("ended", ("done", None, None))]
    assert ended(text=("t",))[0] == ("ran", (("t",), "runtime r"))
    assert ended(MemoryError())[1] == ("ended", ("too-big", "The memory was not enough.", None))
    assert ended(KeyboardInterrupt())[1] == ("ended", ("stopped", None, None))
    assert ended(ValueError("bad"))[1] == ("ended", ("failed", "ValueError: bad", None))
    assert ended(EngineError("no", remedy="do"))[1] == ("ended", ("refused", "no", "do"))


def test_a_clean_run_that_was_cut_short_is_of_the_times_so_far():
    clean = _with_partial(Raw(ended="crashed", reported=((1.0, 2.0),))).clean
    assert (clean.name, clean.warmup_s, clean.failures, clean.discarded) == ("forward", (), (), 0)
    assert (clean.settled, clean.calls, clean.peak_memory_bytes, clean.disturbances) == (None, 1, None, ())
    watch = MemoryWatch(lambda: 1, lambda: 0.0)
    _follow((watch,), "opened")
    assert watch.series.at_s == ()
    _follow((watch,), "generation")
    assert watch.series.at_s == (0.0,)


def test_an_engine_that_fails_is_not_measured_further(monkeypatch):
    def clean(reason):
        failures = () if reason is None else (SimpleNamespace(reason=reason),)
        monkeypatch.setattr(
            "inferometer.measure.run.arrays.collect", lambda *_, **__: (SimpleNamespace(failures=failures),)
        )
        return _clean(SimpleNamespace(plan=None), SimpleNamespace(title="E"), "subject", None, tell=None, turns=None)

    assert clean(None).failures == ()
    with pytest.raises(MemoryError):
        clean("MemoryError: no")
    with pytest.raises(EngineError, match="E failed while it ran the model: ValueError: x\\."):
        clean("ValueError: x.")


# Inputs.


def test_only_tables_that_are_looked_up_limit_an_index():
    def lookup(kind, rows, name="ids"):
        return Op(name=f"{kind}{rows}", kind=kind, inputs=(Tensor(name=name, shape=(3,), role="index"),),
                  weights=(Tensor(name="w", shape=(rows, 4), role="weight"),))  # fmt: skip

    ids = Tensor(name="ids", shape=(3,), role="index")
    scaled = replace(
        lookup("embedding", 8), weights=(Tensor(name="s", shape=(), role="weight"), *lookup("embedding", 8).weights)
    )
    ops = (scaled, lookup("linear", 2), lookup("embedding", 9), lookup("gather", 7), lookup("embedding", 5, "inner"))
    model = Graph(name="g", blocks=(Block(name="b", ops=ops),), inputs=(ids, Tensor(name="x", shape=(2, 3))))
    assert index_limits(model) == {"ids": 7}
    assert input_shapes(model, SimpleNamespace(sizes={})) == {"ids": (3,), "x": (2, 3)}
    ports = [Port(name="ids", dtype="int64", shape=(50,)), Port(name="flag", dtype="int32", shape=(50,)),
             Port(name="image", dtype="uint8", shape=(500,)),
             Port(name="position_ids", dtype="int64", shape=(2, 3))]  # fmt: skip
    ports.append(Port(name="use_cache", dtype="bool", shape=(2,)))
    made = make_inputs(ports, sizes={}, limits={"ids": 7})
    assert made["use_cache"].tolist() == [True, True]
    assert (made["ids"].max(), made["flag"].max(), made["image"].max() > 200) == (6, 1, True)
    assert made["position_ids"].tolist() == [[0, 1, 2], [0, 1, 2]]


# Odds and ends.


def test_memory_over_time_is_the_models_own():
    raw = Raw(ended="done", memory=MemoryReadings(before_bytes=10), resident=Resident(at_s=(0.0, 1.0), nbytes=(5, 30)))
    assert memory_over_time(raw) == {0.0: 0, 1.0: 20}
    assert memory_over_time(replace(raw, memory=MemoryReadings())) == {}
    assert rest_of(1.0, 1.0 - 1e-13) == 0.0
    assert rest_of(1.0, 0.5) == 0.5
    assert (rest_of(1e6, 1e6 - 2.0**-21), rest_of(2.0**-20, 2.0**-20 - 2.0**-40)) == (0.0, 2.0**-40)


def test_a_text_has_as_many_tokens_as_were_read():
    case = TextOrder(prompt=8, generate=4, depth=2, words="hello")
    raw = Raw(ended="done", generations=(generation(TextOrder(prompt=1, generate=1), 99), generation(case, 5)))
    found = running._of_case(subject(prompt=1), case, raw).workload
    assert (found.prompt, found.generate, found.context) == (5, 4, 2)
    plain = running._of_case(subject(prompt=1), replace(case, words=None, depth=0), raw).workload
    assert (plain.prompt, plain.context) == (8, None)
    assert running._model_name("a/b.gguf", PREPARED) == running._model_name("b.gguf", PREPARED) == "tiny"
    assert running._model_name("llama", PREPARED) == "llama"


def test_what_is_said_of_a_run_that_gave_nothing():
    def failure(**given):
        return running._failure(Raw(**given), MeasureRequest(model="m"), SimpleNamespace(title="E"))

    assert str(failure(ended="refused", error="no", remedy="do")).startswith("no")
    crashed = failure(ended="crashed", error="boom", log="\n".join(f"line {n}" for n in range(9)) + "\n\n")
    assert crashed.message == (
        "'m' could not be measured on E. What it printed last:\n    line 3\n    line 4\n    line 5\n    line 6\n"
        "    line 7\n    line 8\nThen: boom"
    )
    assert failure(ended="hung").message == "'m' could not be measured on E: hung"
    assert running.remedy_of(Raw(ended="crashed", error="ended by SIGKILL")) == running._REMEDIES["too-big"]
    assert running.remedy_of(Raw(ended="crashed", error="x")) == running._REMEDIES["crashed"]
    assert running.remedy_of(Raw(ended="hung", error="SIGKILL")) == running._REMEDIES["hung"]
