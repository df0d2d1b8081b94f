"""One suite over every runtime and a fake: what a session does, whoever wrote it.

A runtime joins with a module `runtime_cases_NAME.py` beside this one. Its list CASES has a row a model:

    (runtime, make, inputs)

`runtime` is the name of an entry point, or a runtime itself. `make(folder)` gives the Target; it may write the model
into the folder, or call pytest.skip. `inputs` are arrays by name for a Session, or the token ids of a prompt for a
TextSession. A runtime with a clock of its own has an attribute `clock`.
"""

import time
from dataclasses import replace
from importlib import import_module
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from inferometer.core.errors import DomainError, FormatError, InferometerError, MissingDependencyError
from inferometer.core.plugins import load_all
from inferometer.engines.base import Missing, Request, Stage, Target

GROUP = "inferometer.runtimes"
ROWS = [
    row
    for path in sorted(Path(__file__).parent.glob("runtime_cases_*.py"))
    for row in import_module(f"contract.{path.stem}").CASES
]
INSTALLED = load_all(GROUP)[0]


class Case:
    """A row, and what the tests do with it. Loading takes long: what a test does not change, all of them share."""

    def __init__(self, runtime, make, inputs, folder):
        self.runtime = INSTALLED[runtime] if isinstance(runtime, str) else runtime
        found = self.runtime.probe()
        if isinstance(found, Missing):
            pytest.skip(f"SKIPPED LOUDLY: {found.reason}; {found.remedy}")
        self.target, self.inputs, self.opened, self.kept = make(folder), inputs, [], {}
        self.clock = getattr(self.runtime, "clock", time.perf_counter)

    def open(self, **changes):
        """A session for one test alone."""
        session = self.runtime.open(replace(self.target, **changes))
        self.opened.append(session)
        return session

    def shared(self, *, instrument=False):
        """The session of every test that only uses one, without kernels of those before."""
        if instrument not in self.kept:
            self.kept[instrument] = self.runtime.open(replace(self.target, instrument=instrument))
        session = self.kept[instrument]
        session.kernels()
        return session

    def stepped(self, steps=1, *, instrument=False):
        session = self.shared(instrument=instrument)
        session.feed(self.inputs)
        for _ in range(steps):
            session.step()
        return session

    def generated(self, session, *, generate=4, depth=0):
        return list(session.generate(Request(prompt=self.inputs, generate=generate, depth=depth)))

    def used(self, session):
        """Whether it runs."""
        if not isinstance(self.inputs, dict):
            return bool(self.generated(session))
        session.feed(self.inputs)
        session.step()
        return bool(session.outputs())


def name_of(row):
    runtime, make, _ = row
    return f"{runtime if isinstance(runtime, str) else runtime.name}-{make.__name__}"


def opened_case(row, folder):
    case = Case(*row, folder)
    yield case
    for session in (*case.opened, *case.kept.values()):
        session.close()


# All tests of one row follow each other, so one model is open at a time: torch has one profiler a process.


@pytest.fixture(scope="module", params=ROWS, ids=name_of)
def case(request, tmp_path_factory):
    yield from opened_case(request.param, tmp_path_factory.mktemp("case"))


@pytest.fixture(scope="module", params=[row for row in ROWS if isinstance(row[2], dict)], ids=name_of)
def arrays(request, tmp_path_factory):
    yield from opened_case(request.param, tmp_path_factory.mktemp("arrays"))


@pytest.fixture(scope="module", params=[row for row in ROWS if not isinstance(row[2], dict)], ids=name_of)
def text(request, tmp_path_factory):
    yield from opened_case(request.param, tmp_path_factory.mktemp("text"))


# Every session


def test_opening_says_what_was_opened(case):
    opened = case.shared().opened
    assert opened.stages
    assert all(isinstance(stage, Stage) and stage.seconds >= 0 for stage in opened.stages)
    assert len({stage.name for stage in opened.stages}) == len(opened.stages)
    assert "load" in {stage.name for stage in opened.stages}
    assert all(opened.versions.values())
    assert opened.versions
    assert opened.unit.split(":")[0] in case.runtime.capabilities.units
    assert all(isinstance(note, str) and note for note in opened.notes)


def test_the_number_of_threads_is_said_and_obeyed(case):
    if not case.runtime.capabilities.threads:
        pytest.skip("the number of threads cannot be chosen")
    assert case.shared().opened.threads >= 1
    assert case.open(threads=1).opened.threads == 1


def test_a_unit_that_does_not_exist_is_refused_with_those_that_do(case):
    with pytest.raises(InferometerError, match="tpu") as caught:
        case.open(unit="tpu")
    assert "cpu" in str(caught.value).casefold()


def test_another_format_is_refused_with_those_it_opens(case):
    with pytest.raises(FormatError, match="spreadsheet"):
        case.open(format="spreadsheet")


def test_what_cannot_be_chosen_is_refused_and_what_is_misspelt_with_those_there_are(case):
    can = case.runtime.capabilities
    for word, known in (("precision", can.precision), ("optimisation", can.optimisation)):
        with pytest.raises(InferometerError, match="f23") as caught:
            case.open(**{word: "f23"})
        assert all(name in str(caught.value) for name in known)
        assert case.runtime.title in str(caught.value)


def test_a_precision_that_was_chosen_is_computed_in_or_a_note_says_why_not(case):
    if "f32" not in case.runtime.capabilities.precision:
        pytest.skip("the arithmetic is the file's")
    opened = case.open(precision="f32").opened
    assert opened.precision == "f32" or any("f32" in note for note in opened.notes)


def test_a_file_that_is_not_there_is_named(case, tmp_path):
    with pytest.raises(InferometerError, match="nowhere"):
        case.open(path=tmp_path / "nowhere")


def test_a_file_that_is_no_model_is_named(case, tmp_path):
    path = tmp_path / "garbage.bin"
    path.write_bytes(b"this is no model " * 100)
    with pytest.raises(InferometerError, match=r"garbage\.bin"):
        case.open(path=path)


def test_a_session_that_closes_twice_leaves_those_beside_and_after_it_alone(case):
    beside = case.shared()
    for _ in range(2):
        session = case.open()
        session.close()
        session.close()
    assert case.used(beside)


def test_a_session_that_is_closed_runs_nothing_more(case):
    """It says so, and does not go on with what an engine has given back."""
    session = case.open()
    session.close()
    with pytest.raises(InferometerError):
        case.used(session)


def test_a_plain_session_tells_of_no_kernels(case):
    session = case.shared()
    assert case.used(session)
    assert not session.kernels()


# Sessions of arrays


def test_the_ports_are_those_of_the_model(arrays):
    session = arrays.stepped()
    opened = session.opened
    assert {port.name for port in opened.inputs} == set(arrays.inputs)
    assert {port.name: port.dtype for port in opened.inputs} == {
        name: array.dtype.name for name, array in arrays.inputs.items()
    }
    outputs = session.outputs()
    assert [port.name for port in opened.outputs] == list(outputs)
    for port in opened.outputs:
        assert outputs[port.name].dtype.name == port.dtype
        assert outputs[port.name].ndim == len(port.shape)


def test_a_step_repeats_itself(arrays):
    session = arrays.stepped()
    before = {name: array.copy() for name, array in session.outputs().items()}
    session.step()
    after = session.outputs()
    assert all(np.array_equal(before[name], after[name]) for name in before)


def test_an_instrumented_session_gives_the_same_outputs(arrays):
    if not arrays.runtime.capabilities.per_op:
        pytest.skip("it does not tell the time of its kernels")
    plain, timed = arrays.stepped().outputs(), arrays.stepped(instrument=True).outputs()
    for name, array in plain.items():
        np.testing.assert_allclose(timed[name], array, rtol=1e-3, atol=1e-5)


def test_feeding_again_replaces_the_inputs(arrays):
    session = arrays.stepped()
    expected = {name: array.copy() for name, array in session.outputs().items()}
    session.feed({name: array * 0 if array.dtype.kind == "f" else array for name, array in arrays.inputs.items()})
    session.step()
    session.feed(arrays.inputs)
    session.step()
    found = session.outputs()
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-5, atol=1e-6)


def test_kernels_have_one_sample_a_step(arrays):
    if not arrays.runtime.capabilities.per_op:
        pytest.skip("it does not tell the time of its kernels")
    session = arrays.stepped(3, instrument=True)
    assert_samples(session.kernels(), {"forward": 3})
    session.step()
    assert_samples(session.kernels(), {"forward": 1})
    assert not any(kernel.samples_s for kernels in session.kernels().values() for kernel in kernels)


def test_kernels_stand_for_layers_and_say_where_they_ran(arrays):
    if not arrays.runtime.capabilities.per_op:
        pytest.skip("it does not tell the time of its kernels")
    kernels = arrays.stepped(instrument=True).kernels()["forward"]
    assert any(kernel.layers for kernel in kernels)
    assert len({kernel.name for kernel in kernels}) == len(kernels)
    assert all(kernel.name and kernel.kind for kernel in kernels)
    assert {kernel.unit.split(":")[0] for kernel in kernels} <= set(arrays.runtime.capabilities.units)


def test_the_kernels_of_a_step_fit_into_it(arrays):
    """What is nested is not counted twice. A clock of whole microseconds may round each kernel up by half of one."""
    if not arrays.runtime.capabilities.per_op:
        pytest.skip("it does not tell the time of its kernels")
    session = arrays.stepped(instrument=True)
    session.kernels()
    start = arrays.clock()
    for _ in range(3):
        session.step()
    wall_s = arrays.clock() - start
    kernels = session.kernels()["forward"]
    assert 0 < sum(sum(kernel.samples_s) for kernel in kernels) <= wall_s * 1.01 + 3 * len(kernels) * 1e-6


def test_the_profilers_own_cost_is_a_time_or_unknown(arrays):
    assert getattr(arrays.shared(), "cost_per_kernel_s", None) is None
    if arrays.runtime.capabilities.per_op:
        cost_s = getattr(arrays.shared(instrument=True), "cost_per_kernel_s", None)
        assert cost_s is None or cost_s >= 0


def test_an_input_that_is_missing_is_named(arrays):
    session = arrays.shared()
    name, *_ = arrays.inputs
    with pytest.raises(DomainError, match=name):
        session.feed({other: array for other, array in arrays.inputs.items() if other != name})


def test_an_input_of_another_name_is_named(arrays):
    with pytest.raises(DomainError, match="no-such-input"):
        arrays.shared().feed({**arrays.inputs, "no-such-input": np.zeros(1, np.float32)})


def test_an_input_of_another_type_is_named_with_both_types(arrays):
    name, *_ = arrays.inputs
    array = arrays.inputs[name]
    other = np.float64 if array.dtype != np.float64 else np.float32
    with pytest.raises(DomainError) as caught:
        arrays.shared().feed({**arrays.inputs, name: array.astype(other)})
    assert name in str(caught.value)
    assert array.dtype.name in str(caught.value)
    assert np.dtype(other).name in str(caught.value)


def test_an_input_of_another_rank_is_named(arrays):
    name, *_ = arrays.inputs
    with pytest.raises(DomainError) as caught:
        arrays.shared().feed({**arrays.inputs, name: arrays.inputs[name][None, None]})
    assert name in str(caught.value)


# Sessions of text


def decoded(events):
    """Without the encoder's pass, which comes before all others where a model has one."""
    assert all(event.kind != "encode" for event in events[1:])
    return [event for event in events if event.kind != "encode"]


def test_a_generation_is_a_prefill_and_a_step_for_each_further_token(text):
    session = text.shared()
    events = decoded(text.generated(session, generate=4))
    assert [event.kind for event in events] == ["prefill", *["token"] * (len(events) - 1)]
    assert events[0].tokens == len(text.inputs)
    ids = [each for event in events for each in event.ids]
    assert len(ids) == 4
    assert len(events[0].ids) == 1
    assert all(0 <= each < session.vocabulary for each in ids)
    assert all(event.tokens == len(event.ids) for event in events[1:])


def test_each_event_knows_what_lay_in_the_cache(text):
    events = decoded(text.generated(text.shared(), generate=4, depth=5))
    cached = 5
    for event in events:
        assert event.context == cached
        cached += event.tokens


def test_events_follow_each_other_and_hold_their_parts(text):
    events = text.generated(text.shared(), generate=4)
    assert all(event.start_ns <= event.end_ns for event in events)
    assert all(before.end_ns <= after.start_ns for before, after in pairwise(events))
    for event in events:
        named = {name: seconds for name, seconds in event.parts.items() if name != "device"}
        assert all(seconds >= 0 for seconds in named.values())
        assert sum(named.values()) <= (event.end_ns - event.start_ns) * 1e-9 * 1.001 + 1e-6


def test_the_cache_is_empty_before_each_generation(text):
    session = text.shared()
    first = [event.ids for event in text.generated(session, generate=5)]
    assert [event.ids for event in text.generated(session, generate=5)] == first


def test_a_generation_may_be_left_early(text):
    session = text.shared()
    expected = [event.ids for event in text.generated(session, generate=3)]
    events = iter(session.generate(Request(prompt=text.inputs, generate=8)))
    next(events)
    next(events)
    getattr(events, "close", lambda: None)()
    assert [event.ids for event in text.generated(session, generate=3)] == expected


def test_a_prompt_alone_may_be_read(text):
    (event,) = decoded(text.generated(text.shared(), generate=0))
    assert (event.kind, event.tokens, event.ids) == ("prefill", len(text.inputs), ())


def test_an_empty_prompt_is_refused(text):
    with pytest.raises(DomainError, match="prompt"):
        list(text.shared().generate(Request(prompt=(), generate=2)))


def test_a_token_outside_the_vocabulary_is_named(text):
    session = text.shared()
    with pytest.raises(DomainError, match=str(session.vocabulary)):
        list(session.generate(Request(prompt=(session.vocabulary,), generate=2)))


def test_more_tokens_than_the_context_holds_are_refused(text):
    session = text.open(context=len(text.inputs) + 4)
    assert text.generated(session, generate=4)
    with pytest.raises(DomainError, match=str(len(text.inputs) + 4)):
        text.generated(session, generate=4000)


def test_words_become_tokens_and_words_again_or_an_error_says_why_not(text):
    session = text.shared()
    try:
        ids = session.tokenise("hello there")
    except (DomainError, MissingDependencyError) as error:
        assert "token" in str(error)
        return
    assert ids
    assert all(0 <= each < session.vocabulary for each in ids)
    assert session.detokenise(ids)


def test_the_first_token_is_the_likeliest_after_the_prompt(text):
    if not text.runtime.capabilities.logits:
        pytest.skip("it does not give logits")
    session = text.shared()
    logits = session.score(text.inputs)
    assert logits.shape == (len(text.inputs), session.vocabulary)
    assert np.isfinite(logits).all()
    first = decoded(text.generated(session, generate=1))[0].ids[0]
    assert logits[-1, first] >= logits[-1].max() - 1e-4


def test_kernels_are_apart_by_phase_with_one_sample_a_step(text):
    if not text.runtime.capabilities.per_op:
        pytest.skip("it does not tell the time of its kernels")
    session = text.shared(instrument=True)
    events = text.generated(session, generate=4, depth=3)
    once = {"encode", "prefill"} if events[0].kind == "encode" else {"prefill"}
    assert_samples(session.kernels(), {**dict.fromkeys(once, 1), "decode": len(events) - len(once)})
    text.generated(session, generate=3)
    text.generated(session, generate=3)
    assert_samples(session.kernels(), {**dict.fromkeys(once, 2), "decode": 4})


def assert_samples(found, expected):
    assert set(found) == set(expected)
    for phase, count in expected.items():
        assert found[phase]
        for kernel in found[phase]:
            assert len(kernel.samples_s) == count, kernel.name
            assert all(seconds >= 0 for seconds in kernel.samples_s)
            assert kernel.device_s is None or len(kernel.device_s) == count


@pytest.mark.installed
def test_every_installed_runtime_declares_what_it_can(tmp_path):
    for name, runtime in INSTALLED.items():
        assert runtime.name == name
        assert runtime.formats
        assert set(runtime.capabilities.units) <= {"cpu", "gpu", "npu"}
        assert runtime.capabilities.arrays or runtime.capabilities.text
        assert set(runtime.capabilities.precision) <= {"f64", "f32", "bf16", "f16"}
        with pytest.raises(InferometerError):
            runtime.open(Target(path=tmp_path / "x", format="spreadsheet"))
