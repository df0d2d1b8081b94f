"""Which of several phases, layers or files counts, and what is said where there is none."""

from dataclasses import replace
from math import exp
from types import SimpleNamespace

import pytest

from inferometer.core.errors import DomainError, FormatError, UnknownNameError
from inferometer.core.finding import Finding
from inferometer.core.graph import Graph
from inferometer.core.profile import CalibrationMark, DeviceFacts, Environment, JudgedBy, Phase, Provenance
from inferometer.core.workload import Parallel, Precision, Workload
from inferometer.measure.run.model import MeasureRequest
from inferometer.predict.gains import Gain
from inferometer.understand import judging as resolve
from inferometer.understand import trying
from inferometer.understand.case import growth, pricer, times_words
from inferometer.understand.explanation import _above, _can_predict, _headline, explain, explanation_document
from inferometer.understand.findings import finding_page, findings_of, overheads
from inferometer.understand.judging import (
    _missing_calibration,
    device_behind,
    graph_behind,
    judge_profile,
    question_behind,
)
from inferometer.understand.residual import KindGap, _alike, explain_residual
from inferometer.understand.trying import Trial, _blank, _judged, _overlap, try_changes, with_change
from unit.understand.explain_cases import (
    CPU,
    case_of,
    computing,
    experts,
    forward,
    judged_on,
    moving,
    op,
    profile,
    sampled,
    steady,
    text,
    told_padding,
)


def found(code, made, device=CPU, **more):
    return next((each for each in findings_of(case_of(made, device, **more)) if each.code == code), None)


def request(prefill_ops, decode_ops, *, prefill_s=1.0, step_s=0.1, generate=11, **more):
    made = text(prefill_s, step_s, generate=generate, **more)
    prefill, decode = made.phases
    return replace(made, phases=(replace(prefill, ops=prefill_ops), replace(decode, ops=decode_ops)))


# Of several phases the one that costs a request most.


def test_of_two_phases_that_wait_for_memory_the_one_that_takes_longer_in_a_request_is_told():
    assert found("memory.bound", request((moving(1.0),), (moving(0.1),), generate=9)).phase == "prefill"
    assert found("memory.bound", request((moving(1.0),), (moving(0.1),), generate=13)).phase == "decode"
    bound = found("compute.bound", request((computing(1.0),), (computing(0.1),), generate=13))
    assert (bound.phase, bound.stake_s) == ("decode", pytest.approx(1.2))
    copies = found(
        "layout.moves", request((computing(0.7), op("t", "copy", 0.3)), (computing(0.05), op("t", "copy", 0.05)))
    )
    assert (copies.phase, copies.stake_s) == ("decode", pytest.approx(0.5))


def test_of_two_slow_phases_the_one_that_loses_most_is_told():
    def slow(prefill, decode):
        made = request((), (), generate=11)
        phases = [replace(phase, predicted_s=expected, floor_s=0.001) for phase, expected in
                  zip(made.phases, (prefill, decode), strict=True)]  # fmt: skip
        return found("utilisation.low", replace(made, phases=tuple(phases)))

    assert slow(0.2, 0.05).phase == "prefill"
    assert slow(0.6, 0.05).phase == "decode"
    assert slow(0.7, 0.07) is None
    assert slow(0.9, 0.02).phase == "decode", "what comes after a phase that is not slow is looked at too"
    assert slow(None, 0.02).phase == "decode"
    quick = slow(0.2, 0.09)
    assert (quick.gain, quick.evidence["share_of_floor"]) == (pytest.approx(5.0), pytest.approx(0.001))


def test_a_prediction_that_knows_no_time_says_nothing_of_a_slow_phase():
    made = profile(forward(computing(1.0), floor_s=0.1))

    def judged(seconds, **ends):
        predicted = profile(forward(seconds=seconds, **ends), kind="predicted")
        return found("utilisation.low", made, predicted=predicted)

    assert judged(0.0) is None
    slow = judged(0.25, low_s=0.2, high_s=0.5)
    assert (slow.gain, slow.gain_low, slow.gain_high) == (pytest.approx(4), pytest.approx(2), pytest.approx(5))
    assert judged(0.25, low_s=0.2, high_s=1.0) is None, "within the prediction's interval"
    assert judged(0.25, low_s=0.2, high_s=0.99) is not None


def test_experts_are_uneven_where_a_layer_has_several():
    assert found("experts.imbalance", experts(0.4)) is None
    assert found("experts.imbalance", experts(0.4, 0.1)).evidence["imbalance"] == pytest.approx(1.6)
    lone = op("layers.1.experts.0.up", "linear", 0.2)
    both = experts(0.4, 0.1)
    phase = replace(both.phases[0], ops=(*both.phases[0].ops, lone), time_s=0.7)
    uneven = found("experts.imbalance", replace(both, phases=(phase,)))
    assert uneven.evidence["imbalance"] == pytest.approx(1.6), "a layer of one expert has no mean to be compared with"
    assert uneven.evidence["experts_share"] == pytest.approx(1.0)

    def over(experts_s, others_s):
        return profile(forward(
            op("moe", "moe_experts", experts_s, predicted_s=0.1), op("fc", "linear", others_s, predicted_s=0.2),
            op("mm", "matmul", others_s, predicted_s=0.2), seconds=experts_s + 2 * others_s,
        ))  # fmt: skip

    assert found("experts.imbalance", over(0.4, 0.4)).evidence["imbalance"] == pytest.approx(2.0)
    assert found("experts.imbalance", over(0.2, 0.3)) is None


def test_padding_counts_whole_where_it_was_counted_and_by_arithmetic_where_it_is_tiles():
    told = found("padding.waste", told_padding(75, 100))
    assert (told.evidence["waste"], told.stake_s) == (pytest.approx(0.25), pytest.approx(0.25))
    assert found("padding.waste", told_padding(86, 100)) is None
    assert found("padding.waste", told_padding(100, 100)) is None


# Words.


def test_a_headline_says_how_far_from_the_floor_and_what_the_time_is_spent_on():
    made = profile(forward(computing(0.75), floor_s=0.5))
    assert _headline(case_of(made, CPU)) == (
        "A forward pass takes 1 s, 2 × its floor, of which 75% is arithmetic, 25% overhead."
    )  # fmt: skip
    made = profile(forward(computing(0.75), op("odd", "custom", 0.25), floor_s=0.5))
    assert _headline(case_of(made, CPU)) == (
        "A forward pass takes 1 s, but 50% of it is in ops whose work is not known."
    )  # fmt: skip
    bare = replace(made, phases=(replace(made.phases[0], floor_s=None, ops=()),))
    assert _headline(case_of(bare, None)) == "A forward pass takes 1 s."
    assert _headline(case_of(replace(made, phases=()), None)) == "m: the profile has no time of a run."
    assert [_above(floors) for floors in (0.9, 1.0, 12.34, 99.9, 100.0, 12345.6)] == [
        "less than its floor", "1 × its floor", "12 × its floor", "1e+02 × its floor", "100 × its floor",
        "12,346 × its floor",
    ]  # fmt: skip
    document = explanation_document(explain(judged_on(made, CPU)))
    assert document["workload"] == {"batch": 1}
    assert [_can_predict(changes) for changes in ((), ("weights=i8", "x=1"), ("threads=3", "weights=i8"))] == [
        False, True, False,
    ]  # fmt: skip
    with pytest.raises(UnknownNameError):
        finding_page("no.such")


def test_growth_needs_several_contexts_and_as_many_samples():
    times, contexts = tuple(0.01 + 1e-4 * n for n in range(30)), tuple(range(50, 80))
    phase = Phase(name="decode", time_s=0.01, samples_s=times, context=contexts)
    slope = growth(phase)
    assert slope.per_token_s == pytest.approx(1e-4)
    assert growth(replace(phase, context=contexts[:-1])) is None
    assert growth(replace(phase, context=(50,) * 30)) is None
    assert growth(replace(phase, samples_s=None)) is None
    assert growth(replace(phase, samples_s=times[::-1])) is None
    wide = growth(replace(phase, context=tuple(2 * n for n in contexts)))
    assert wide.per_token_s == pytest.approx(5e-5)


def test_kinds_are_alike_where_they_are_off_by_more_than_a_little():
    def gap(kind, ratio):
        return KindGap(kind=kind, measured_s=ratio, predicted_s=1.0, share=0.5, ops=1)

    assert _alike((gap("a", 1.2), gap("b", 1.3)), 2.5)
    assert not _alike((gap("a", 1.04), gap("b", 1.3)), 2.5)
    assert not _alike((gap("a", 1.2),), 1.2)
    assert not _alike((gap("a", 1.2), gap("b", 1.2 * exp(0.31))), 2.5)
    assert not _alike((gap("a", 1.2), gap("b", 1.3)), 25.0), "neither matters"
    assert _alike((gap("a", 1.2), gap("b", 1.3)), 15.0), "a fifteenth matters"
    little = KindGap(kind="c", measured_s=1.0, predicted_s=0.01, share=0.5, ops=1)
    assert _alike((gap("a", 1.2), gap("b", 1.3), little), 3.5), "a kind that was to take hardly anything says nothing"


def test_what_is_as_predicted_to_the_last_bit_has_no_difference_to_share():
    made = profile(forward(op("a", "linear", 0.75, predicted_s=0.75), op("b", "norm", 0.25, predicted_s=0.25),
                           predicted_s=1.0))  # fmt: skip
    (story,) = explain_residual(made)
    assert (story.blame, [kind.share for kind in story.kinds]) == ("none", [0.0, 0.0, 0.0])


@pytest.mark.parametrize(("first", "named"), [(0.5, False), (0.625, True)])
def test_a_layer_with_more_than_half_of_a_difference_is_named(first, named):
    ops = (op("x", "linear", 1.0 + first, predicted_s=1.0), op("y", "linear", 2.0 - first, predicted_s=1.0),
           op("z", "norm", 1.0, predicted_s=1.0))  # fmt: skip
    (story,) = explain_residual(profile(forward(*ops, seconds=4.0, predicted_s=3.0)))
    assert story.blame == "model"
    assert ("most of it in x" in story.sentence) == named


def test_converting_formats_is_said_in_seconds_or_in_words(monkeypatch):
    made = profile(forward(computing(0.9), op("dq", "dequantize", 0.1)))
    assert found("quantisation.overhead", made).title == "Converting number formats takes 10% of the forward pass"
    engine = SimpleNamespace(effects=SimpleNamespace(expanded={"f32"}), compiled_by=None)
    monkeypatch.setattr(overheads, "engine_or_ideal", lambda _runtime: engine)
    bare = replace(profile(forward(computing(1.0))), runtime="r")
    told = overheads.quantisation_overhead(case_of(bare, CPU, price=lambda *_: gain(3.0)))
    assert told.title == "r writes f32 weights out before it uses them"
    assert (told.evidence["speedup_in_f16"], told.evidence["share"]) == (3.0, 0.0)


def gain(times):
    return Gain(change="c", phase="forward", before_s=1.0, after_s=1 / times, gain=times, low=times, high=times,
                throughput_gain=times)  # fmt: skip


# Models and devices behind a name.


def test_the_graph_behind_a_profile_is_the_one_with_more_of_its_layers(monkeypatch, tmp_path):
    path = tmp_path / "m.gguf"
    path.write_text("")
    ops = (op("a.0", "linear", 1.0), op("a.1", "linear", 1.0))
    made = profile(forward(*ops, seconds=2.0))
    made = replace(made, model=replace(made.model, name="llama-3.2-1b", source=str(path)))

    def graph(*names):
        block = SimpleNamespace(count=1, full_name=lambda name, _repetition: name)
        return SimpleNamespace(names=names, ops=lambda: [(block, SimpleNamespace(name=name)) for name in names])

    graphs = {str(path): graph("a.0", "b"), "llama-3.2-1b": graph("a.0", "a.1")}

    def read(place):
        if graphs[place] is None:
            raise FormatError(f"{place} is broken.")
        return graphs[place]

    monkeypatch.setattr(resolve, "graphs_named", lambda place: (read(place),))
    assert graph_behind(made, files=True)[0].names == ("a.0", "a.1")
    graphs[str(path)] = graph("a.1", "a.0")
    assert graph_behind(made, files=True)[0].names == ("a.1", "a.0"), "of two alike the file's own"
    assert graph_behind(made, files=False)[0].names == ("a.0", "a.1")
    graphs["llama-3.2-1b"] = None
    assert graph_behind(made, files=False) == (None, "Gains are not priced: llama-3.2-1b is broken.")
    nowhere = replace(made, model=replace(made.model, name="nothing", source=None))
    assert graph_behind(nowhere, files=True) == (None, "Gains are not priced: the catalog has no 'nothing'.")


def test_the_device_behind_a_profile_is_named_judged_or_in_the_catalog():
    made = replace(profile(forward(computing(1.0))), device=DeviceFacts(name="nvidia-l4"))
    assert device_behind(made)[0].name == "nvidia-l4"
    assert device_behind(judged_on(made, CPU))[0] is CPU
    assert device_behind(judged_on(made, CPU), on="nvidia-h200")[0].name == "nvidia-h200"
    assert device_behind(replace(made, device=DeviceFacts(name="local")))[1].startswith("The run has no roof")
    assert device_behind(replace(made, device=DeviceFacts(name="x")))[1].startswith("The catalog has no device 'x'")


# Judging.


def test_thequestion_behind_a_profile_is_the_one_it_answers():
    made = replace(profile(forward(computing(1.0)), environment=Environment(threads=3)), runtime="someone's")
    graph = Graph(name="m", blocks=())
    question, notes = question_behind(made, graph, CPU, roof="roof", sizes={"n": 2})
    assert notes == ("someone's has no engine descriptor: it is predicted as an ideal engine.",)
    assert (question.runtime, question.graph, question.device, question.roof) == ("ideal", graph, CPU, "roof")
    assert (question.had_threads, question.options.sizes, question.workload) == (3, {"n": 2}, made.workload)
    assert (question.calibrated, question.host_call_s) == (True, None)
    hosted = replace(made, environment=Environment(host={"call_s": 2e-6}))
    assert question_behind(hosted, graph, CPU, roof=None, sizes={})[0].host_call_s == 2e-6, "the run's own host"
    judged = replace(made, judged_by=JudgedBy(device=CPU))
    assert question_behind(judged, graph, CPU, roof=None, sizes={})[0].calibrated, (
        "a measurement is judged by the newest"
    )
    predicted = replace(made, kind="predicted", runtime=None, judged_by=JudgedBy(device=CPU))
    question, notes = question_behind(predicted, graph, CPU, roof=None, sizes={})
    assert (question.calibrated, notes) == (False, ())


def test_a_prediction_is_priced_with_the_calibration_it_was_made_with():
    mark = CalibrationMark(device="d", runtime="r", dtype="f32", created="2026-01-02T03", content_hash="h")
    made = profile(forward(computing(1.0)), kind="predicted")

    def by(calibration):
        return replace(made, judged_by=JudgedBy(device=CPU, calibration=calibration))

    assert _missing_calibration(by(mark), by(mark)) is None
    assert _missing_calibration(made, by(mark)) is None
    assert _missing_calibration(by(mark), made).startswith(
        "It was predicted with the calibration of d with r of 2026-01-02,"
    )
    assert _missing_calibration(by(mark), by(replace(mark, content_hash="i"))) is not None
    assert _missing_calibration(replace(by(mark), kind="measured"), made) is None


def test_findings_of_other_codes_are_kept_beside_those_found_now():
    own = (Finding(code="outputs.wrong", severity="critical", title="kept", evidence={}, advice="a"),
           Finding(code="compute.bound", severity="info", title="replaced", evidence={}, advice="a"))  # fmt: skip
    judged, notes = judge_profile(replace(profile(forward(computing(1.0))), findings=own), CPU)
    titles = {finding.code: finding.title for finding in judged.findings}
    assert (titles["outputs.wrong"], titles["compute.bound"] != "replaced", notes) == ("kept", True, ())
    assert judged.judged_by.device is CPU
    assert judge_profile(profile(forward(computing(1.0))), None)[0].judged_by is None


def test_each_change_is_predicted_once_for_all_phases():
    asked = []

    class Question:
        def changed(self, change):
            asked.append(change)
            if change == "no":
                raise DomainError("no")
            return SimpleNamespace(answer=lambda: profile(forward(computing(0.5), seconds=0.5), kind="predicted"))

    price = pricer(Question(), profile(forward(computing(1.0)), kind="predicted"))
    assert price("yes", "forward").gain == price("yes", "forward").gain == 2.0
    assert price("yes", "decode") is None
    assert price("no", "forward") is price("no", "forward") is None
    assert asked == ["yes", "no"]


# Trying.


def finding(*changes, **more):
    return Finding(code="c.d", severity="info", title="t", evidence={}, advice="a", changes=changes, **more)


CAN = SimpleNamespace(threads=True, optimisation=("none", "basic", "all"), units=("cpu", "gpu"))


def test_a_trial_is_as_predicted_where_the_intervals_meet():
    trial = Trial(change="x", code="c", predicted_low=2.0, predicted_high=3.0)
    assert [_overlap(trial, *ends) for ends in ((1.0, 2.0), (3.0, 4.0), (1.0, 1.9), (3.1, 4.0), (2.2, 2.4))] == [
        True, True, False, False, True,
    ]  # fmt: skip
    assert (
        _overlap(trial, None, 2.0) is _overlap(trial, 1.0, None) is _overlap(Trial(change="x", code="c"), 1, 2) is None
    )
    predicted = finding("a=1", "b=2", gain=2.0, gain_low=1.5, gain_high=2.5)
    assert (_blank("a=1", predicted).predicted, _blank("b=2", predicted).predicted) == (2.0, None)
    assert (_blank("a=1", predicted).predicted_low, _blank("a=1", predicted).predicted_high) == (1.5, 2.5)


def test_changes_are_tried_between_two_measurements_of_what_there_was():
    orders = []

    def measure(order):
        orders.append(order)
        seconds = 0.5 if order.threads == 2 else 1.0
        return sampled(tuple(seconds * 100 * each for each in steady(30)))

    request_ = MeasureRequest(model="m", threads=4, shape=True)
    findings = [finding("threads=2", "optimisation=basic"), finding("threads=2"), finding("kv=i8")]
    trials = try_changes(findings, request_, measure=measure, can=CAN)
    assert [(order.threads, order.optimisation, order.shape) for order in orders] == [
        (4, None, False), (2, None, False), (4, "basic", False), (4, None, False),
    ]  # fmt: skip
    assert [trial.change for trial in trials] == ["threads=2", "optimisation=basic", "kv=i8"]
    assert (trials[0].verdict, trials[0].obtained) == ("faster", pytest.approx(2.0, rel=0.01))
    assert (trials[0].before_s, trials[0].after_s) == (pytest.approx(1.0, rel=0.02), pytest.approx(0.5, rel=0.02))
    assert trials[0].low < trials[0].obtained < trials[0].high
    assert trials[2].why == "kv cannot be changed on the spot"


def test_what_was_not_applied_or_not_measured_is_no_trial():
    blank, base = Trial(change="x", code="c"), steady(30)
    refused = replace(sampled(steady(30)), provenance=Provenance(tool="t", version="1", created="2026",
                                                                 notes=("one", "f16 was not applied")))  # fmt: skip
    assert _judged(blank, base, refused).why == "f16 was not applied"
    assert _judged(blank, (), sampled(steady(30))).why == "no time of a run was measured"
    assert _judged(blank, base, "it failed").why == "it failed"
    noisy = replace(sampled(steady(30)), environment=Environment(disturbed=True, reasons=("r",)))
    assert _judged(blank, base, noisy).notes == ("r",)
    quiet = replace(noisy, environment=replace(noisy.environment, disturbed=False))
    assert _judged(blank, base, quiet).notes == ()


def test_a_change_that_is_there_already_or_cannot_be_made_says_so():
    request_ = MeasureRequest(model="m", threads=4, precision="f16", unit="cpu", providers=("p",))
    assert with_change(request_, "threads=4", CAN) == "it had 4 threads already"
    assert with_change(request_, "optimisation=all", CAN) == "it was measured with graph optimisation all already"
    assert with_change(replace(request_, optimisation="none"), "optimisation=all", CAN).optimisation == "all"
    assert with_change(request_, "optimisation=most", CAN) == "this engine has no levels of graph optimisation"
    assert with_change(request_, "precision=f16", CAN) == "it was asked for already"
    assert with_change(request_, "unit=npu", CAN) == "this engine does not run on npu"
    moved = with_change(request_, "unit=gpu", CAN)
    assert (moved.unit, moved.providers) == ("gpu", ())
    given = with_change(request_, "provider=q", CAN)
    assert (given.unit, given.providers) == (None, ("q",))
    assert with_change(request_, "batch=8", CAN).workload.batch == 8
    assert with_change(request_, "weights=i8", CAN).startswith("the file has its weights: convert it to i8")


def test_the_same_request_is_asked_again_as_the_profile_tells(monkeypatch):
    monkeypatch.setattr(trying, "row_named", lambda _kind, name: name == "known" or None)
    made = replace(profile(forward(computing(1.0)), environment=Environment(threads=5)), runtime="r")
    asked = trying.same_request(replace(made, model=replace(made.model, name="known", source="/x")))
    assert (asked.model, asked.runtime, asked.threads) == ("known", "r", 5)
    assert asked.workload.precision == Precision()
    assert trying.same_request(replace(made, model=replace(made.model, source="/x"))).model == "/x"
    with pytest.raises(DomainError, match="does not say where m is"):
        trying.same_request(made)


def test_a_gain_that_does_not_fit_is_none():
    small = Gain(change="batch=2", phase="decode", before_s=1.0, after_s=1.0, gain=1.0, low=1.0, high=1.0,
                 throughput_gain=2.0, fits=False)  # fmt: skip
    made = request((), (moving(0.1),))
    decode = made.phases[1]
    assert case_of(made, CPU, price=lambda *_: small).throughput("batch=2", decode) is None
    assert case_of(made, CPU, price=lambda *_: replace(small, fits=None)).throughput("batch=2", decode) is not None


def test_several_devices_that_talk_are_counted():
    ops = (computing(0.5), op("sum", "collective", 0.5, bound="link"))
    made = profile(forward(*ops), workload=Workload(parallel=Parallel(tp=4), precision=Precision(activations="f32")))
    talk = found("communication.bound", made)
    assert (talk.evidence["devices"], talk.evidence["time_s"], talk.evidence["speedup_at_most"]) == (4, 0.5, 2.0)


@pytest.mark.parametrize(
    ("ratio", "words"), [(1.58, "1.6"), (13.4, "13"), (99.4, "99"), (132.8, "130"), (12_345, "12,000")]
)
def test_how_many_times_is_said_without_an_exponent(ratio, words):
    assert times_words(ratio) == words
